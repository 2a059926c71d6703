//! LimitRanges and ResourceQuotas.

use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::pod::{STANDARD, validate_resource_quantity, validate_standard_name};
use crate::rules::read_quantity;
use api_meta::tree::{entries, get, list, same, text, texts};
use api_meta::{Quantity, names};
use api_semantics::quantities::parse_quantity;
use serde_json::Value;

pub const LIMIT_RANGE: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_limit_range,
    update: |new, _, e| validate_limit_range(new, e),
    sub: accept_subresource,
};
pub const RESOURCE_QUOTA: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_quota,
    update: validate_quota_update,
    sub: accept_subresource,
};

fn validate_limit_range(object: &Value, errors: &mut Errors) {
    let at = Path::ROOT.child("spec");
    let path = at.child("limits");
    let mut seen: Vec<&str> = Vec::new();
    for (i, item) in list(get(object, "spec"), "limits").iter().enumerate() {
        let at = path.index(i);
        let kind = text(item, "type");
        errors.invalid_each(&at.child("type"), kind, names::qualified_name(kind));
        // Qualified names are left to extensions, which upstream does not check further.
        if !kind.contains('/') && !["Pod", "Container", "PersistentVolumeClaim"].contains(&kind) {
            errors.invalid(
                &at.child("type"),
                kind,
                "must be a standard limit type or fully qualified",
            );
        }
        for field in [
            "max",
            "min",
            "default",
            "defaultRequest",
            "maxLimitRequestRatio",
        ] {
            let at = at.child(field);
            for (name, _) in entries(item, field) {
                validate_standard_name(name, &at.key(name), errors);
            }
        }
        // Two entries of one type could contradict each other in the same object.
        if seen.contains(&kind) {
            errors.duplicate(&at.child("type"), kind);
        }
        seen.push(kind);
        // Defaults are written into containers. A pod as a whole has no place for them.
        if kind == "Pod" {
            for field in ["default", "defaultRequest"] {
                if entries(item, field).next().is_some() {
                    errors.forbidden(
                        &at.child(field),
                        "may not be specified when `type` is 'Pod'",
                    );
                }
            }
        }
        // Storage is the only resource of a claim, so an entry without it would limit nothing.
        if kind == "PersistentVolumeClaim"
            && read_quantity(get(item, "min"), "storage").is_none()
            && read_quantity(get(item, "max"), "storage").is_none()
        {
            errors.required(
                &at.child("limits"),
                "either minimum or maximum storage value is required, but neither was provided",
            );
        }
        validate_bounds(item, &at, errors);
    }
}

fn validate_bounds(item: &Value, path: &Path<'_>, errors: &mut Errors) {
    const FIELDS: [&str; 5] = [
        "max",
        "min",
        "default",
        "defaultRequest",
        "maxLimitRequestRatio",
    ];
    let mut resources: Vec<&String> = FIELDS
        .iter()
        .flat_map(|f| entries(item, f).map(|(k, _)| k))
        .collect();
    resources.sort();
    resources.dedup();
    for name in resources {
        let of = |field: &str| read_quantity(get(item, field), name);
        let (max, min, default, request) =
            (of("max"), of("min"), of("default"), of("defaultRequest"));
        let mut order =
            |low: Option<Quantity>, high: Option<Quantity>, field: &str, what: &str, with: &str| {
                if let (Some(low), Some(high)) = (low, high)
                    && low > high
                {
                    let at = path.child(field);
                    let shown = if what == "min" || what == "default request" || what == "default" {
                        low
                    } else {
                        high
                    };
                    errors.invalid(
                        &at.key(name),
                        shown.to_string(),
                        format!("{what} value {low} is greater than {with} value {high}"),
                    );
                }
            };
        // Upstream reports each pair of bounds that contradict each other, so one wrong value
        // causes several errors.
        order(min, max, "min", "min", "max");
        order(min, request, "defaultRequest", "min", "default request");
        order(request, max, "defaultRequest", "default request", "max");
        order(
            request,
            default,
            "defaultRequest",
            "default request",
            "default limit",
        );
        order(min, default, "default", "min", "default");
        order(default, max, "default", "default", "max");
        validate_ratio(of("maxLimitRequestRatio"), min, max, name, path, errors);
    }
}

