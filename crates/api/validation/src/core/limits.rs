//! LimitRanges.

use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::pod::{is_extended_resource, validate_standard_name};
use crate::rules::read_quantity;
use api_meta::tree::{entries, get, list, text};
use api_meta::{Quantity, names};
use serde_json::Value;
use std::collections::BTreeSet;

pub const LIMIT_RANGE: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_limit_range,
    update: |new, _, e| validate_limit_range(new, e),
    sub: accept_subresource,
};

const TYPES: [&str; 3] = ["Pod", "Container", "PersistentVolumeClaim"];
const CONTAINER: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
const HUGE: &str = "hugepages-";

fn validate_limit_range(object: &Value, errors: &mut Errors) {
    // Updates run the same rules without exemptions: old entries that contradict each other can't
    // be kept.
    let spec = Path::ROOT.child("spec");
    let path = spec.child("limits");
    let mut seen = BTreeSet::new();
    for (i, item) in list(get(object, "spec"), "limits").iter().enumerate() {
        let at = path.index(i);
        let kind = text(item, "type");
        validate_limit_type(kind, &at.child("type"), errors);
        // Two entries of one type could contradict each other in the same object.
        if !seen.insert(kind) {
            errors.duplicate(&at.child("type"), kind);
        }
        validate_limit_item(item, kind, &at, errors);
    }
}

fn validate_limit_type(kind: &str, path: &Path<'_>, errors: &mut Errors) {
    let problems = names::qualified_name(kind);
    // Qualified names are left to extensions, which upstream does not check further.
    if problems.is_empty() && !kind.contains('/') && !TYPES.contains(&kind) {
        errors.invalid(
            path,
            kind,
            "must be a standard limit type or fully qualified",
        );
    }
    errors.invalid_each(path, kind, problems);
}

fn validate_limit_item(item: &Value, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    let is_pod = kind == "Pod";
    for field in ["max", "min", "default", "defaultRequest"] {
        let at = path.child(field);
        let is_default = field.starts_with("default");
        // Defaults are written into containers. A pod as a whole has no place for them.
        if is_pod && is_default && entries(item, field).next().is_some() {
            errors.forbidden(&at, "may not be specified when `type` is 'Pod'");
        } else {
            validate_limit_names(item, field, kind, path, errors);
        }
    }
    // Storage is the only resource of a claim, so an entry without it would limit nothing.
    let limits_storage = ["min", "max"]
        .iter()
        .any(|field| read_quantity(get(item, field), "storage").is_some());
    if kind == "PersistentVolumeClaim" && !limits_storage {
        errors.required(
            &path.child("limits"),
            "either minimum or maximum storage value is required, but neither was provided",
        );
    }
    validate_limit_names(item, "maxLimitRequestRatio", kind, path, errors);
    let fields = match is_pod {
        true => &["max", "min", "maxLimitRequestRatio"][..],
        false => &[
            "max",
            "min",
            "default",
            "defaultRequest",
            "maxLimitRequestRatio",
        ],
    };
    // Sorted, so that the order of the errors does not depend on the order of the client's keys.
    let resources: BTreeSet<&String> = fields
        .iter()
        .flat_map(|f| entries(item, f).map(|(name, _)| name))
        .collect();
    for name in resources {
        let bounds = Bounds::read(item, fields, name);
        bounds.validate(name, path, errors);
    }
}

fn validate_limit_names(
    item: &Value,
    field: &str,
    kind: &str,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let path = path.child(field);
    for (name, _) in entries(item, field) {
        let at = path.key(name);
        validate_standard_name(name, &at, errors);
        // Claims are limited by names of their own, and qualified types by names that only their
        // extension knows.
        if !["Pod", "Container"].contains(&kind) {
            continue;
        }
        let standard = CONTAINER.contains(&name.as_str()) || name.starts_with(HUGE);
        if !name.contains('/') && !standard {
            let detail = "must be a standard resource for containers";
            errors.invalid(&at, name.as_str(), detail);
        } else if name.contains('/')
            && !name.contains("kubernetes.io/")
            && !is_extended_resource(name)
        {
            let detail = "doesn't follow extended resource name standard";
            errors.invalid(&at, name.as_str(), detail);
        }
    }
}

