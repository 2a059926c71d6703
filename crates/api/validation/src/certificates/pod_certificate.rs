//! PodCertificateRequests (KEP-4317): a kubelet requests a certificate for the key of a pod's
//! volume.

mod issued;
mod spec;

use crate::conditions::validate_conditions;
use crate::field::{Errors, Path};
use crate::kind_rules::Rules;
use crate::metadata::NameRule;
use crate::rules;
use api_meta::tree::{equal, get, list, text};
use issued::validate_issued;
use serde_json::{Value, json};
use spec::{OMITTED, validate_request};

/// Rules of PodCertificateRequests. The spec never changes, and the status changes once.
pub const POD_CERTIFICATE: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_request,
    update: |new, old, errors| rules::validate_immutable(new, old, "spec", &Path::ROOT, errors),
    sub: |_, new, old, errors| validate_status(new, old, errors),
};

const OUTCOMES: [&str; 3] = ["Denied", "Failed", "Issued"];

/// Validates a write of the signer. It sets one of three outcomes, after which nothing changes: the
/// kubelet may have used the certificate already.
fn validate_status(new: &Value, old: &Value, errors: &mut Errors) {
    let (status, before) = (get(new, "status"), get(old, "status"));
    let path = Path::ROOT.child("status");
    let found = errors.len();
    validate_outcomes(status, &path.child("conditions"), errors);
    validate_conditions(status, &path.child("conditions"), errors);
    if errors.len() > found {
        return;
    }
    let require_equal = |expect: &Value, detail: &str, errors: &mut Errors| {
        if !equal(status, expect) {
            errors.invalid(&path, OMITTED, detail);
        }
    };
    if OUTCOMES.iter().any(|outcome| has_outcome(before, outcome)) {
        let detail = "immutable after PodCertificateRequest is issued, denied, or failed";
        require_equal(before, detail, errors);
    } else if has_outcome(status, "Denied") || has_outcome(status, "Failed") {
        let expect = json!({"conditions": get(status, "conditions")});
        let detail = "non-condition status fields must be empty when denying or failing the \
                      PodCertificateRequest";
        require_equal(&expect, detail, errors);
    } else if has_outcome(status, "Issued") {
        validate_issued(status, get(old, "spec"), &path, errors);
    } else {
        let detail =
            "status is immutable unless transitioning to \"Issued\", \"Denied\", or \"Failed\"";
        require_equal(before, detail, errors);
    }
}

fn has_outcome(status: &Value, outcome: &str) -> bool {
    let mut all = list(status, "conditions").iter();
    all.any(|c| text(c, "type") == outcome && text(c, "status") == "True")
}

fn validate_outcomes(status: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut outcomes = 0;
    for (i, condition) in list(status, "conditions").iter().enumerate() {
        let (at, outcome) = (path.index(i), text(condition, "type"));
        if !OUTCOMES.contains(&outcome) {
            errors.not_supported(&at.child("type"), outcome, &OUTCOMES);
            continue;
        }
        outcomes += 1;
        if outcomes > 1 {
            let detail = "There may be at most one condition with type \"Issued\", \"Denied\", or \"Failed\"";
            errors.invalid(&at.child("type"), outcome, detail);
        }
        let value = text(condition, "status");
        if value != "True" {
            errors.not_supported(&at.child("status"), value, &["True"]);
        }
    }
}

#[cfg(test)]
mod tests;
