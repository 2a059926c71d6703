//! Nodes.

use crate::field::{Errors, Path};
use crate::ip::is_dual_stack;
use crate::kind_rules::Rules;
use crate::metadata::NameRule;
use crate::pod;
use crate::rules;
use api_meta::names;
use api_meta::tree::{entries, flag, get, has, int, list, opt_text, same, text, texts};
use api_semantics::quantities::parse_quantity;
use serde_json::Value;
use std::collections::HashSet;

pub const NODE: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_node,
    // Upstream applies both functions, so some errors are reported twice.
    update: |new, old, errors| {
        validate_node(new, errors);
        validate_node_update(new, old, errors);
    },
    sub: |_, new, old, errors| validate_node_update(new, old, errors),
};

const TAINTS: &str = "scheduler.alpha.kubernetes.io/taints";
const AVOID_PODS: &str = "scheduler.alpha.kubernetes.io/preferAvoidPods";
const CIDRS_FIXED: &str = "node updates may not change podCIDR except from \"\" to valid";
const PROVIDER_FIXED: &str = "node updates may not change providerID except from \"\" to valid";

fn validate_node(object: &Value, errors: &mut Errors) {
    let (spec, status) = (get(object, "spec"), get(object, "status"));
    let metadata = Path::ROOT.child("metadata");
    validate_node_annotations(object, errors);
    // Upstream reports taints below `metadata`, although they are in `spec`. Clients match it.
    pod::validate_taints(list(spec, "taints"), &metadata.child("taints"), errors);
    validate_node_resources(status, errors);
    let swap = get(get(status, "nodeInfo"), "swap");
    if let Some(capacity) = int(swap, "capacity").filter(|n| *n <= 0) {
        // The same for the swap of the status.
        let at = metadata.child("nodeSwapStatus");
        errors.invalid(&at.child("capacity"), capacity, rules::NOT_ABOVE_ZERO);
    }
    validate_declared_features(status, errors);
    validate_pod_cidrs(&texts(spec, "podCIDRs"), errors);
}

fn validate_node_annotations(object: &Value, errors: &mut Errors) {
    let metadata = Path::ROOT.child("metadata");
    let path = metadata.child("annotations");
    let annotations = get(get(object, "metadata"), "annotations");
    let taints = text(annotations, TAINTS);
    // The annotation of old schedulers has no effect any more. Upstream still parses it, so
    // malformed text is still an error.
    match serde_json::from_str::<Value>(taints) {
        _ if taints.is_empty() => {}
        Ok(Value::Array(taints)) => pod::validate_taints(&taints, &path.child(TAINTS), errors),
        Ok(Value::Null) => {}
        _ => errors.invalid(&path, TAINTS, "must be a list of taints in JSON"),
    }
    let avoided = text(annotations, AVOID_PODS);
    match serde_json::from_str::<Value>(avoided) {
        _ if avoided.is_empty() => {}
        Ok(value @ Value::Object(_)) => {
            let at = path.child(AVOID_PODS);
            // The paths use Go's names of the fields, as upstream's messages do.
            for (i, entry) in list(&value, "preferAvoidPods").iter().enumerate() {
                validate_avoided_pods(entry, &at.index(i), errors);
            }
        }
        _ => errors.invalid(
            &path.child("AvoidPods"),
            AVOID_PODS,
            "must be an AvoidPods object in JSON",
        ),
    }
}

fn validate_avoided_pods(entry: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("PodSignature");
    let controller = get(get(entry, "podSignature"), "podController");
    if controller.is_null() {
        errors.required(&at, "");
    } else if !flag(controller, "controller") {
        let at = at.child("PodController");
        errors.invalid(&at.child("Controller"), false, "must point to a controller");
    }
}

fn validate_node_resources(status: &Value, errors: &mut Errors) {
    let path = Path::ROOT.child("status");
    for field in ["capacity", "allocatable"] {
        let at = path.child(field);
        for (name, value) in entries(status, field) {
            // Text that is no quantity was rejected when the object was decoded.
            if let Some(amount) = parse_quantity(value) {
                pod::validate_resource_quantity(name, amount, value, &at.child(name), errors);
            }
        }
    }
}

/// Features are compared with those that a pod needs, by a search in the sorted list (KEP-5328).
fn validate_declared_features(status: &Value, errors: &mut Errors) {
    let path = Path::ROOT.child("status");
    let path = path.child("declaredFeatures");
    let all = texts(status, "declaredFeatures");
    // The error concerns the later of two neighbours, and a neighbour that is malformed itself is
    // compared all the same.
    for (i, feature) in all.iter().enumerate() {
        if let Some(problem) = declared_feature_problem(feature) {
            errors.invalid(&path.index(i), *feature, problem);
        }
        match all.get(i + 1) {
            Some(next) if next == feature => errors.duplicate(&path.index(i + 1), *next),
            Some(next) if next < feature => errors.invalid(
                &path.index(i + 1),
                *next,
                "list must be sorted alphabetically",
            ),
            _ => {}
        }
    }
}