fn validate_ratio(
    ratio: Option<Quantity>,
    min: Option<Quantity>,
    max: Option<Quantity>,
    name: &str,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let Some(ratio) = ratio else { return };
    let at = path.child("maxLimitRequestRatio");
    let at = at.key(name);
    // A ratio below 1 would require a request above its limit.
    if ratio.milli_value() < 1000 {
        errors.invalid(
            &at,
            ratio.to_string(),
            format!("ratio {ratio} is less than 1"),
        );
    }
    // A minimum of zero allows any ratio, and the division would have no result.
    let both = min.zip(max).filter(|(low, _)| low.milli_value() > 0);
    if let Some((low, high)) = both {
        let limit = high.milli_value() as f64 / low.milli_value() as f64;
        if ratio.milli_value() as f64 / 1000.0 > limit {
            errors.invalid(
                &at,
                ratio.to_string(),
                format!("ratio {ratio} is greater than max/min = {limit:.6}"),
            );
        }
    }
}

const SCOPES: [&str; 6] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
];
/// Names that are counted, in addition to the objects whose quantities are always whole.
const COUNTED: [&str; 3] = ["services.nodeports", "services.loadbalancers", "count"];

fn validate_quota(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    let hard = path.child("hard");
    for (name, value) in entries(spec, "hard") {
        let at = hard.key(name);
        validate_resource_name(name, &at, errors);
        if let Some(found) = parse_quantity(value) {
            validate_resource_quantity(name, found, value, &at, errors);
            // Objects are counted in whole numbers, so a fraction could never be reached.
            let counted = COUNTED.contains(&name.as_str()) || name.starts_with("count/");
            if counted && found.milli_value() % 1000 != 0 {
                errors.invalid(&at, value.clone(), "must be an integer");
            }
        }
    }
    validate_quota_scopes(spec, &path, errors);
}

fn validate_resource_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    validate_standard_name(name, path, errors);
    let prefixed = ["requests.hugepages-", "limits.hugepages-", "hugepages-"]
        .iter()
        .any(|p| name.starts_with(p));
    if !name.contains('/') && !STANDARD.contains(&name) && !prefixed {
        errors.invalid(path, name, "must be a standard resource for quota");
    }
}

fn validate_quota_scopes(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let all = texts(spec, "scopes");
    let at = path.child("scopes");
    let hard: Vec<&String> = entries(spec, "hard").map(|(k, _)| k).collect();
    for scope in &all {
        // Unknown scopes match no pod, so the quota would limit nothing.
        if !SCOPES.contains(scope) {
            errors.invalid(&at, all.clone(), "unsupported scope");
        }
        if hard
            .iter()
            .any(|name| is_known_resource(name) && !scope_allows(scope, name))
        {
            errors.invalid(&at, all.clone(), "unsupported scope applied to resource");
        }
    }
    // No pod is in both scopes, so the quota would never count anything.
    for (a, b) in [
        ("BestEffort", "NotBestEffort"),
        ("Terminating", "NotTerminating"),
    ] {
        if all.contains(&a) && all.contains(&b) {
            errors.invalid(&at, all.clone(), "conflicting scopes");
        }
    }
    let at = path
        .child("scopeSelector")
        .child("matchExpressions")
        .to_string();
    let path = Path::ROOT.child(&at);
    for expression in list(get(spec, "scopeSelector"), "matchExpressions") {
        let scope = text(expression, "scopeName");
        if !SCOPES.contains(&scope) {
            errors.invalid(&path.child("scopeName"), scope, "unsupported scope");
        }
        let empty = list(expression, "values").is_empty();
        match text(expression, "operator") {
            "In" | "NotIn" if empty => {
                errors.required(
                    &path.child("values"),
                    "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
                );
            }
            "Exists" | "DoesNotExist" if !empty => {
                errors.invalid(
                    &path.child("values"),
                    get(expression, "values").clone(),
                    "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
                );
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.invalid(
                &path.child("operator"),
                other,
                "not a valid selector operator",
            ),
        }
    }
}

fn is_known_resource(name: &str) -> bool {
    STANDARD.contains(&name) && name != "count"
}

fn scope_allows(scope: &str, name: &str) -> bool {
    const COMPUTE: [&str; 9] = [
        "cpu",
        "memory",
        "ephemeral-storage",
        "requests.cpu",
        "requests.memory",
        "requests.ephemeral-storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
    ];
    match scope {
        // Best-effort pods request nothing, so only their number can be limited.
        "BestEffort" => name == "pods",
        _ => name == "pods" || COMPUTE.contains(&name),
    }
}

fn validate_quota_update(new: &Value, old: &Value, errors: &mut Errors) {
    validate_quota(new, errors);
    let (n, o) = (get(new, "spec"), get(old, "spec"));
    // The usage in the status counts pods of the old scopes.
    if !same(n, o, "scopes") {
        let at = Path::ROOT.child("spec");
        errors.invalid(
            &at.child("scopes"),
            get(n, "scopes").clone(),
            crate::rules::IMMUTABLE,
        );
    }
}
