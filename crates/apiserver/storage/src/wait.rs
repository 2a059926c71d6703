//! The wait of readers for a revision on one watch stream: when to request progress, and since when
//! the member has stayed behind.

use std::time::Duration;
use tokio::time::Instant;

/// The pause between two requests for progress, as upstream.
const PAUSE: Duration = Duration::from_millis(100);

/// The state of a wait.
#[derive(Default)]
pub(crate) struct Wait {
    /// The time since which the stream has made no progress towards the awaited revision.
    pub(crate) since: Option<Instant>,
    /// The time of the next request for progress.
    pub(crate) next_request: Option<Instant>,
    is_open: bool,
    reached: i64,
    requested: Option<Instant>,
    /// The revision of a mark whose event is on its way.
    mark: Option<i64>,
}

impl Wait {
    /// Takes over the revision that the stream has reached, and the one that readers wait for.
    pub(crate) fn update(&mut self, reached: i64, wanted: i64, now: Instant) {
        // A busy member sends its events first. One that is cut off from the others sends none, but
        // may answer each request with its old revision.
        if reached > self.reached {
            self.since = None;
        }
        self.reached = reached;
        if reached >= wanted {
            (self.since, self.next_request, self.mark) = (None, None, None);
            return;
        }
        self.since.get_or_insert(now);
        self.mark = self.mark.filter(|mark| reached < *mark);
        // etcd drops a request while the watch is behind, so it is repeated without a response.
        let is_due = self.is_open && self.mark.is_none();
        self.next_request = is_due.then(|| self.requested.map_or(now, |last| last + PAUSE));
    }

    /// Records that the store has created the watch.
    pub(crate) fn record_created(&mut self) {
        self.is_open = true;
    }

    /// Records that progress was requested, by a mark of this revision if there is one.
    pub(crate) fn record_request(&mut self, mark: Option<i64>, now: Instant) {
        self.requested = Some(now);
        self.mark = mark;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step, and after how many milliseconds it comes.
    #[derive(Debug)]
    enum Step {
        Created,
        Response(i64),
        Wanted(i64),
        Requested(Option<i64>),
    }
    use Step::*;

    /// Returns the times since the start: of the start of the wait, and of the next request.
    fn run(steps: &[(u64, Step)]) -> (Option<u64>, Option<u64>) {
        let start = Instant::now();
        let (mut wait, mut reached, mut wanted) = (Wait::default(), 5, 0);
        for (at, step) in steps {
            let now = start + Duration::from_millis(*at);
            match step {
                Created => wait.record_created(),
                Response(revision) => reached = *revision,
                Wanted(revision) => wanted = *revision,
                Requested(mark) => wait.record_request(*mark, now),
            }
            wait.update(reached, wanted, now);
        }
        let since_start = |at: Instant| (at - start).as_millis() as u64;
        (
            wait.since.map(since_start),
            wait.next_request.map(since_start),
        )
    }

    #[test]
    fn progress_is_requested_until_the_awaited_revision_is_reached() {
        for (steps, expect) in [
            (vec![(0, Created)], (None, None)),
            (vec![(0, Created), (1, Wanted(5))], (None, None)),
            (vec![(0, Created), (1, Wanted(6))], (Some(1), Some(1))),
            // The stream is not open yet, or was lost while readers waited.
            (vec![(0, Wanted(6))], (Some(0), None)),
            (vec![(0, Wanted(6)), (3, Created)], (Some(0), Some(3))),
            // A request may have no response.
            (
                vec![(0, Created), (1, Wanted(6)), (2, Requested(None))],
                (Some(1), Some(102)),
            ),
            // One mark at a time.
            (
                vec![(0, Created), (1, Wanted(6)), (2, Requested(Some(7)))],
                (Some(1), None),
            ),
            // An old revision in the answer does not count.
            (
                vec![
                    (0, Created),
                    (1, Wanted(7)),
                    (2, Requested(None)),
                    (3, Response(5)),
                ],
                (Some(1), Some(102)),
            ),
            // A busy member has more time.
            (
                vec![
                    (0, Created),
                    (1, Wanted(7)),
                    (2, Requested(None)),
                    (3, Response(6)),
                ],
                (Some(3), Some(102)),
            ),
            (
                vec![
                    (0, Created),
                    (1, Wanted(7)),
                    (2, Requested(None)),
                    (3, Response(8)),
                ],
                (None, None),
            ),
            // A reader came after the mark was written: its event does not serve that one.
            (
                vec![
                    (0, Created),
                    (1, Wanted(6)),
                    (2, Requested(Some(7))),
                    (3, Wanted(8)),
                    (4, Response(6)),
                ],
                (Some(4), None),
            ),
            (
                vec![
                    (0, Created),
                    (1, Wanted(6)),
                    (2, Requested(Some(7))),
                    (3, Wanted(8)),
                    (4, Response(7)),
                ],
                (Some(4), Some(102)),
            ),
        ] {
            assert_eq!(run(&steps), expect, "{steps:?}");
        }
    }
}
