//! Approval of definitions in the groups of the Kubernetes project.

use api_meta::tree::{get, text};
use serde_json::Value;

/// Annotation of a definition in such a group: a URL, or a reason why there is none.
pub const APPROVAL_ANNOTATION: &str = "api-approved.kubernetes.io";

/// State of the annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approval {
    /// Absent or empty.
    Missing,
    /// A reason that begins with `unapproved`.
    Bypassed,
    /// The URL of the approval.
    Approved,
    /// Any other text.
    Invalid,
}

/// Returns the state of a definition's annotation.
pub fn read_approval(definition: &Value) -> Approval {
    let annotation = text(
        get(get(definition, "metadata"), "annotations"),
        APPROVAL_ANNOTATION,
    );
    match annotation {
        "" => Approval::Missing,
        reason if reason.starts_with("unapproved") => Approval::Bypassed,
        address if url::Url::parse(address).is_ok_and(|url| url.has_host()) => Approval::Approved,
        _ => Approval::Invalid,
    }
}

/// Reports whether definitions of a group need an approval.
pub fn is_protected_group(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"].iter().any(|domain| {
        // A whole label has to match: anyone may own `notk8s.io`.
        let rest = group.strip_suffix(domain);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}
