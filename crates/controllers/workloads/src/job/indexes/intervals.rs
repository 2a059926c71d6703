//! Sets of indexes as sorted runs: a Job of 100,000 completions in sequence is a single run.

use std::fmt;

/// A set of indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intervals {
    /// First and last index of each run, ascending; runs neither overlap nor touch.
    runs: Vec<(usize, usize)>,
}

impl Intervals {
    /// Parses the form of the status, such as `0-2,5`, up to a bound. Ignores text that is no
    /// number.
    pub fn parse(text: &str, total: usize) -> Self {
        let Some(last) = total.checked_sub(1) else {
            return Self::default();
        };
        let runs = text.split(',').filter_map(|part| {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            // The completions of an elastic Job can be lowered: indexes above them are no longer
            // part of the Job.
            let (from, to) = (from.parse().ok()?, to.parse::<usize>().ok()?.min(last));
            (from <= to).then_some((from, to))
        });
        Self::from_runs(runs.collect())
    }

    fn from_runs(mut runs: Vec<(usize, usize)>) -> Self {
        runs.sort_unstable();
        let mut joined: Vec<(usize, usize)> = Vec::with_capacity(runs.len());
        for (from, to) in runs {
            match joined.last_mut() {
                // Runs that touch are joined, too: equal sets must have equal text, or the status
                // would change forever.
                Some((_, end)) if from <= end.saturating_add(1) => *end = to.max(*end),
                _ => joined.push((from, to)),
            }
        }
        Self { runs: joined }
    }

    /// Returns the number of indexes in the set.
    pub fn len(&self) -> usize {
        self.runs.iter().map(|(from, to)| to - from + 1).sum()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns whether the set contains an index.
    pub fn contains(&self, index: usize) -> bool {
        let after = self.runs.partition_point(|(from, _)| *from <= index);
        self.runs
            .get(..after)
            .and_then(<[_]>::last)
            .is_some_and(|(_, to)| index <= *to)
    }

    /// Returns the union.
    pub fn union(&self, other: &Self) -> Self {
        Self::from_runs(self.runs.iter().chain(&other.runs).copied().collect())
    }

    /// Returns the indexes of this set that are not in the other.
    pub fn minus(&self, other: &Self) -> Self {
        let mut runs = Vec::new();
        let mut rest = other.runs.iter().peekable();
        for (mut from, to) in self.runs.iter().copied() {
            while rest.next_if(|(_, end)| *end < from).is_some() {}
            // Cloned, because a run of the other set may reach into the next run of this set.
            for (start, end) in rest.clone().take_while(|(start, _)| *start <= to) {
                if from < *start {
                    runs.push((from, start - 1));
                }
                from = end + 1;
            }
            if from <= to {
                runs.push((from, to));
            }
        }
        Self { runs }
    }

    /// Yields the indexes below `total` that are not in the set, in ascending order.
    pub fn gaps(self, total: usize) -> impl Iterator<Item = usize> {
        let ends = self.runs.into_iter().chain([(total, total)]);
        let gaps = ends.scan(0, |next, (from, to)| {
            let gap = *next..from;
            *next = to + 1;
            Some(gap)
        });
        gaps.flatten().take_while(move |index| *index < total)
    }
}

impl FromIterator<usize> for Intervals {
    fn from_iter<I: IntoIterator<Item = usize>>(indexes: I) -> Self {
        Self::from_runs(indexes.into_iter().map(|index| (index, index)).collect())
    }
}

/// Formats `0,2,3` or `0-2`: three or more in a row become a range.
impl fmt::Display for Intervals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (from, to)) in self.runs.iter().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            match to - from {
                0 => write!(f, "{comma}{from}")?,
                1 => write!(f, "{comma}{from},{to}")?,
                _ => write!(f, "{comma}{from}-{to}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(list: &[usize]) -> Intervals {
        list.iter().copied().collect()
    }

    #[test]
    fn sets_round_trip() {
        for (list, text) in [
            (vec![], ""),
            (vec![0, 2, 3], "0,2,3"),
            (vec![0, 1, 2], "0-2"),
            (vec![1, 3, 4, 5, 9], "1,3-5,9"),
        ] {
            assert_eq!(set(&list).to_string(), text);
            assert_eq!(Intervals::parse(text, 10), set(&list), "{text}");
            assert_eq!(set(&list).len(), list.len(), "{text}");
        }
        assert_eq!(Intervals::parse("0-100,x,7-5,200", 3), set(&[0, 1, 2]));
        assert_eq!(Intervals::parse("0-5", 0), Intervals::default());
    }

    #[test]
    fn set_operations_agree_with_single_indexes() {
        let cases: [&[usize]; 6] = [
            &[],
            &[0],
            &[0, 1, 2, 7],
            &[1, 3, 5, 7, 9],
            &[2, 3, 4, 5, 6],
            &[9],
        ];
        for (a, b) in cases
            .iter()
            .flat_map(|a| cases.iter().map(move |b| (*a, *b)))
        {
            let all =
                |test: &dyn Fn(&usize) -> bool| (0..10).filter(|i| test(i)).collect::<Vec<_>>();
            let (x, y) = (set(a), set(b));
            assert_eq!(
                x.union(&y),
                set(&all(&|i| a.contains(i) || b.contains(i))),
                "{a:?} {b:?}"
            );
            assert_eq!(
                x.minus(&y),
                set(&all(&|i| a.contains(i) && !b.contains(i))),
                "{a:?} {b:?}"
            );
            assert_eq!(all(&|i| x.contains(*i)), a, "{a:?}");
            assert_eq!(
                x.clone().gaps(10).collect::<Vec<_>>(),
                all(&|i| !a.contains(i)),
                "{a:?}"
            );
            assert_eq!(
                x.gaps(3).collect::<Vec<_>>(),
                (0..3).filter(|i| !a.contains(i)).collect::<Vec<_>>(),
                "{a:?}"
            );
        }
    }
}
