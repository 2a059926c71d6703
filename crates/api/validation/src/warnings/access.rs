//! Secrets, ServiceAccounts and ResourceQuotas.

use crate::rules::read_quantity;
use api_meta::tree::{get, has, text};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

const MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";

/// Warns about a certificate or key that no server could load. That they belong together is not
/// checked.
pub(super) fn secret_warnings(object: &Value) -> Option<String> {
    if text(object, "type") != "kubernetes.io/tls" {
        return None;
    }
    let has_block = |field: &str, ending: &str| {
        let bytes = STANDARD.decode(text(get(object, "data"), field));
        let bytes = bytes.unwrap_or_default();
        let mut blocks = x509_parser::pem::Pem::iter_from_buffer(&bytes);
        blocks.any(|block| block.is_ok_and(|block| block.label.ends_with(ending)))
    };
    let what = match (
        has_block("tls.crt", "CERTIFICATE"),
        has_block("tls.key", "PRIVATE KEY"),
    ) {
        (false, _) => "certificate",
        (true, false) => "key",
        (true, true) => return None,
    };
    Some(format!("tls: failed to find any PEM data in {what} input"))
}

pub(super) fn service_account_warnings(object: &Value, old: Option<&Value>) -> Option<String> {
    let is_set = |object| has(get(get(object, "metadata"), "annotations"), MOUNTABLE);
    (is_set(object) && !old.is_some_and(is_set)).then(|| {
        format!("metadata.annotations[{MOUNTABLE}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets")
    })
}

/// Warns about requests above the limits of the same resource, which no pod could use up.
pub(super) fn quota_warnings(object: &Value) -> Vec<String> {
    let hard = get(get(object, "spec"), "hard");
    let mut warnings = Vec::new();
    for name in ["cpu", "memory", "storage", "ephemeral-storage"] {
        let (mut field, limit_field) = (format!("requests.{name}"), format!("limits.{name}"));
        let mut request = read_quantity(hard, &field);
        // Both have a short form, which means the requests.
        if request.is_none() && ["cpu", "memory"].contains(&name) {
            request = read_quantity(hard, name);
            field = name.to_owned();
        }
        if let (Some(request), Some(limit)) = (request, read_quantity(hard, &limit_field))
            && request > limit
        {
            warnings.push(format!(
                "ResourceQuota {field} ({request}) should be less than {limit_field} ({limit})"
            ));
        }
    }
    warnings
}
