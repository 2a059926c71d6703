//! The choice of attributes to index, by their use in lists and watches.
//!
//! An index costs memory for each object and time for each write, so that only attributes which
//! clients select by repeatedly have one, and only the last used ones.

use crate::attribute::Attribute;
use std::sync::Arc;

/// Maximum number of indexes of one kind: bounds their memory.
const MAX_INDEXES: usize = 6;
/// Maximum number of attributes whose use is recorded: clients may select by any label.
const MAX_RECORDED: usize = 32;
/// Use with which an attribute gets an index: one list would not repay it.
const INDEXED_FROM: u32 = 2;

#[derive(Debug)]
struct Use {
    attribute: Arc<Attribute>,
    count: u32,
    is_indexed: bool,
}

/// The attributes that selections have used, the last used ones last.
#[derive(Debug, Default)]
pub(crate) struct IndexUsage(Vec<Use>);

impl IndexUsage {
    /// Records that a selection uses an attribute; returns whether it should get an index.
    pub(crate) fn record_use(&mut self, attribute: Attribute) -> Option<Arc<Attribute>> {
        let known = self.0.iter().position(|used| *used.attribute == attribute);
        let mut used = match known {
            Some(at) => self.0.remove(at),
            None => {
                self.forget_oldest();
                Use {
                    attribute: Arc::new(attribute),
                    count: 0,
                    is_indexed: false,
                }
            }
        };
        used.count = used.count.saturating_add(1);
        let wanted = !used.is_indexed && used.count >= INDEXED_FROM;
        let attribute = used.attribute.clone();
        self.0.push(used);
        wanted.then_some(attribute)
    }

    fn forget_oldest(&mut self) {
        if self.0.len() >= MAX_RECORDED
            && let Some(at) = self.0.iter().position(|used| !used.is_indexed)
        {
            self.0.remove(at);
        }
    }

    /// Records that an attribute is indexed; returns the attribute whose index this replaces.
    pub(crate) fn begin_index(&mut self, attribute: Arc<Attribute>) -> Option<Arc<Attribute>> {
        let indexed = self.0.iter().filter(|used| used.is_indexed).count();
        let mut remove = None;
        if indexed >= MAX_INDEXES
            && let Some(oldest) = self.0.iter_mut().find(|used| used.is_indexed)
        {
            // Its count starts again, or two attributes in turn would be indexed with each use.
            (oldest.is_indexed, oldest.count) = (false, 0);
            remove = Some(oldest.attribute.clone());
        }
        match self.0.iter_mut().find(|used| used.attribute == attribute) {
            Some(used) => used.is_indexed = true,
            // Other uses replaced it while its index was built.
            None => self.0.push(Use {
                attribute,
                count: INDEXED_FROM,
                is_indexed: true,
            }),
        }
        remove
    }

    /// Records that there is no index any more.
    pub(crate) fn clear_indexes(&mut self) {
        self.0.iter_mut().for_each(|used| used.is_indexed = false);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn label(number: usize) -> Attribute {
        Attribute::Label(format!("l{number}").into())
    }

    /// Uses an attribute until it is indexed; returns the removed index.
    fn index_label(usage: &mut IndexUsage, number: usize) -> Option<Arc<Attribute>> {
        assert!(usage.record_use(label(number)).is_none());
        let wanted = usage.record_use(label(number)).unwrap();
        usage.begin_index(wanted)
    }

    #[test]
    fn second_use_makes_an_index() {
        let mut usage = IndexUsage::default();
        assert!(index_label(&mut usage, 1).is_none());
        assert!(usage.record_use(label(1)).is_none(), "it has an index");
        usage.clear_indexes();
        assert!(usage.record_use(label(1)).is_some());
    }

    #[test]
    fn least_recently_used_index_is_removed() {
        let mut usage = IndexUsage::default();
        for number in 0..MAX_INDEXES {
            assert!(index_label(&mut usage, number).is_none());
        }
        usage.record_use(label(0));
        assert_eq!(index_label(&mut usage, 99), Some(Arc::new(label(1))));
        assert!(
            usage.record_use(label(1)).is_none(),
            "its count starts again"
        );
    }

    #[test]
    fn recorded_uses_are_bounded() {
        let mut usage = IndexUsage::default();
        index_label(&mut usage, 0);
        for number in 1..1000 {
            usage.record_use(label(number));
        }
        assert_eq!(usage.0.len(), MAX_RECORDED);
        assert!(usage.record_use(label(0)).is_none(), "indexes are kept");
    }
}
