//! JSON Patch (RFC 6902), with the deviations of upstream's Go library: `replace` of an absent
//! member adds it, `test` of an absent member against null succeeds, negative indexes count from
//! the end.
//!
//! The cost of a patch is limited: the bytes that copies add, the elements that operations visit or
//! shift, and the depth of the result. The depth matters because all code that walks, clones or
//! drops a tree is recursive.

use serde_json::Value;

use crate::PatchError;

/// Maximum number of operations.
const MAX_OPERATIONS: usize = 10_000;
/// Maximum number of bytes added by copies.
const MAX_COPIED: usize = 3 * 1024 * 1024;
/// Maximum nesting of the result, equal to that of a JSON body.
const MAX_DEPTH: usize = 127;
/// Maximum number of values visited and of elements shifted within arrays, about 0.1 s of work. A
/// legitimate patch of 3 MiB stays far below.
const MAX_WORK: usize = 20_000_000;

/// Applies an encoded JSON patch to a tree, which should be in explicit form
/// (`api_codec::json::explicit`).
pub fn json_patch(original: Value, patch: &[u8]) -> Result<Value, PatchError> {
    let operations: Vec<Value> = serde_json::from_slice(patch)
        .map_err(|error| PatchError::Malformed(format!("error decoding patch: {error}")))?;
    // Upstream's limit, with its message.
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    let mut document = Document {
        root: original,
        copied: 0,
        work: 0,
    };
    for operation in &operations {
        document.apply(operation)?;
    }
    Ok(document.root)
}

struct Document {
    root: Value,
    copied: usize,
    work: usize,
}

fn inapplicable_error<T>(text: String) -> Result<T, PatchError> {
    Err(PatchError::Inapplicable(text))
}

impl Document {
    fn apply(&mut self, operation: &Value) -> Result<(), PatchError> {
        let text = |name: &str| operation.get(name).and_then(Value::as_str);
        let missing = |name: &str| {
            PatchError::Inapplicable(format!("operation missing {name} field: missing value"))
        };
        let kind = text("op").unwrap_or("unknown");
        let path = || text("path").ok_or_else(|| missing("path"));
        let from = || text("from").ok_or_else(|| missing("from"));
        let value = || operation.get("value").cloned().unwrap_or(Value::Null);
        match kind {
            "add" => self.add(path()?, value(), kind),
            "remove" => self.remove(path()?, kind).map(drop),
            // A missing `value` is null. Upstream's library does not distinguish them.
            "replace" => self.replace(path()?, value()),
            "test" => self.test(path()?, &value()),
            "move" => {
                let moved = self.remove(from()?, kind)?;
                self.add(path()?, moved, kind)
            }
            "copy" => {
                let copied = self.get(from()?).cloned();
                let Some(copied) = copied else {
                    return inapplicable_error(format!(
                        "copy operation does not apply: doc is missing from path: {:?}: missing value",
                        from()?
                    ));
                };
                // Copies of copies double the size with each operation.
                self.count(&copied)?;
                self.add(path()?, copied, kind)
            }
            _ => inapplicable_error(format!("Unexpected kind: {kind}")),
        }
    }

    fn count(&mut self, copied: &Value) -> Result<(), PatchError> {
        self.copied += measure_size(copied);
        if self.copied <= MAX_COPIED {
            return Ok(());
        }
        inapplicable_error(format!(
            "Unable to complete the copy, the accumulated size increase of copy is {}, exceeding the limit {MAX_COPIED}",
            self.copied
        ))
    }

    /// Rejects `value` below `path` if the result would be nested too deeply.
    fn check_depth(&mut self, path: &str, value: &Value) -> Result<(), PatchError> {
        // The depth of the whole is that of the value and of the path above it.
        let above = path.bytes().filter(|byte| *byte == b'/').count();
        match MAX_DEPTH
            .checked_sub(above)
            .and_then(|levels| count_values(value, levels))
        {
            Some(visited) => self.spend(visited),
            None => Err(PatchError::TooLarge(format!(
                "The patched object exceeds the maximum depth of {MAX_DEPTH}"
            ))),
        }
    }

    fn spend(&mut self, work: usize) -> Result<(), PatchError> {
        self.work = self.work.saturating_add(work);
        if self.work <= MAX_WORK {
            return Ok(());
        }
        Err(PatchError::TooLarge(
            "The operations of the JSON patch need too much work".into(),
        ))
    }

    fn get(&self, path: &str) -> Option<&Value> {
        split_path(path)
            .iter()
            .try_fold(&self.root, |value, key| match value {
                Value::Object(map) => map.get(key),
                Value::Array(list) => list.get(parse_index(key, list.len())?),
                _ => None,
            })
    }

