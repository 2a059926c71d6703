//! ConfigMaps and Secrets.

use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::rules;
use api_meta::tree::{entries, flag, get, same, text};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

// Upstream's limit for the sum of all values: one large key is as bad for etcd as many small ones.
const LIMIT: usize = 1024 * 1024;
const FROZEN: &str = "field is immutable when `immutable` is set";
const ACCOUNT: &str = "kubernetes.io/service-account.name";

pub const CONFIG_MAP: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_config_map,
    update: validate_config_map_update,
    sub: accept_subresource,
};
pub const SECRET: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_secret,
    update: validate_secret_update,
    sub: accept_subresource,
};

fn validate_config_map(object: &Value, errors: &mut Errors) {
    let data = Path::ROOT.child("data");
    let mut size = 0;
    for (key, value) in entries(object, "data") {
        errors.invalid_each(&data.key(key), key, rules::config_key_problems(key));
        // Both become files of one directory.
        if get(object, "binaryData").get(key).is_some() {
            errors.invalid(
                &data.key(key),
                key.as_str(),
                "duplicate of key present in binaryData",
            );
        }
        // Keys don't count, as upstream.
        size += value.as_str().map_or(0, str::len);
    }
    let binary = Path::ROOT.child("binaryData");
    for (key, value) in entries(object, "binaryData") {
        errors.invalid_each(&binary.key(key), key, rules::config_key_problems(key));
        size += decoded_length(value);
    }
    // etcd's requests have 1.5 MiB by default, and the object has metadata beside the data.
    if size > LIMIT {
        errors.too_long(&Path::ROOT.child(""), LIMIT);
    }
}

fn decoded_length(value: &Value) -> usize {
    // Upstream counts decoded bytes.
    value.as_str().map_or(0, |s| {
        let padding = s.bytes().rev().take_while(|b| *b == b'=').count();
        (s.len() / 4 * 3).saturating_sub(padding)
    })
}

fn validate_config_map_update(new: &Value, old: &Value, errors: &mut Errors) {
    validate_frozen_fields(new, old, &["data", "binaryData"], errors);
    validate_config_map(new, errors);
}

fn validate_frozen_fields(new: &Value, old: &Value, fields: &[&str], errors: &mut Errors) {
    if !flag(old, "immutable") {
        return;
    }
    // Kubelets stop watching an immutable object, so they would never see a change (KEP-1412).
    if !flag(new, "immutable") {
        errors.forbidden(&Path::ROOT.child("immutable"), FROZEN);
    }
    for field in fields.iter().filter(|f| !same(new, old, f)) {
        errors.forbidden(&Path::ROOT.child(field), FROZEN);
    }
}

/// Returns the required keys of a type of secret.
fn required_keys(kind: &str) -> &'static [&'static str] {
    match kind {
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        _ => &[],
    }
}

fn validate_secret(object: &Value, errors: &mut Errors) {
    let path = Path::ROOT.child("data");
    let mut size = 0;
    for (key, value) in entries(object, "data") {
        errors.invalid_each(&path.key(key), key, rules::config_key_problems(key));
        size += decoded_length(value);
    }
    if size > LIMIT {
        errors.too_long(&path, LIMIT);
    }
    let kind = text(object, "type");
    let data = get(object, "data");
    let has = |key: &str| data.get(key).is_some();
    if kind == "kubernetes.io/service-account-token" {
        let name = get(get(object, "metadata"), "annotations")
            .get(ACCOUNT)
            .and_then(Value::as_str)
            .unwrap_or_default();
        // The token controller deletes token secrets without a service account.
        if name.is_empty() {
            errors.required(
                &Path::ROOT
                    .child("metadata")
                    .child("annotations")
                    .key(ACCOUNT),
                "",
            );
        }
    }
    if kind == "kubernetes.io/basic-auth" && !has("username") && !has("password") {
        errors.required(&path.key("username"), "");
        errors.required(&path.key("password"), "");
    }
    for key in required_keys(kind) {
        let at = path.key(key);
        match data.get(*key).and_then(Value::as_str) {
            None => errors.required(&at, ""),
            Some(value) if key.starts_with('.') => {
                let bytes = STANDARD.decode(value).unwrap_or_default();
                // Clients read a map, so that other JSON values fail there.
                if !matches!(
                    serde_json::from_slice(&bytes),
                    Ok(Value::Object(_) | Value::Null)
                ) {
                    errors.invalid(
                        &at,
                        // Errors are logged and shown, secrets are not.
                        "<secret contents redacted>",
                        "invalid character in the JSON of the credentials",
                    );
                }
            }
            // Only this type rejects an empty value; a TLS secret may be created first and filled
            // by a controller later.
            Some("") if kind == "kubernetes.io/ssh-auth" => errors.required(&at, ""),
            Some(_) => {}
        }
    }
}

fn validate_secret_update(new: &Value, old: &Value, errors: &mut Errors) {
    // The type decided which keys were required, and controllers select secrets by it.
    rules::validate_immutable(new, old, "type", &Path::ROOT, errors);
    validate_frozen_fields(new, old, &["data"], errors);
    validate_secret(new, errors);
}
