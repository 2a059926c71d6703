//! The order of merged lists: what the patch names keeps the patch's order, what only the server has keeps the server's,
//! and the two are merged by where the server had them.

use serde_json::Value;

/// Where an element stands in a list: by merge key, or by value when there is none.
pub(super) fn position(list: &[Value], item: &Value, key: &str) -> Option<usize> {
    list.iter().position(|other| same(other, item, key))
}

fn same(a: &Value, b: &Value, key: &str) -> bool {
    if key.is_empty() { a == b } else { a.get(key).is_some() && a.get(key) == b.get(key) }
}

/// Splits a list into what also stands in the other list, and the rest.
pub(super) fn partition(list: Vec<Value>, other: &[Value], key: &str) -> (Vec<Value>, Vec<Value>) {
    list.into_iter().partition(|item| position(other, item, key).is_some())
}

/// Joins the two parts in order.
pub(super) fn in_order(
    mut in_patch: Vec<Value>,
    server_only: Vec<Value>,
    patch_order: &[Value],
    server_order: &[Value],
    key: &str,
) -> Vec<Value> {
    in_patch.sort_by_key(|item| position(patch_order, item, key).unwrap_or(usize::MAX));
    let mut out = Vec::with_capacity(in_patch.len() + server_only.len());
    let mut patch = in_patch.into_iter().peekable();
    let mut server = server_only.into_iter().peekable();
    loop {
        let server_first = match (server.peek(), patch.peek()) {
            (None, None) => return out,
            (Some(left), Some(right)) => {
                let (left, right) = (position(server_order, left, key), position(server_order, right, key));
                matches!((left, right), (Some(left), Some(right)) if left < right)
            }
            (left, _) => left.is_some(),
        };
        out.extend(if server_first { server.next() } else { patch.next() });
    }
}
