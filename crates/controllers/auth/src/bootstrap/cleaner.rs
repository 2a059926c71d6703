//! Deletes the Secrets of expired bootstrap tokens.

use api_bootstrap::{Expiration, TokenSecret};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;

use controllers_runtime::{Action, Cache, Decide, Meta, Queue, Setup, time, wake};

struct TokenCleaner {
    secrets: Cache<Secret>,
}

/// Sets up the deletion of expired tokens.
pub fn add_token_cleaner(setup: &mut Setup) {
    let queue = Queue::new();
    let secrets = super::declare_token_secrets(setup)
        .on_event(wake::enqueue_object(&queue))
        .cache();
    setup.add_reconciler("token-cleaner", 1, queue, TokenCleaner { secrets });
}

impl Decide for TokenCleaner {
    fn reconcile(&self, key: &str, now: Timestamp) -> Vec<Action> {
        let Some(secret) = self.secrets.get(key).filter(|s| !s.is_deleting()) else {
            return Vec::new();
        };
        match TokenSecret::read_expiration(&secret) {
            Expiration::At(end) if end > now => {
                vec![Action::Requeue(time::duration_until(end, now))]
            }
            Expiration::Never => Vec::new(),
            // Not valid for clients and the signer, either.
            Expiration::At(_) | Expiration::Invalid => vec![Action::delete(secret.as_ref())],
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use controllers_runtime::describe_actions;
    use serde_json::json;

    #[test]
    fn secret_is_deleted_when_its_token_expires() {
        let clean = |expiration: Option<&str>, deleting: Option<&str>| {
            let data = expiration.map(|text| json!({"expiration": STANDARD.encode(text)}));
            let secret: Secret = serde_json::from_value(json!({"metadata": {"name": "s",
                "namespace": "kube-system", "deletionTimestamp": deleting}, "data": data}))
            .unwrap();
            let cleaner = TokenCleaner {
                secrets: Cache::with_objects(vec![secret]),
            };
            let now = "2026-01-01T00:00:00Z".parse().unwrap();
            describe_actions(&cleaner.reconcile("kube-system/s", now))
        };
        for (expiration, expected) in [
            (None, None),
            (Some(""), None),
            (Some("2026-01-01T00:01:30Z"), Some("requeue 90s")),
            (Some("2026-01-01T00:00:00Z"), Some("delete Secret s")),
            (Some("soon"), Some("delete Secret s")),
        ] {
            let found = clean(expiration, None);
            assert_eq!(
                found.first().map(String::as_str),
                expected,
                "{expiration:?}"
            );
        }
        let deleting = clean(Some("soon"), Some("2025-12-31T00:00:00Z"));
        assert!(deleting.is_empty());
    }
}
