//! Leases.

use crate::dispatch::{Rules, no_sub};
use crate::field::{Errors, Path};
use crate::metadata::NameRule;
use crate::rules;
use crate::tree::get;
use serde_json::Value;

pub const LEASE: Rules = Rules {
    name: NameRule::Subdomain,
    create: lease,
    update: |new, _, e| lease(new, e),
    sub: no_sub,
};

fn lease(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    rules::positive(spec, "leaseDurationSeconds", &path, errors);
    rules::non_negative(spec, "leaseTransitions", &path, errors);
}
