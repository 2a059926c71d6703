//! Target: JSON patches, merge patches and strategic merge patches.

use crate::choices::Choices;
use crate::typed::{build_object, pick_message};
use crate::values::{MAX_DEPTH, NAMES, build_members, build_value, measure_depth};
use api_patch::{json_patch, merge_patch, strategic_merge};
use serde_json::{Value, json};

/// Applies a patch of each format.
///
/// # Panics
/// If a result is deeper than a document may be, or than object and patch are.
pub fn run_patch(data: &[u8]) {
    let mut choices = Choices::new(data);
    match choices.below(3) {
        0 => run_json_patch(&mut choices),
        1 => run_merge_patch(&mut choices),
        _ => run_strategic_merge(&mut choices),
    }
}

fn run_json_patch(choices: &mut Choices<'_>) {
    let object = Value::Object(build_members(choices, MAX_DEPTH - 1));
    let mut operations = Vec::new();
    for _ in 0..choices.below(40) {
        operations.push(json!({
            "op": choices.pick(&["add", "remove", "replace", "move", "copy", "test", "odd"]),
            "path": build_pointer(choices),
            "from": build_pointer(choices),
            "value": build_value(choices, 8),
        }));
        // Copies of copies grow fastest.
        if choices.hits(6) {
            let copy = json!({"op": "copy", "from": "/a", "path": "/a/a"});
            operations.extend(std::iter::repeat_n(copy, choices.below(300)));
        }
    }
    if let Ok(patched) = json_patch(object, json!(operations).to_string().as_bytes()) {
        assert!(
            measure_depth(&patched) <= MAX_DEPTH,
            "too deep: {operations:?}"
        );
    }
}

fn build_pointer(choices: &mut Choices<'_>) -> String {
    let mut pointer = String::new();
    for _ in 0..choices.below(5) {
        pointer.push('/');
        if choices.hits(3) {
            pointer.push_str(choices.pick(&["0", "1", "-", "-1", "99999999999999999999", "00"]));
        } else {
            let name = choices.pick(&NAMES);
            pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
        }
    }
    pointer
}

fn run_merge_patch(choices: &mut Choices<'_>) {
    let object = build_value(choices, MAX_DEPTH);
    let patch = build_value(choices, MAX_DEPTH);
    let depth = measure_depth(&object).max(measure_depth(&patch));
    let patched = merge_patch(object, &patch);
    assert!(measure_depth(&patched) <= depth, "too deep: {patch}");
    // RFC 7386: nothing is left to change.
    assert_eq!(
        merge_patch(patched.clone(), &patch),
        patched,
        "patched twice: {patch}"
    );
}

fn run_strategic_merge(choices: &mut Choices<'_>) {
    let Some(message) = pick_message(choices) else {
        return;
    };
    let object = build_object(choices, message, 9, false);
    let patch = build_object(choices, message, 9, true);
    let depth = measure_depth(&object).max(measure_depth(&patch));
    if let Ok(patched) = strategic_merge(message, object, &patch) {
        assert!(measure_depth(&patched) <= depth.max(1), "too deep: {patch}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choices::random_bytes;

    #[test]
    fn some_patches_of_each_format_apply() {
        let mut applied = [0; 2];
        for seed in 0..500 {
            let bytes = random_bytes(seed);
            let mut choices = Choices::new(&bytes);
            let pointer = build_pointer(&mut choices);
            let operations = json!([{"op": "add", "path": pointer, "value": 1}]);
            let object = json!({"a": {"b": {}}, "c": [1], "spec": {}});
            let patched = json_patch(object, operations.to_string().as_bytes());
            applied[0] += usize::from(patched.is_ok());
            let Some(message) = pick_message(&mut choices) else {
                continue;
            };
            let object = build_object(&mut choices, message, 9, false);
            let patch = build_object(&mut choices, message, 9, true);
            applied[1] += usize::from(strategic_merge(message, object, &patch).is_ok());
        }
        assert!(applied.iter().all(|count| *count > 50), "{applied:?}");
    }
}
