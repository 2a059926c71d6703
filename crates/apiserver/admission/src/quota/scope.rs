//! Quota scopes.

use api_semantics::{quota, tree};
use apiserver_request::AdmissionRequest;
use serde_json::Value;

/// Returns whether the object is in the quota's scopes. A quota with scopes counts pods only.
pub fn matches_scopes(object: &Value, request: &AdmissionRequest<'_>) -> bool {
    let scopes = tree::quota_scopes(object);
    if !quota::has_scopes(&scopes) {
        return true;
    }
    request.group.is_empty()
        && request.resource == "pods"
        && quota::scopes_match(&scopes, &tree::pod(&request.object))
}
