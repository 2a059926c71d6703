//! Decoded objects that stay in memory: admission reads the same few namespaces, service accounts
//! and priority classes for each request.

use serde_json::Value;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Maximum memory of the kept trees of a kind, in bytes.
const LIMIT: usize = 4 * 1024 * 1024;
/// Memory of a node of a map, which has up to 11 entries.
const MAP_NODE: usize = 640;
/// Entries of a node if every second place is taken.
const NODE_ENTRIES: usize = 5;

/// The memory that kept trees of a kind occupy.
#[derive(Clone, Debug, Default)]
pub(crate) struct TreeBudget(Arc<AtomicUsize>);

impl TreeBudget {
    /// Reserves this number of bytes, unless that exceeds the limit.
    fn reserve(&self, size: usize) -> Option<ReservedMemory> {
        let before = self.0.fetch_add(size, Ordering::Relaxed);
        // Its drop releases the memory if it is not returned.
        let reserved = ReservedMemory {
            budget: self.clone(),
            size,
        };
        (before.saturating_add(size) <= LIMIT).then_some(reserved)
    }
}

/// Memory of a budget, released when it is dropped.
#[derive(Debug)]
struct ReservedMemory {
    budget: TreeBudget,
    size: usize,
}

impl Drop for ReservedMemory {
    fn drop(&mut self) {
        self.budget.0.fetch_sub(self.size, Ordering::Relaxed);
    }
}

/// The tree of an object, if it was read and there was memory for it.
// A box, so that an entry without a tree is small.
#[derive(Debug, Default)]
pub(crate) struct KeptTree(OnceLock<Box<(Arc<Value>, ReservedMemory)>>);

impl KeptTree {
    /// Returns the tree, or decodes it and keeps it if the budget allows.
    pub(crate) fn get_or_decode<E>(
        &self,
        budget: &TreeBudget,
        decode: impl FnOnce() -> Result<Value, E>,
    ) -> Result<Arc<Value>, E> {
        if let Some(kept) = self.0.get() {
            return Ok(kept.0.clone());
        }
        let tree = Arc::new(decode()?);
        if let Some(reserved) = budget.reserve(estimate_memory(&tree)) {
            self.0.get_or_init(|| Box::new((tree.clone(), reserved)));
        }
        Ok(tree)
    }

    /// Returns whether there is a tree.
    pub(crate) fn is_kept(&self) -> bool {
        self.0.get().is_some()
    }
}

/// Estimates the memory of a tree. Small objects of a list take many times their stored bytes, so
/// those say nothing.
fn estimate_memory(tree: &Value) -> usize {
    let content = match tree {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(estimate_memory).sum(),
        Value::Object(members) => {
            let members_size: usize = members
                .iter()
                .map(|(name, value)| name.len() + estimate_memory(value))
                .sum();
            members_size + (members.len() / NODE_ENTRIES + 1) * MAP_NODE
        }
    };
    content + size_of::<Value>()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::convert::Infallible;

    fn decode() -> Result<Value, Infallible> {
        Ok(Value::Null)
    }

    #[test]
    fn tree_is_decoded_once() {
        let (kept, budget) = (KeptTree::default(), TreeBudget::default());
        let first = kept.get_or_decode(&budget, decode).unwrap();
        let again = kept
            .get_or_decode(&budget, || Err("decoded again"))
            .unwrap();
        assert!(Arc::ptr_eq(&first, &again));
    }

    #[test]
    fn trees_beyond_the_limit_are_not_kept_until_others_end() {
        let budget = TreeBudget::default();
        let (first, second) = (KeptTree::default(), KeptTree::default());
        let large = || Ok::<_, Infallible>(Value::String("x".repeat(LIMIT - 100)));
        let other = || Ok::<_, Infallible>(Value::String("x".repeat(100)));
        first.get_or_decode(&budget, large).unwrap();
        second.get_or_decode(&budget, other).unwrap();
        assert!(first.is_kept() && !second.is_kept());
        drop(first);
        second.get_or_decode(&budget, other).unwrap();
        assert!(second.is_kept());
        drop(second);
        assert_eq!(budget.0.load(Ordering::Relaxed), 0);
    }

    /// 100,000 references of a few bytes each would take 70 MB.
    #[test]
    fn tree_of_many_small_objects_is_not_kept() {
        let (kept, budget) = (KeptTree::default(), TreeBudget::default());
        let references = vec![serde_json::json!({"name": "x"}); 10_000];
        let decode = || Ok::<_, Infallible>(Value::Array(references));
        kept.get_or_decode(&budget, decode).unwrap();
        assert!(!kept.is_kept());
    }
}
