//! The documents with which other servers verify this cluster's tokens.

use super::AccountTokens;
use serde_json::{Value, json};

impl AccountTokens {
    /// Builds `/.well-known/openid-configuration`. `address` is this server's `host:port` for
    /// clients.
    pub fn openid_configuration(&self, address: &str) -> Value {
        let (keys, issuer, jwks_uri) = self.discovery_parts();
        let own = format!("https://{address}/openid/v1/jwks");
        let mut algorithms: Vec<&str> = keys
            .all
            .iter()
            .filter_map(|k| k.jwk["alg"].as_str())
            .collect();
        algorithms.sort_unstable();
        algorithms.dedup();
        json!({"issuer": issuer, "jwks_uri": if jwks_uri.is_empty() { &own } else { jwks_uri },
            "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": algorithms})
    }

    /// Builds `/openid/v1/jwks`, served as `application/jwk-set+json`.
    pub fn jwks(&self) -> Value {
        let (keys, _, _) = self.discovery_parts();
        json!({"keys": keys.all.iter().map(|k| k.jwk.clone()).collect::<Vec<_>>()})
    }
}
