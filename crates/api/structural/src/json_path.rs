//! JSONPath in the form of `kubectl` and printer columns: `.spec.list[?(@.type=="Ready")].status`.

mod parse;
mod step;

use serde_json::Value;
use std::cmp::Ordering;
use step::{Filter, Operator, Slice, Step};

pub use step::PathError;

/// Maximum number of values that a path may yield on the way. Repeated `..` would multiply them.
const RESULT_LIMIT: usize = 10_000;

/// A path, without the braces of `kubectl`.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

impl JsonPath {
    /// Parses a path such as `.spec.replicas`.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        // The depth starts at zero here and is bounded by the parser, because filters contain
        // paths.
        parse::parse_steps(text, 0).map(|steps| Self { steps })
    }

    /// Returns the values that the path leads to. Absent fields yield none.
    pub fn find<'v>(&'v self, object: &'v Value) -> Result<Vec<&'v Value>, PathError> {
        walk(&self.steps, vec![object])
    }

    /// Returns the first value, if there is one.
    pub fn find_first<'v>(&'v self, object: &'v Value) -> Option<&'v Value> {
        self.find(object).ok()?.first().copied()
    }
}

fn walk<'v>(steps: &'v [Step], input: Vec<&'v Value>) -> Result<Vec<&'v Value>, PathError> {
    let mut values = input;
    for step in steps {
        values = step.apply(&values)?;
        // Checked after each step, so one step can exceed the limit by the size of the object at
        // most.
        if values.len() > RESULT_LIMIT {
            return Err(PathError::Value(format!(
                "more than {RESULT_LIMIT} results"
            )));
        }
    }
    Ok(values)
}

fn list_children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Object(map) => map.values().collect(),
        Value::Array(all) => all.iter().collect(),
        _ => Vec::new(),
    }
}

impl Step {
    fn apply<'v>(&'v self, input: &[&'v Value]) -> Result<Vec<&'v Value>, PathError> {
        // kubectl prints nothing below a null, and neither do printer columns.
        let present = || input.iter().copied().filter(|value| !value.is_null());
        let mut out = Vec::new();
        match self {
            Step::Field(name) => out.extend(present().filter_map(|value| value.get(name))),
            Step::Wildcard => out.extend(present().flat_map(list_children)),
            Step::Recursive => {
                for value in present() {
                    collect_containers(value, &mut out);
                }
            }
            Step::Slice(slice) => {
                for value in present() {
                    slice.select(value, &mut out)?;
                }
            }
            Step::Union(all) => {
                for steps in all {
                    out.extend(walk(steps, input.to_vec())?);
                }
            }
            Step::Filter(filter) => {
                // Nulls are not skipped here: upstream reports a filter on something that is no
                // list.
                for value in input {
                    filter.select(value, &mut out)?;
                }
            }
            Step::Literal(value) => out.extend(input.iter().map(|_| value)),
        }
        Ok(out)
    }
}

fn collect_containers<'v>(value: &'v Value, out: &mut Vec<&'v Value>) {
    let children = list_children(value);
    // The limit is checked inside the recursion as well, since one `..` visits the whole object.
    if children.is_empty() || out.len() > RESULT_LIMIT {
        return;
    }
    out.push(value);
    for child in children {
        collect_containers(child, out);
    }
}

impl Slice {
    fn select<'v>(&self, value: &'v Value, out: &mut Vec<&'v Value>) -> Result<(), PathError> {
        let Value::Array(all) = value else {
            return Err(PathError::Value(format!("{value} is not array or slice")));
        };
        let len = i64::try_from(all.len()).unwrap_or(i64::MAX);
        let start = match self.start.unwrap_or(0) {
            n if n < 0 => n.saturating_add(len),
            n => n,
        };
        let end = match self.end {
            _ if self.single => match self.start.unwrap_or(0).saturating_add(1) {
                // The index -1 is the last element, whose end is that of the list.
                n if n <= 0 => n.saturating_add(len),
                n => n,
            },
            None => len,
            Some(n) if n < 0 => n.saturating_add(len),
            Some(n) => n,
        };
        // An empty range is no error, even where an index alone would be out of bounds.
        if start == end {
            return Ok(());
        }
        for index in [start, end.saturating_sub(1)] {
            if !(0..len).contains(&index) {
                let text = format!("array index out of bounds: index {index}, length {len}");
                return Err(PathError::Value(text));
            }
        }
        let step = self.step.unwrap_or(1);
        if start > end || step <= 0 {
            return Err(PathError::Value("invalid range of an array".to_owned()));
        }
        // The range was checked above, so these conversions only satisfy the types.
        let bound = |n: i64| usize::try_from(n).unwrap_or(usize::MAX);
        let part = all.get(bound(start)..bound(end)).unwrap_or_default();
        out.extend(part.iter().step_by(bound(step)));
        Ok(())
    }
}

impl Filter {
    fn select<'v>(&'v self, value: &'v Value, out: &mut Vec<&'v Value>) -> Result<(), PathError> {
        let Value::Array(all) = value else {
            let text = format!("{value} is not array or slice and cannot be filtered");
            return Err(PathError::Value(text));
        };
        for element in all {
            // An element without the field does not match; only the comparison of existing values
            // can fail.
            let left = walk(&self.left, vec![element]);
            let Some((operator, right)) = &self.comparison else {
                if left.is_ok_and(|left| !left.is_empty()) {
                    out.push(element);
                }
                continue;
            };
            let right = walk(right, vec![element])?;
            match (left?.as_slice(), right.as_slice()) {
                ([], _) | (_, []) => {}
                ([left], [right]) => {
                    if operator.compare(left, right)? {
                        out.push(element);
                    }
                }
                // Upstream has no rule for which of several values counts.
                _ => {
                    let text = "can only compare one element at a time".to_owned();
                    return Err(PathError::Value(text));
                }
            }
        }
        Ok(())
    }
}

impl Operator {
    fn compare(self, left: &Value, right: &Value) -> Result<bool, PathError> {
        let order = match (left, right) {
            (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
            // Whole numbers and floats are different types.
            (Value::Number(a), Value::Number(b)) if a.is_f64() == b.is_f64() => {
                match (a.as_i64(), b.as_i64()) {
                    (Some(a), Some(b)) => Some(a.cmp(&b)),
                    _ => a
                        .as_f64()
                        .unwrap_or(0.0)
                        .partial_cmp(&b.as_f64().unwrap_or(0.0)),
                }
            }
            (Value::Bool(a), Value::Bool(b)) if matches!(self, Self::Equal | Self::NotEqual) => {
                Some(a.cmp(b))
            }
            _ => None,
        };
        // A text is never converted to a number: upstream compares equal types only.
        let Some(order) = order else {
            return Err(PathError::Value(
                "incompatible types for comparison".to_owned(),
            ));
        };
        Ok(match self {
            Self::Equal => order == Ordering::Equal,
            Self::NotEqual => order != Ordering::Equal,
            Self::Less => order == Ordering::Less,
            Self::LessOrEqual => order != Ordering::Greater,
            Self::Greater => order == Ordering::Greater,
            Self::GreaterOrEqual => order != Ordering::Less,
        })
    }
}

#[cfg(test)]
mod tests;
