//! Leases.

use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::rules;
use api_meta::tree::get;
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
}
