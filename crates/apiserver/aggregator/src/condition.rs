//! The condition `Available`.

use api_meta::time;
use api_meta::tree::{get, list, text};
use serde_json::{Value, json};

const TYPE: &str = "Available";

/// A state of the condition `Available`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// True if the group version is served.
    pub status: bool,
    /// One word.
    pub reason: &'static str,
    /// Text.
    pub message: String,
}

impl Condition {
    /// Returns the condition of a group version that this server has.
    pub fn local() -> Self {
        Condition {
            status: true,
            reason: "Local",
            message: "Local APIServices are always available".into(),
        }
    }

    /// Returns the condition of an extension server that responds.
    pub fn passed() -> Self {
        Condition {
            status: true,
            reason: "Passed",
            message: "all checks passed".into(),
        }
    }

    /// Returns the condition of an extension server that can't serve.
    pub fn failed(reason: &'static str, message: String) -> Self {
        Condition {
            status: false,
            reason,
            message,
        }
    }

    fn status_text(&self) -> &'static str {
        if self.status { "True" } else { "False" }
    }

    /// Returns whether an object has this condition already.
    pub fn is_set(&self, service: &Value) -> bool {
        available_condition(service).is_some_and(|found| {
            text(found, "status") == self.status_text()
                && text(found, "reason") == self.reason
                && text(found, "message") == self.message
        })
    }
}

/// Returns the condition of an APIService.
pub fn available_condition(service: &Value) -> Option<&Value> {
    list(get(service, "status"), "conditions")
        .iter()
        .find(|condition| text(condition, "type") == TYPE)
}

/// Returns the object with the condition; others of its conditions stay.
pub fn set_condition(service: &Value, condition: &Condition) -> Value {
    let old = available_condition(service);
    let status = condition.status_text();
    // The time is that of the last change of the status, not of the reason.
    let since = old
        .filter(|old| text(old, "status") == status)
        .map(|old| text(old, "lastTransitionTime").to_owned())
        .filter(|since| !since.is_empty())
        .unwrap_or_else(time::now);
    let mut all: Vec<Value> = list(get(service, "status"), "conditions")
        .iter()
        .filter(|other| text(other, "type") != TYPE)
        .cloned()
        .collect();
    all.push(
        json!({"type": TYPE, "status": status, "reason": condition.reason,
        "message": condition.message, "lastTransitionTime": since}),
    );
    let mut new = service.clone();
    new["status"] = json!({"conditions": all});
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_changes_with_the_status_only() {
        let service = json!({"status": {"conditions": [{"type": "Available", "status": "False",
            "reason": "a", "lastTransitionTime": "2020-01-01T00:00:00Z"}, {"type": "Other"}]}});
        let other = set_condition(&service, &Condition::failed("b", "m".into()));
        let found = available_condition(&other).unwrap_or(&Value::Null);
        assert_eq!(found["lastTransitionTime"], "2020-01-01T00:00:00Z");
        assert_eq!(found["reason"], "b");
        assert_eq!(list(&other["status"], "conditions").len(), 2);
        let passed = set_condition(&service, &Condition::passed());
        let found = available_condition(&passed).unwrap_or(&Value::Null);
        assert_ne!(found["lastTransitionTime"], "2020-01-01T00:00:00Z");
    }

    #[test]
    fn equal_condition_is_recognised() {
        let service = set_condition(&json!({}), &Condition::local());
        assert!(Condition::local().is_set(&service));
        assert!(!Condition::passed().is_set(&service));
        assert!(!Condition::local().is_set(&json!({})));
    }
}