fn declared_feature_problem(name: &str) -> Option<String> {
    if name.len() > 253 {
        return Some(format!(
            "invalid feature name {name:?}: must be no more than 253 characters"
        ));
    }
    let is_segment = |segment: &str| {
        segment.starts_with(|c: char| c.is_ascii_alphabetic())
            && segment.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    let is_valid =
        name.starts_with(|c: char| c.is_ascii_uppercase()) && name.split('/').all(is_segment);
    (!is_valid).then(|| format!("invalid feature name {name:?}: must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"))
}

fn validate_pod_cidrs(blocks: &[&str], errors: &mut Errors) {
    let spec = Path::ROOT.child("spec");
    let path = spec.child("podCIDRs");
    for (i, block) in blocks.iter().enumerate() {
        errors.invalid_each(&path.index(i), block, rules::cidr_problems(block));
    }
    // A dual-stack node has one block of each family, from which its pods get their addresses.
    if let [first, second, rest @ ..] = blocks
        && (!rest.is_empty() || !is_dual_stack(first, second))
    {
        errors.invalid(
            &path,
            blocks.to_vec(),
            "may specify no more than one CIDR for each IP family",
        );
    }
}

fn validate_node_update(new: &Value, old: &Value, errors: &mut Errors) {
    let (n, o, path) = (get(new, "spec"), get(old, "spec"), Path::ROOT.child("spec"));
    let status = get(new, "status");
    validate_node_annotations(new, errors);
    validate_node_resources(status, errors);
    validate_declared_features(status, errors);
    let at = Path::ROOT.child("status");
    let addresses = list(status, "addresses");
    let mut seen = HashSet::new();
    for (i, address) in addresses.iter().enumerate() {
        if !seen.insert(address) {
            errors.duplicate(&at.child("addresses").index(i), address.clone());
        }
    }
    validate_pod_cidrs_kept(&texts(n, "podCIDRs"), &texts(o, "podCIDRs"), errors);
    // Another identifier means another machine, which registers a node of its own.
    if !text(o, "providerID").is_empty() && text(n, "providerID") != text(o, "providerID") {
        errors.forbidden(&path.child("providerID"), PROVIDER_FIXED);
    }
    if has(n, "configSource") {
        let at = path.child("configSource");
        validate_config_source(get(n, "configSource"), false, &at, errors);
    }
    let config = at.child("config");
    for field in ["assigned", "active", "lastKnownGood"] {
        let source = get(get(status, "config"), field);
        if !source.is_null() {
            validate_config_source(source, true, &config.child(field), errors);
        }
    }
    let metadata = Path::ROOT.child("metadata");
    pod::validate_taints(list(n, "taints"), &metadata.child("taints"), errors);
    if !same(n, o, "externalID") {
        errors.forbidden(&path.child("externalID"), "may not be updated");
    }
}

/// Pods of the node have addresses of its blocks, and routes lead to them.
fn validate_pod_cidrs_kept(new: &[&str], old: &[&str], errors: &mut Errors) {
    if old.is_empty() {
        return;
    }
    let changed = match new.len() == old.len() {
        true => new.iter().zip(old).filter(|(n, o)| n != o).count(),
        false => 1,
    };
    let spec = Path::ROOT.child("spec");
    for _ in 0..changed {
        errors.forbidden(&spec.child("podCIDRs"), CIDRS_FIXED);
    }
}

/// The field is not used any more. Old objects may have it.
fn validate_config_source(source: &Value, assigned: bool, path: &Path<'_>, errors: &mut Errors) {
    let (map, at) = (get(source, "configMap"), path.child("configMap"));
    if map.is_null() {
        let detail = "exactly one reference subfield must be non-nil";
        return errors.invalid(path, source.clone(), detail);
    }
    for field in ["uid", "resourceVersion"] {
        match (assigned, text(map, field).is_empty()) {
            (true, true) => errors.required(&at.child(field), ""),
            (false, false) => {
                errors.forbidden(&at.child(field), format!("{field} must not be set in spec"));
            }
            _ => {}
        }
    }
    let rules: [(&str, rules::NameCheck); 3] = [
        ("namespace", names::dns1123_label),
        ("name", names::dns1123_subdomain),
        ("kubeletConfigKey", rules::config_key_problems),
    ];
    for (field, problems) in rules {
        match opt_text(map, field).unwrap_or_default() {
            "" => errors.required(&at.child(field), ""),
            value => errors.invalid_each(&at.child(field), value, problems(value)),
        }
    }
}