    /// Returns the container of a path's last segment, and that segment.
    fn container(&mut self, path: &str, kind: &str) -> Result<(&mut Value, String), PatchError> {
        let mut keys = split_path(path);
        let last = keys.pop().unwrap_or_default();
        let container = keys
            .iter()
            .try_fold(&mut self.root, |value, key| match value {
                Value::Object(map) => map.get_mut(key),
                Value::Array(list) => {
                    let at = parse_index(key, list.len())?;
                    list.get_mut(at)
                }
                _ => None,
            });
        match container {
            Some(container @ (Value::Object(_) | Value::Array(_))) => Ok((container, last)),
            _ => inapplicable_error(format!(
                "{kind} operation does not apply: doc is missing path: {path:?}: missing value"
            )),
        }
    }

    fn add(&mut self, path: &str, value: Value, kind: &str) -> Result<(), PatchError> {
        // Each operation may add a level. Without the check a patch could build a tree that
        // overflows the stack when it is dropped.
        self.check_depth(path, &value)?;
        if path.is_empty() {
            self.root = value;
            return Ok(());
        }
        let (container, key) = self.container(path, kind)?;
        let mut shifted = 0;
        match container {
            Value::Object(map) => drop(map.insert(key, value)),
            // `-` is the position behind the last element (RFC 6901).
            Value::Array(list) if key == "-" => list.push(value),
            Value::Array(list) => match parse_index(&key, list.len() + 1) {
                Some(at) => {
                    // An insertion at the front of a long list moves all elements, which counts as
                    // work.
                    shifted = list.len() - at;
                    list.insert(at, value);
                }
                None => return bad_index(kind, path, &key),
            },
            _ => return bad_index(kind, path, &key),
        }
        self.spend(shifted)
    }

    fn replace(&mut self, path: &str, value: Value) -> Result<(), PatchError> {
        self.check_depth(path, &value)?;
        if path.is_empty() {
            self.root = value;
            return Ok(());
        }
        let (container, key) = self.container(path, "replace")?;
        match container {
            Value::Object(map) => {
                map.insert(key, value);
                Ok(())
            }
            Value::Array(list) => {
                match parse_index(&key, list.len()).and_then(|at| list.get_mut(at)) {
                    Some(slot) => {
                        *slot = value;
                        Ok(())
                    }
                    None => inapplicable_error(format!(
                        "replace operation does not apply: doc is missing key: {path}: missing value"
                    )),
                }
            }
            _ => bad_index("replace", path, &key),
        }
    }

    fn remove(&mut self, path: &str, kind: &str) -> Result<Value, PatchError> {
        let (container, key) = self.container(path, kind)?;
        let mut shifted = 0;
        let removed = match container {
            Value::Object(map) => map.remove(&key),
            Value::Array(list) => parse_index(&key, list.len()).map(|at| {
                shifted = list.len() - at;
                list.remove(at)
            }),
            _ => None,
        };
        self.spend(shifted)?;
        removed.map_or_else(
            || {
                inapplicable_error(format!(
                    "error in {kind} for path: '{path}': Unable to remove nonexistent key: {key}: missing value"
                ))
            },
            Ok,
        )
    }

    fn test(&self, path: &str, value: &Value) -> Result<(), PatchError> {
        // Controllers test for null to create a member only if it does not exist.
        if is_equal(self.get(path).unwrap_or(&Value::Null), value) {
            return Ok(());
        }
        inapplicable_error(format!("testing value {path} failed: test failed"))
    }
}

fn bad_index<T>(kind: &str, path: &str, key: &str) -> Result<T, PatchError> {
    inapplicable_error(format!(
        "error in {kind} for path: '{path}': Unable to access invalid index: {key}: invalid index referenced"
    ))
}

fn split_path(path: &str) -> Vec<String> {
    path.split('/')
        .skip(1)
        // In this order: `~01` is `~1` and not a slash (RFC 6901, section 4).
        .map(|part| part.replace("~1", "/").replace("~0", "~"))
        .collect()
}

fn parse_index(key: &str, length: usize) -> Option<usize> {
    let at: i64 = key.parse().ok()?;
    let length = i64::try_from(length).ok()?;
    // Upstream's library counts negative indexes from the end. RFC 6902 has none.
    let at = if at < 0 { at + length } else { at };
    usize::try_from(at).ok().filter(|_| at < length)
}

/// Compares JSON values; 1 and 1.0 are equal.
fn is_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_equal(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(key, a)| b.get(key).is_some_and(|b| is_equal(a, b)))
        }
        _ => a == b,
    }
}

/// Counts the values of a tree. Returns `None` if it is nested deeper than `levels`.
fn count_values(value: &Value, levels: usize) -> Option<usize> {
    let mut count = 1;
    match value {
        Value::Array(list) => {
            let below = levels.checked_sub(1)?;
            for item in list {
                count += count_values(item, below)?;
            }
        }
        Value::Object(map) => {
            let below = levels.checked_sub(1)?;
            for item in map.values() {
                count += count_values(item, below)?;
            }
        }
        _ => {}
    }
    Some(count)
}

