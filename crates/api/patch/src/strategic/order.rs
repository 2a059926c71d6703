//! Order of merged lists: elements named by the patch keep the patch's order, other elements keep
//! the server's order, and both are interleaved by their former positions.

use serde_json::Value;
use std::collections::HashMap;

/// Positions of a list's elements, by merge key, or by value without one. A lookup takes constant
/// time.
pub(super) struct Positions<'a> {
    by_identity: HashMap<&'a Value, usize>,
    key: &'a str,
}

impl<'a> Positions<'a> {
    /// Indexes a list. The first of several equal elements counts.
    pub(super) fn read(list: &'a [Value], key: &'a str) -> Self {
        let mut by_identity = HashMap::with_capacity(list.len());
        for (at, item) in list.iter().enumerate() {
            if let Some(identity) = merge_key_value(item, key) {
                by_identity.entry(identity).or_insert(at);
            }
        }
        Positions { by_identity, key }
    }

    /// Returns the position of the element with the same identity as `item`.
    pub(super) fn find(&self, item: &Value) -> Option<usize> {
        self.by_identity
            .get(merge_key_value(item, self.key)?)
            .copied()
    }
}

fn merge_key_value<'v>(item: &'v Value, key: &str) -> Option<&'v Value> {
    if key.is_empty() {
        Some(item)
    } else {
        item.get(key)
    }
}

/// Splits a list into elements that the other list contains too, and the rest.
pub(super) fn partition_items(
    list: Vec<Value>,
    other: &[Value],
    key: &str,
) -> (Vec<Value>, Vec<Value>) {
    let other = Positions::read(other, key);
    list.into_iter()
        .partition(|item| other.find(item).is_some())
}

/// Joins both parts in order.
pub(super) fn in_order(
    mut in_patch: Vec<Value>,
    server_only: Vec<Value>,
    patch_order: &[Value],
    server_order: &[Value],
    key: &str,
) -> Vec<Value> {
    let (patch_order, server_order) = (
        Positions::read(patch_order, key),
        Positions::read(server_order, key),
    );
    in_patch.sort_by_key(|item| patch_order.find(item).unwrap_or(usize::MAX));
    let mut out = Vec::with_capacity(in_patch.len() + server_only.len());
    let mut patch = in_patch.into_iter().peekable();
    let mut server = server_only.into_iter().peekable();
    loop {
        let server_first = match (server.peek(), patch.peek()) {
            (None, None) => return out,
            (Some(left), Some(right)) => {
                let (left, right) = (server_order.find(left), server_order.find(right));
                matches!((left, right), (Some(left), Some(right)) if left < right)
            }
            (left, _) => left.is_some(),
        };
        out.extend(if server_first {
            server.next()
        } else {
            patch.next()
        });
    }
}
