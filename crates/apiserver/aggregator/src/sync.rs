//! The write that brings one APIService to the desired state.

use crate::local::{ALWAYS, MANAGED, ON_START};
use api_meta::Meta;
use api_meta::tree::get;
use serde_json::Value;

/// A write that brings an APIService to the desired state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    None,
    /// Create the desired object.
    Create,
    /// Replace the spec.
    Update,
    /// Delete the object.
    Delete,
}

/// Decides about one APIService. `at_start` is true until the first round has succeeded: objects of
/// built-in groups are only then changed, so that an operator may replace them later.
pub fn plan_sync(desired: Option<&Value>, current: Option<&Value>, at_start: bool) -> Action {
    let label = |object: &Value| object.label(MANAGED).unwrap_or_default().to_owned();
    let skipped = |label: &str| label == ON_START && !at_start;
    // Also if it was deleted: the operator's change lasts until the next start.
    if desired.is_some_and(|desired| skipped(&label(desired))) {
        return Action::None;
    }
    let (desired, current) = match (desired, current) {
        (None, None) => return Action::None,
        (Some(_), None) => return Action::Create,
        (desired, Some(current)) => (desired, current),
    };
    let label = label(current);
    // Without the label, it is of an operator or an extension, even with the same name.
    if ![ON_START, ALWAYS].contains(&label.as_str()) || skipped(&label) {
        return Action::None;
    }
    match desired {
        None => Action::Delete,
        // As upstream, only the spec is compared: labels and annotations may be of others.
        Some(desired) if get(desired, "spec") == get(current, "spec") => Action::None,
        Some(_) => Action::Update,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn service(label: &str, priority: i64) -> Value {
        json!({"metadata": {"name": "v1.g", "labels": {MANAGED: label}}, "spec": {"versionPriority": priority}})
    }

    #[test]
    fn api_service_is_kept_as_its_label_says() {
        let of = |label: &str| (!label.is_empty()).then(|| service(label, 1));
        for (desired, current, at_start, expect) in [
            ("", "", true, Action::None),
            ("onstart", "", true, Action::Create),
            ("onstart", "", false, Action::None),
            ("true", "", false, Action::Create),
            ("", "true", false, Action::Delete),
            ("", "onstart", true, Action::Delete),
            ("", "onstart", false, Action::None),
            ("true", "true", false, Action::None),
            ("", "other", true, Action::None),
        ] {
            let found = plan_sync(of(desired).as_ref(), of(current).as_ref(), at_start);
            assert_eq!(found, expect, "{desired:?} {current:?} {at_start}");
        }
    }

    #[test]
    fn object_without_the_label_belongs_to_its_operator() {
        let desired = service("true", 1);
        let own = json!({"metadata": {"name": "v1.g"}, "spec": {"versionPriority": 9}});
        assert_eq!(plan_sync(Some(&desired), Some(&own), true), Action::None);
        assert_eq!(plan_sync(None, Some(&own), true), Action::None);
    }

    #[test]
    fn changed_spec_is_restored() {
        let (desired, current) = (service("true", 1), service("true", 2));
        assert_eq!(
            plan_sync(Some(&desired), Some(&current), false),
            Action::Update
        );
    }
}
