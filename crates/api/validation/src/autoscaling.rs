//! HorizontalPodAutoscalers of the versions v1 and v2.

mod metrics;
mod reference;

use self::metrics::validate_metrics;
use self::reference::{VersionRule, find_version_problem, validate_reference};
use crate::field::{Errors, Path};
use crate::kind_rules::Rules;
use crate::metadata::NameRule;
use crate::rules;
use api_meta::tree::{get, has, int, list, text};
use serde_json::{Value, json};

pub const AUTOSCALER: Rules = Rules {
    name: NameRule::Subdomain,
    create: |new, errors| validate_autoscaler(new, None, errors),
    update: |new, old, errors| validate_autoscaler(new, Some(old), errors),
    sub: |_, new, _, errors| {
        let path = Path::ROOT.child("status");
        for field in ["currentReplicas", "desiredReplicas"] {
            rules::validate_non_negative(get(new, "status"), field, &path, errors);
        }
    },
};

// The limits bound the history that the controller keeps in memory.
const LONGEST_WINDOW: i64 = 3600;
const LONGEST_PERIOD: i64 = 1800;

fn validate_autoscaler(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    let old = old.map(|old| get(old, "spec"));
    validate_replicas(spec, old, &path, errors);
    let reference = get(spec, "scaleTargetRef");
    let rule = select_target_rule(reference, old);
    validate_reference(reference, rule, &path.child("scaleTargetRef"), errors);
    let has_bad_metric = old.is_some_and(|old| {
        // One malformed version in the old metrics exempts all, because metrics have no identity
        // across updates.
        list(old, "metrics").iter().any(|metric| {
            let described = get(get(metric, "object"), "describedObject");
            find_version_problem(text(described, "apiVersion"), VersionRule::Any).is_some()
        })
    });
    let rule = match has_bad_metric {
        true => VersionRule::Unchecked,
        false => VersionRule::Any,
    };
    validate_metrics(
        &list_metrics(spec),
        int(spec, "minReplicas"),
        rule,
        &path,
        errors,
    );
    let at = path.child("behavior");
    for field in ["scaleUp", "scaleDown"] {
        let rules = get(get(spec, "behavior"), field);
        if !rules.is_null() {
            validate_scaling_rules(rules, &at.child(field), errors);
        }
    }
}

/// Returns the metrics of the version v2. In v1 there is one field for the CPU, which upstream
/// converts first, so that errors have the path of v2.
fn list_metrics(spec: &Value) -> Vec<Value> {
    let mut all = list(spec, "metrics").to_vec();
    if let Some(percent) = int(spec, "targetCPUUtilizationPercentage") {
        let target = json!({"type": "Utilization", "averageUtilization": percent});
        let resource = json!({"name": "cpu", "target": target});
        all.push(json!({"type": "Resource", "resource": resource}));
    }
    all
}

fn validate_replicas(spec: &Value, old: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    let (min, max) = (
        int(spec, "minReplicas"),
        int(spec, "maxReplicas").unwrap_or(0),
    );
    // Zero needs HPAScaleToZero, an alpha feature of v1.36; an object that has it keeps it.
    let lowest = match old.and_then(|old| int(old, "minReplicas")) {
        Some(0) => 0,
        _ => 1,
    };
    if let Some(min) = min.filter(|n| *n < lowest) {
        let detail = format!("must be greater than or equal to {lowest}");
        errors.invalid(&path.child("minReplicas"), min, detail);
    }
    let at = path.child("maxReplicas");
    // Absent and zero are the same for Go clients, so upstream reports a missing value.
    if max == 0 {
        errors.required(&at, "must be set and greater than 0");
    } else if max < 0 {
        errors.invalid(&at, max, "must be greater than or equal to 1");
    }
    // Absent means one replica here, which any valid maximum reaches.
    if min.is_some_and(|min| max < min) {
        errors.invalid(&at, max, "must be greater than or equal to `minReplicas`");
    }
}

fn select_target_rule(reference: &Value, old: Option<&Value>) -> VersionRule {
    let is_same = |old: &Value| {
        ["apiVersion", "kind"]
            .iter()
            .all(|field| text(get(old, "scaleTargetRef"), field) == text(reference, field))
    };
    if old.is_some_and(is_same) {
        VersionRule::Unchecked
    // The only kind of the core group with the scale subresource.
    } else if text(reference, "kind") == "ReplicationController" {
        VersionRule::Any
    } else {
        VersionRule::Group
    }
}

fn validate_scaling_rules(scaling: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(n) = int(scaling, "stabilizationWindowSeconds") {
        let at = path.child("stabilizationWindowSeconds");
        if n < 0 {
            errors.invalid(&at, n, "must be greater than or equal to zero");
        } else if n > LONGEST_WINDOW {
            let detail = format!("must be less than or equal to {LONGEST_WINDOW}");
            errors.invalid(&at, n, detail);
        }
    }
    let known = ["Disabled", "Max", "Min"];
    rules::validate_one_of(scaling, "selectPolicy", &known, path, errors);
    // Without a policy the controller could never change the replicas; to stop it, `selectPolicy`
    // is `Disabled`.
    let (policies, at) = (list(scaling, "policies"), path.child("policies"));
    if policies.is_empty() {
        errors.required(&at, "must specify at least one Policy");
    }
    for (i, policy) in policies.iter().enumerate() {
        validate_scaling_policy(policy, &at.index(i), errors);
    }
    // A negative tolerance would make the controller scale at each evaluation, even without a
    // deviation.
    if has(scaling, "tolerance")
        && rules::read_quantity(scaling, "tolerance").is_some_and(|q| q.is_negative())
    {
        let shown = get(scaling, "tolerance").clone();
        errors.invalid(&path.child("tolerance"), shown, rules::NEGATIVE);
    }
}

fn validate_scaling_policy(policy: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (kind, known) = (text(policy, "type"), ["Percent", "Pods"]);
    if !known.contains(&kind) {
        errors.not_supported(&path.child("type"), kind, &known);
    }
    for field in ["value", "periodSeconds"] {
        // Zero would forbid each step, and absent counts as zero for Go clients.
        let (n, at) = (int(policy, field).unwrap_or(0), path.child(field));
        if n <= 0 {
            errors.invalid(&at, n, "must be greater than zero");
        } else if field == "periodSeconds" && n > LONGEST_PERIOD {
            let detail = format!("must be less than or equal to {LONGEST_PERIOD}");
            errors.invalid(&at, n, detail);
        }
    }
}
