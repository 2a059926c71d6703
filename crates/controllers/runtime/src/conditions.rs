//! Conditions of the type that all new kinds share (`metav1.Condition`). Most older kinds have
//! types of their own, with other fields.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// Sets a condition, as upstream's `meta.SetStatusCondition`: there is one of each type, and its
/// transition time changes only with its status.
pub fn set_condition(all: &mut Vec<Condition>, mut fresh: Condition) {
    let known = all.iter_mut().find(|known| known.type_ == fresh.type_);
    let Some(known) = known else {
        all.push(fresh);
        return;
    };
    if known.status == fresh.status {
        fresh.last_transition_time = known.last_transition_time.clone();
    }
    *known = fresh;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::time::api_time;

    fn condition(kind: &str, status: &str, reason: &str, time: &str) -> Condition {
        Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: format!("message of {reason}"),
            observed_generation: Some(1),
            last_transition_time: api_time(time.parse().unwrap()),
        }
    }

    #[test]
    fn transition_time_changes_with_the_status_only() {
        const FIRST: &str = "2026-01-01T00:00:00Z";
        const SECOND: &str = "2026-01-02T00:00:00Z";
        let other = condition("Other", "True", "R", FIRST);
        let known = condition("Ready", "True", "R", FIRST);
        for (before, fresh, expect) in [
            (
                vec![other.clone()],
                condition("Ready", "True", "R", SECOND),
                vec![other.clone(), condition("Ready", "True", "R", SECOND)],
            ),
            (
                vec![known.clone(), other.clone()],
                condition("Ready", "True", "S", SECOND),
                vec![condition("Ready", "True", "S", FIRST), other.clone()],
            ),
            (
                vec![known, other.clone()],
                condition("Ready", "False", "R", SECOND),
                vec![condition("Ready", "False", "R", SECOND), other],
            ),
        ] {
            let mut all = before.clone();
            set_condition(&mut all, fresh.clone());
            assert_eq!(all, expect, "{before:?} {fresh:?}");
        }
    }
}