/// Estimates the size of a value as JSON, in bytes.
fn measure_size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(list) => {
            2 + list
                .iter()
                .map(|item| measure_size(item) + 1)
                .sum::<usize>()
        }
        Value::Object(map) => {
            2 + map
                .iter()
                .map(|(key, item)| key.len() + 4 + measure_size(item))
                .sum::<usize>()
        }
        _ => 5,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn operations_apply_or_fail() {
        let check = |patch: Value, want: Option<Value>| {
            let got = json_patch(
                json!({"data": {"a": "1"}, "list": [1, 2]}),
                patch.to_string().as_bytes(),
            );
            assert_eq!(got.as_ref().ok(), want.as_ref(), "{patch} {got:?}");
        };
        let whole = |data: Value, list: Value| Some(json!({"data": data, "list": list}));
        check(
            json!([{"op": "add", "path": "/data/b", "value": "2"}]),
            whole(json!({"a": "1", "b": "2"}), json!([1, 2])),
        );
        check(
            json!([{"op": "replace", "path": "/data/b", "value": "2"}]),
            whole(json!({"a": "1", "b": "2"}), json!([1, 2])),
        );
        check(
            json!([{"op": "move", "from": "/data/a", "path": "/data/z~1y"}]),
            whole(json!({"z/y": "1"}), json!([1, 2])),
        );
        check(
            json!([{"op": "add", "path": "/list/-", "value": 3}]),
            whole(json!({"a": "1"}), json!([1, 2, 3])),
        );
        check(
            json!([{"op": "add", "path": "/list/0", "value": 0}]),
            whole(json!({"a": "1"}), json!([0, 1, 2])),
        );
        check(
            json!([{"op": "remove", "path": "/list/-1"}]),
            whole(json!({"a": "1"}), json!([1])),
        );
        check(
            json!([{"op": "test", "path": "/data/none", "value": null}]),
            whole(json!({"a": "1"}), json!([1, 2])),
        );
        check(
            json!([{"op": "test", "path": "/data/a", "value": "2"}]),
            None,
        );
        check(
            json!([{"op": "add", "path": "/none/a", "value": "2"}]),
            None,
        );
        check(json!([{"op": "remove", "path": "/data/none"}]), None);
        check(json!([{"op": "add", "path": "/list/9", "value": 1}]), None);
        check(json!([{"op": "bogus", "path": "/data/a"}]), None);
        check(json!([{"op": "add"}]), None);
    }

    #[test]
    fn limits_of_a_patch_are_enforced() {
        let many = json!(vec![
            json!({"op": "test", "path": "/a", "value": null});
            MAX_OPERATIONS + 1
        ]);
        assert!(matches!(
            json_patch(json!({}), many.to_string().as_bytes()),
            Err(PatchError::TooLarge(_))
        ));
        let copies: Vec<Value> = (0..60)
            .map(|n| json!({"op": "copy", "from": "/data", "path": format!("/data/a{n}")}))
            .collect();
        let outcome = json_patch(
            json!({"data": {"a": "1"}}),
            json!(copies).to_string().as_bytes(),
        );
        assert!(matches!(outcome, Err(PatchError::Inapplicable(_))));
        assert!(matches!(
            json_patch(json!({}), b"{}"),
            Err(PatchError::Malformed(_))
        ));
    }

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!(1), |value, _| json!({"a": value}))
    }

    #[test]
    fn copies_into_themselves_cannot_deepen_the_result_without_bound() {
        let mut patch = vec![json!({"op": "add", "path": "/x", "value": nested(60)})];
        let path = |levels: usize| format!("/x{}", "/a".repeat(levels));
        patch.extend((0..15).map(|n| json!({"op": "copy", "from": "/x", "path": path(60 << n)})));
        let outcome = json_patch(json!({}), json!(patch).to_string().as_bytes());
        assert!(matches!(outcome, Err(PatchError::TooLarge(_))));
    }

    #[test]
    fn depth_is_bounded_like_that_of_a_body() {
        let apply = |op: &str, levels: usize| {
            let patch =
                json!([{"op": op, "path": "/x/y/z/w", "value": nested(levels)}]).to_string();
            json_patch(json!({"x": {"y": {"z": {"w": 1}}}}), patch.as_bytes())
        };
        for op in ["add", "replace"] {
            assert!(apply(op, MAX_DEPTH - 4).is_ok(), "{op}");
            assert!(
                matches!(apply(op, MAX_DEPTH - 3), Err(PatchError::TooLarge(_))),
                "{op}"
            );
        }
    }

    #[test]
    fn inserts_at_the_front_of_a_long_array_are_bounded() {
        let long = json!({"list": vec![0; 500_000]});
        let inserts = json!(vec![
            json!({"op": "add", "path": "/list/0", "value": 1});
            100
        ])
        .to_string();
        assert!(matches!(
            json_patch(long, inserts.as_bytes()),
            Err(PatchError::TooLarge(_))
        ));
    }
}
