//! Fields of StatefulSets that belong to features which are off by default.

use api_meta::tree::remove;
use serde_json::Value;

const ROLLING_UPDATE: &str = "/spec/updateStrategy/rollingUpdate";
const FIELD: &str = "maxUnavailable";

/// Drops `maxUnavailable` unless the old object has it: MaxUnavailableStatefulSet is off by default
/// in v1.36, and clients of such a server see the field removed.
pub(crate) fn drop_disabled_fields(new: &mut Value, old: Option<&Value>) {
    let is_used = |old: &Value| {
        let rolling = old.pointer(ROLLING_UPDATE);
        rolling.is_some_and(|rolling| rolling.get(FIELD).is_some_and(|v| !v.is_null()))
    };
    if !old.is_some_and(is_used)
        && let Some(rolling) = new.pointer_mut(ROLLING_UPDATE)
    {
        remove(rolling, FIELD);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn maximum_is_dropped_unless_it_is_in_use() {
        let set = |max: Value| json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 1, "maxUnavailable": max}}}});
        let none = json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 1}}}});
        for (old, expect) in [
            (None, none.clone()),
            (Some(none.clone()), none.clone()),
            (Some(json!({})), none.clone()),
            (Some(set(json!(1))), set(json!(2))),
        ] {
            let mut new = set(json!(2));
            drop_disabled_fields(&mut new, old.as_ref());
            assert_eq!(new, expect, "{old:?}");
        }
    }
}
