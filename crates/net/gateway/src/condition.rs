//! Conditions of statuses, and their comparison with the stored ones.

use serde_json::{Value, json};

/// Decision about one aspect of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Type of the condition.
    pub kind: &'static str,
    /// Status of the condition.
    pub holds: bool,
    /// Reason of the condition.
    pub reason: &'static str,
    /// Explanation for the author of the object.
    pub message: String,
}

impl Verdict {
    /// Returns a condition that is true.
    pub fn holds(kind: &'static str, reason: &'static str) -> Self {
        Self {
            kind,
            holds: true,
            reason,
            message: String::new(),
        }
    }

    /// Returns a condition that is false.
    pub fn fails(kind: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            kind,
            holds: false,
            reason,
            message: message.into(),
        }
    }
}

/// Returns conditions in the form of `metav1.Condition`. The transition time of a stored condition
/// with the same status remains; conditions of other writers are not returned.
pub fn compute_conditions(
    verdicts: &[Verdict],
    stored: &Value,
    generation: i64,
    now: &str,
) -> Value {
    let stored = stored.as_array().map(Vec::as_slice).unwrap_or_default();
    let write = |verdict: &Verdict| {
        let status = if verdict.holds { "True" } else { "False" };
        let known = stored
            .iter()
            .find(|known| known["type"] == verdict.kind && known["status"] == status);
        let since = known
            .and_then(|known| known["lastTransitionTime"].as_str())
            .unwrap_or(now);
        json!({
            "type": verdict.kind,
            "status": status,
            "reason": verdict.reason,
            // The API limits messages to 32 KiB.
            "message": verdict.message.chars().take(1024).collect::<String>(),
            "observedGeneration": generation,
            "lastTransitionTime": since,
        })
    };
    verdicts.iter().map(write).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transition_time_changes_with_the_status_only() {
        const OLD: &str = "2026-01-01T00:00:00Z";
        const NEW: &str = "2026-01-02T00:00:00Z";
        let stored = json!([{"type": "Accepted", "status": "True", "lastTransitionTime": OLD}]);
        for (verdict, stored, want) in [
            (Verdict::holds("Accepted", "Other"), &stored, OLD),
            (Verdict::fails("Accepted", "Other", "x"), &stored, NEW),
            (Verdict::holds("Programmed", "Programmed"), &stored, NEW),
            (Verdict::holds("Accepted", "Accepted"), &Value::Null, NEW),
        ] {
            let written = compute_conditions(std::slice::from_ref(&verdict), stored, 3, NEW);
            assert_eq!(written[0]["lastTransitionTime"], want, "{verdict:?}");
            assert_eq!(written[0]["observedGeneration"], 3);
        }
    }
}
