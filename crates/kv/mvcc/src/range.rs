//! Range requests: selects, sorts, filters and limits pairs.

use crate::error::MvccError;
use crate::index::Index;
use crate::revision::Mark;
use crate::span::Span;
use bytes::Bytes;
use proto_etcd::etcdserverpb::range_request::{SortOrder, SortTarget};
use proto_etcd::etcdserverpb::{RangeRequest, RangeResponse};
use proto_etcd::mvccpb::KeyValue;

/// Revisions of the selected pairs, and the total number of keys.
pub(crate) struct IndexSelection {
    pub found: Vec<(Mark, Option<Bytes>)>,
    pub count: i64,
}

/// Returns target and order of a request's sorting.
fn sort_order(request: &RangeRequest) -> Result<Option<(SortTarget, SortOrder)>, MvccError> {
    let target = SortTarget::try_from(request.sort_target).map_err(|_| MvccError::InvalidSort)?;
    let order = SortOrder::try_from(request.sort_order).map_err(|_| MvccError::InvalidSort)?;
    // The index is in the order of keys already. Any other target without an order is sorted
    // ascending, as in etcd.
    Ok(match (target, order) {
        (SortTarget::Key, SortOrder::None | SortOrder::Ascend) => None,
        (target, SortOrder::None) => Some((target, SortOrder::Ascend)),
        (target, order) => Some((target, order)),
    })
}

fn has_filter(request: &RangeRequest) -> bool {
    request.min_mod_revision != 0
        || request.max_mod_revision != 0
        || request.min_create_revision != 0
        || request.max_create_revision != 0
}

/// Returns whether the limit applies only after all pairs were read.
pub(crate) fn needs_all(request: &RangeRequest) -> bool {
    has_filter(request) || !matches!(sort_order(request), Ok(None))
}

/// Validates a request.
pub(crate) fn check_range(request: &RangeRequest) -> Result<(), MvccError> {
    if request.key.is_empty() {
        return Err(MvccError::EmptyKey);
    }
    sort_order(request).map(drop)
}

/// Selects the keys of a range at a revision, up to the limit unless that applies later.
pub(crate) fn select_keys(index: &Index, request: &RangeRequest, revision: i64) -> IndexSelection {
    // A filter or a sort order can remove or replace any pair, so the limit applies after them, as
    // in etcd.
    let all = needs_all(request);
    let limit = match usize::try_from(request.limit) {
        Ok(limit) if limit > 0 && !all => limit,
        _ => usize::MAX,
    };
    let mut selection = IndexSelection {
        found: Vec::new(),
        count: 0,
    };
    index.visit_items(Span::new(&request.key, &request.range_end), |_, item| {
        let Some(mark) = item.mark_at(revision) else {
            return true;
        };
        selection.count += 1;
        if !request.count_only && selection.found.len() < limit {
            let record = if mark == item.last {
                item.cached_record().cloned()
            } else {
                None
            };
            selection.found.push((mark, record));
        }
        true
    });
    selection
}

/// Sorts, filters and limits the pairs of a selection.
pub(crate) fn build_response(
    request: &RangeRequest,
    mut kvs: Vec<KeyValue>,
    count: i64,
) -> Result<RangeResponse, MvccError> {
    if has_filter(request) {
        kvs.retain(|kv| passes_filter(request, kv));
    }
    if let Some((target, direction)) = sort_order(request)? {
        sort_pairs(&mut kvs, target, direction);
    }
    let limit = usize::try_from(request.limit).unwrap_or(0);
    let cut = limit > 0 && kvs.len() > limit;
    if cut {
        kvs.truncate(limit);
    }
    let selected_fewer = limit > 0 && !has_filter(request) && count > kvs.len() as i64;
    if request.keys_only {
        for kv in &mut kvs {
            kv.value = Bytes::new();
        }
    }
    let more = !request.count_only && (cut || selected_fewer);
    Ok(RangeResponse {
        header: None,
        kvs,
        more,
        count,
    })
}

fn passes_filter(request: &RangeRequest, kv: &KeyValue) -> bool {
    let within =
        |value: i64, min: i64, max: i64| (min == 0 || value >= min) && (max == 0 || value <= max);
    within(
        kv.mod_revision,
        request.min_mod_revision,
        request.max_mod_revision,
    ) && within(
        kv.create_revision,
        request.min_create_revision,
        request.max_create_revision,
    )
}

fn sort_pairs(kvs: &mut [KeyValue], target: SortTarget, direction: SortOrder) {
    let compare = |a: &KeyValue, b: &KeyValue| match target {
        SortTarget::Key => a.key.cmp(&b.key),
        SortTarget::Version => a.version.cmp(&b.version),
        SortTarget::Create => a.create_revision.cmp(&b.create_revision),
        SortTarget::Mod => a.mod_revision.cmp(&b.mod_revision),
        SortTarget::Value => a.value.cmp(&b.value),
    };
    // Equal pairs remain in the order of their keys in both directions, as in etcd.
    match direction {
        SortOrder::Descend => kvs.sort_by(|a, b| compare(b, a)),
        SortOrder::None | SortOrder::Ascend => kvs.sort_by(compare),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorting_keeps_equal_pairs_in_order_of_keys() {
        let pairs = [("a", 1), ("b", 2), ("c", 1), ("d", 2)];
        for (direction, expect) in [(SortOrder::Ascend, "acbd"), (SortOrder::Descend, "bdac")] {
            let pair = |(key, version): &(&'static str, i64)| KeyValue {
                key: (*key).into(),
                version: *version,
                ..KeyValue::default()
            };
            let mut kvs: Vec<KeyValue> = pairs.iter().map(pair).collect();
            sort_pairs(&mut kvs, SortTarget::Version, direction);
            let keys: Vec<u8> = kvs.iter().flat_map(|kv| kv.key.to_vec()).collect();
            assert_eq!(String::from_utf8_lossy(&keys), expect, "{direction:?}");
        }
    }
}
