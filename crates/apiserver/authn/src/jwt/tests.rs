//! Tables over files, claims and fetches.

#![allow(clippy::unwrap_used)]

mod claims;
mod fetches;
mod files;

use serde_json::{Value, json};

/// Returns an issuer with these fields besides the required ones.
fn issuer(url: &str, more: &Value) -> Value {
    let mut issuer = json!({"issuer": {"url": url, "audiences": ["a"]},
        "claimMappings": {"username": {"claim": "sub", "prefix": ""}}});
    merge(&mut issuer, more);
    issuer
}

/// Sets the fields of `more`; null removes a field.
fn merge(value: &mut Value, more: &Value) {
    match (value, more) {
        (Value::Object(fields), Value::Object(more)) => {
            for (name, more) in more {
                if more.is_null() {
                    fields.remove(name);
                } else {
                    merge(fields.entry(name.clone()).or_insert(Value::Null), more);
                }
            }
        }
        (value, more) => *value = more.clone(),
    }
}

fn configuration(issuers: Vec<Value>) -> Value {
    json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
        "jwt": issuers})
}
