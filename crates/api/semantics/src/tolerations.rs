//! Tolerations and taints, as upstream's `Toleration.ToleratesTaint`.
//!
//! The operators Gt and Lt match nothing: they are behind the feature gate
//! `TaintTolerationComparisonOperators`, which is off in Kubernetes 1.36, and validation rejects
//! them.

use k8s_openapi::api::core::v1::{Taint, Toleration};

/// Returns whether a toleration tolerates a taint. An empty effect or key matches each effect or
/// key.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    if !effect.is_empty() && effect != taint.effect || !key.is_empty() && key != taint.key {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => {
            toleration.value.as_deref().unwrap_or_default()
                == taint.value.as_deref().unwrap_or_default()
        }
        // With an empty key this tolerates every taint, which pods of a node's infrastructure need.
        "Exists" => true,
        _ => false,
    }
}

/// Returns the first toleration that tolerates a taint.
pub fn find_toleration<'t>(tolerations: &'t [Toleration], taint: &Taint) -> Option<&'t Toleration> {
    tolerations
        .iter()
        .find(|toleration| tolerates(toleration, taint))
}

/// Returns whether any of the tolerations tolerates a taint.
pub fn any_tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    find_toleration(tolerations, taint).is_some()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::Value;

    #[test]
    fn tolerations_follow_the_table() {
        let cases: Vec<Value> = serde_json::from_str(crate::cases::TOLERATIONS).unwrap();
        for case in cases {
            let taint: Taint = serde_json::from_value(case["taint"].clone()).unwrap();
            let toleration: Toleration =
                serde_json::from_value(case["toleration"].clone()).unwrap();
            assert_eq!(tolerates(&toleration, &taint), case["tolerates"], "{case}");
        }
    }
}