/// Bounds of one resource.
struct Bounds {
    max: Option<Quantity>,
    min: Option<Quantity>,
    default: Option<Quantity>,
    request: Option<Quantity>,
    ratio: Option<Quantity>,
}

impl Bounds {
    fn read(item: &Value, fields: &[&str], name: &str) -> Self {
        let read = |field: &str| {
            let used = fields.contains(&field);
            used.then(|| read_quantity(get(item, field), name))
                .flatten()
        };
        Self {
            max: read("max"),
            min: read("min"),
            default: read("default"),
            request: read("defaultRequest"),
            ratio: read("maxLimitRequestRatio"),
        }
    }

    /// Reports each pair of bounds that contradict each other, so one wrong value causes several
    /// errors, as upstream does.
    fn validate(&self, name: &str, path: &Path<'_>, errors: &mut Errors) {
        let (max, min, default, request) = (self.max, self.min, self.default, self.request);
        // Lower bound, upper bound, field, whether the lower one is shown, names of both.
        let pairs = [
            (min, max, "min", true, "min", "max"),
            (
                min,
                request,
                "defaultRequest",
                false,
                "min",
                "default request",
            ),
            (
                request,
                max,
                "defaultRequest",
                true,
                "default request",
                "max",
            ),
            (
                request,
                default,
                "defaultRequest",
                true,
                "default request",
                "default limit",
            ),
            (min, default, "default", true, "min", "default"),
            (default, max, "default", false, "default", "max"),
        ];
        for (low, high, field, shows_low, what, with) in pairs {
            if let (Some(low), Some(high)) = (low, high)
                && low > high
            {
                let at = path.child(field);
                let shown = if shows_low { low } else { high };
                errors.invalid(
                    &at.key(name),
                    shown.to_string(),
                    format!("{what} value {low} is greater than {with} value {high}"),
                );
            }
        }
        self.validate_ratio(name, path, errors);
        self.validate_equal_defaults(name, path, errors);
    }

    /// A node cannot lend extended resources and huge pages, so a request equals its limit.
    fn validate_equal_defaults(&self, name: &str, path: &Path<'_>, errors: &mut Errors) {
        let is_lent = !name.contains('/') || name.contains("kubernetes.io/");
        if let (Some(default), Some(request)) = (self.default, self.request)
            && (!is_lent || name.starts_with(HUGE))
            && default != request
        {
            let at = path.child("defaultRequest");
            errors.invalid(
                &at.key(name),
                request.to_string(),
                format!(
                    "default value {default} must equal to defaultRequest value {request} in {name}"
                ),
            );
        }
    }

    fn validate_ratio(&self, name: &str, path: &Path<'_>, errors: &mut Errors) {
        let Some(ratio) = self.ratio else { return };
        let at = path.child("maxLimitRequestRatio");
        let at = at.key(name);
        // A ratio below 1 would require a request above its limit.
        if ratio.milli_value() < 1000 {
            let detail = format!("ratio {ratio} is less than 1");
            errors.invalid(&at, ratio.to_string(), detail);
        }
        // A minimum of zero allows any ratio, and the division would have no result.
        let both = self.min.zip(self.max);
        if let Some((low, high)) = both.filter(|(low, _)| low.milli_value() > 0) {
            // Upstream divides as floating point numbers and shows six digits of the quotient in
            // the message.
            let limit = high.milli_value() as f64 / low.milli_value() as f64;
            if ratio.milli_value() as f64 / 1000.0 > limit {
                let detail = format!("ratio {ratio} is greater than max/min = {limit:.6}");
                errors.invalid(&at, ratio.to_string(), detail);
            }
        }
    }
}
