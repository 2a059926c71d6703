//! Leases and LeaseCandidates.

use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::{NameRule, validate_own_names};
use crate::rules;
use api_cel::SemanticVersion;
use api_meta::names;
use api_meta::tree::{get, opt_text, text};
use serde_json::Value;
use std::cmp::Ordering;

pub const LEASE: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_lease,
    update: |new, _, e| validate_lease(new, e),
    sub: accept_subresource,
};

pub const LEASE_CANDIDATE: Rules = Rules {
    name: NameRule::Own,
    create: validate_candidate,
    update: validate_candidate_update,
    sub: accept_subresource,
};

// Durations of zero would make every holder lose the lease at once.
fn validate_lease(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    rules::validate_positive(spec, "leaseDurationSeconds", &path, errors);
    rules::validate_non_negative(spec, "leaseTransitions", &path, errors);
    let strategy = opt_text(spec, "strategy");
    if let Some(strategy) = strategy {
        validate_lease_strategy(strategy, &path.child("strategy"), errors);
    }
    // Only coordinated leader election (KEP-4355) has a preferred holder.
    if !text(spec, "preferredHolder").is_empty() && strategy.unwrap_or_default().is_empty() {
        let detail = "may only be specified if `strategy` is defined";
        errors.forbidden(&path.child("preferredHolder"), detail);
    }
}

const OLDEST_EMULATION: &str = "OldestEmulationVersion";

fn validate_candidate(object: &Value, errors: &mut Errors) {
    validate_own_names(object, errors, |name, _| rules::config_key_problems(name));
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    if text(spec, "leaseName").is_empty() {
        errors.required(&path.child("leaseName"), "");
    }
    let emulated = validate_version(spec, "emulationVersion", &path, errors);
    let at = path.child("binaryVersion");
    let binary = text(spec, "binaryVersion");
    if binary.is_empty() {
        errors.required(&at, "");
    } else {
        let version = validate_version(spec, "binaryVersion", &path, errors);
        // Upstream compares a version that it can't parse as zero.
        if !text(spec, "emulationVersion").is_empty()
            && compare_versions(version.as_ref(), emulated.as_ref()) == Ordering::Less
        {
            let detail = "must be greater than or equal to `emulationVersion`";
            errors.invalid(&at, binary, detail);
        }
    }
    let strategy = text(spec, "strategy");
    if strategy.is_empty() {
        errors.required(&path.child("strategy"), "");
        return;
    }
    if strategy == OLDEST_EMULATION && emulated.is_none_or(|version| version.is_zero()) {
        let detail = "must be specified when `strategy` is 'OldestEmulationVersion'";
        errors.required(&path.child("emulationVersion"), detail);
    }
    validate_lease_strategy(strategy, &path.child("strategy"), errors);
}

fn validate_candidate_update(new: &Value, old: &Value, errors: &mut Errors) {
    validate_candidate(new, errors);
    let (spec, before) = (get(new, "spec"), get(old, "spec"));
    let path = Path::ROOT.child("spec");
    rules::validate_immutable(spec, before, "leaseName", &path, errors);
}

fn validate_version(
    spec: &Value,
    field: &str,
    path: &Path<'_>,
    errors: &mut Errors,
) -> Option<SemanticVersion> {
    let version = text(spec, field);
    let parsed = SemanticVersion::parse(version).ok();
    if parsed.is_none() && !version.is_empty() {
        let detail = "must be a valid semantic version";
        errors.invalid(&path.child(field), version, detail);
    }
    parsed
}

fn compare_versions(a: Option<&SemanticVersion>, b: Option<&SemanticVersion>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => a.cmp(b),
        (Some(a), None) if a.is_zero() => Ordering::Equal,
        (Some(_), None) => Ordering::Greater,
        (None, Some(b)) if b.is_zero() => Ordering::Equal,
        (None, Some(_)) => Ordering::Less,
        (None, None) => Ordering::Equal,
    }
}

fn validate_lease_strategy(strategy: &str, path: &Path<'_>, errors: &mut Errors) {
    const KNOWN: [&str; 1] = [OLDEST_EMULATION];
    // Upstream names the field twice.
    let at = path.child("strategy");
    // Strategies of other vendors have a domain, and this server leaves the election to them.
    if strategy.contains('/') {
        errors.invalid_each(&at, strategy, names::qualified_name(strategy));
    } else if !KNOWN.contains(&strategy) {
        errors.not_supported(&at, strategy, &KNOWN);
    }
}
