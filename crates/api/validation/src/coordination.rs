//! Leases.

use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::rules;
use api_meta::names;
use api_meta::tree::{get, opt_text, text};
use serde_json::Value;

pub const LEASE: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_lease,
    update: |new, _, e| validate_lease(new, e),
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

fn validate_lease_strategy(strategy: &str, path: &Path<'_>, errors: &mut Errors) {
    const KNOWN: [&str; 1] = ["OldestEmulationVersion"];
    // Upstream names the field twice.
    let at = path.child("strategy");
    // Strategies of other vendors have a domain, and this server leaves the election to them.
    if strategy.contains('/') {
        errors.invalid_each(&at, strategy, names::qualified_name(strategy));
    } else if !KNOWN.contains(&strategy) {
        errors.not_supported(&at, strategy, &KNOWN);
    }
}
