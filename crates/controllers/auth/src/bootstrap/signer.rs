//! Signs the kubeconfig in the ConfigMap `cluster-info` of kube-public with each bootstrap token.
//!
//! A machine that holds a token can verify the address and the CA of the cluster with it, before it
//! trusts any certificate.

use std::collections::BTreeMap;

use api_bootstrap::{
    CLUSTER_INFO, CLUSTER_INFO_NAMESPACE, Expiration, KUBECONFIG_KEY, SIGNATURE_PREFIX,
    TokenSecret, sign_content,
};
use client::ListParams;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use controllers_runtime::{Action, Cache, Decide, Meta, Queue, Setup, time};

struct BootstrapSigner {
    secrets: Cache<Secret>,
    maps: Cache<ConfigMap>,
}

/// Sets up the signing of cluster-info.
pub fn add_bootstrap_signer(setup: &mut Setup) {
    let queue = Queue::new();
    let key = format!("{CLUSTER_INFO_NAMESPACE}/{CLUSTER_INFO}");
    let (changed, own) = (queue.clone(), key.clone());
    let secrets = super::declare_token_secrets(setup)
        .on_event(move |_| changed.add(own.clone()))
        .cache();
    let changed = queue.clone();
    let only = ListParams::default().with_fields(format!(
        "metadata.namespace={CLUSTER_INFO_NAMESPACE},metadata.name={CLUSTER_INFO}"
    ));
    let maps = setup
        .informers
        .for_selected::<ConfigMap>(only)
        .on_event(move |_| changed.add(key.clone()))
        .cache();
    setup.add_reconciler(
        "bootstrap-signer",
        1,
        queue,
        BootstrapSigner { secrets, maps },
    );
}

/// Returns the actions for cluster-info: a signature for each token that may sign, and no other.
pub fn reconcile_cluster_info(
    map: &ConfigMap,
    tokens: &[TokenSecret],
    now: Timestamp,
) -> Vec<Action> {
    let data = map.data.as_ref();
    let Some(content) = data.and_then(|data| data.get(KUBECONFIG_KEY)) else {
        return Vec::new();
    };
    if map.is_deleting() {
        return Vec::new();
    }
    let mut fresh: BTreeMap<String, String> = data
        .into_iter()
        .flatten()
        .filter(|(key, _)| !key.starts_with(SIGNATURE_PREFIX))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let signing = tokens.iter().filter_map(|token| token.signing_token(now));
    fresh.extend(signing.map(|token| {
        let key = format!("{SIGNATURE_PREFIX}{}", token.id());
        (key, sign_content(content, token))
    }));
    let mut actions = Vec::new();
    if Some(&fresh) != data {
        let mut map = map.clone();
        map.data = Some(fresh);
        actions.push(Action::update(&map));
    }
    // The token cleaner may be disabled or late; a signature must not outlive its token.
    let ends = tokens.iter().filter(|token| token.signs);
    let ends = ends.filter_map(|token| match token.expiration {
        Expiration::At(end) if end > now => Some(end),
        _ => None,
    });
    actions.extend(
        ends.min()
            .map(|end| Action::Requeue(time::duration_until(end, now))),
    );
    actions
}

impl Decide for BootstrapSigner {
    fn reconcile(&self, key: &str, now: Timestamp) -> Vec<Action> {
        let Some(map) = self.maps.get(key) else {
            return Vec::new();
        };
        let secrets = self.secrets.list();
        let tokens: Vec<_> = secrets
            .iter()
            .filter_map(|s| TokenSecret::read(s))
            .collect();
        reconcile_cluster_info(&map, &tokens, now)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use controllers_runtime::describe_actions;
    use serde_json::{Value, json};

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn map(data: Value) -> ConfigMap {
        serde_json::from_value(
            json!({"metadata": {"name": CLUSTER_INFO, "namespace": CLUSTER_INFO_NAMESPACE},
            "data": data}),
        )
        .unwrap()
    }

    fn token(text: &str, expiration: Option<&str>, signs: bool) -> TokenSecret {
        TokenSecret {
            token: text.parse().unwrap(),
            description: String::new(),
            expiration: expiration.map_or(Expiration::Never, |text| {
                Expiration::At(text.parse().unwrap())
            }),
            signs,
            authenticates: true,
            groups: Vec::new(),
        }
    }

    /// Returns the keys of the updated map, and the lines of all actions.
    fn reconcile(data: Value, tokens: &[TokenSecret]) -> (Vec<String>, Vec<String>) {
        let actions = reconcile_cluster_info(&map(data), tokens, NOW.parse().unwrap());
        let keys = actions
            .first()
            .and_then(|action| action.as_write()?.body["data"].as_object())
            .map(|data| data.keys().cloned().collect())
            .unwrap_or_default();
        (keys, describe_actions(&actions))
    }

    #[test]
    fn each_signing_token_has_a_signature_and_no_other_has() {
        let tokens = [
            token("aaaaaa.0123456789abcdef", None, true),
            token(
                "bbbbbb.0123456789abcdef",
                Some("2026-01-01T00:01:00Z"),
                true,
            ),
            token("cccccc.0123456789abcdef", Some(NOW), true),
            token("dddddd.0123456789abcdef", None, false),
        ];
        let before = json!({"kubeconfig": "k", "other": "o", "jws-kubeconfig-cccccc": "x",
            "jws-kubeconfig-dddddd": "x", "jws-kubeconfig-gone00": "x"});
        let (keys, lines) = reconcile(before, &tokens);
        assert_eq!(
            keys,
            [
                "jws-kubeconfig-aaaaaa",
                "jws-kubeconfig-bbbbbb",
                "kubeconfig",
                "other"
            ]
        );
        assert_eq!(lines, ["update ConfigMap cluster-info", "requeue 60s"]);
    }

    #[test]
    fn signed_map_is_left_alone_until_its_content_or_a_token_changes() {
        let own = token("aaaaaa.0123456789abcdef", None, true);
        let signed = |content: &str, with: &TokenSecret| {
            json!({"kubeconfig": content,
                "jws-kubeconfig-aaaaaa": sign_content(content, &with.token)})
        };
        let tokens = [own.clone()];
        let update = ["update ConfigMap cluster-info"];
        assert!(reconcile(signed("k", &own), &tokens).1.is_empty());
        let mut edited = signed("k", &own);
        edited["kubeconfig"] = "edited".into();
        assert_eq!(reconcile(edited, &tokens).1, update);
        let other = token("aaaaaa.fedcba9876543210", None, true);
        assert_eq!(reconcile(signed("k", &other), &tokens).1, update);
        assert_eq!(reconcile(signed("k", &own), &[]).1, update);
    }

    #[test]
    fn map_without_a_kubeconfig_is_left_alone() {
        let tokens = [token("aaaaaa.0123456789abcdef", None, true)];
        for data in [
            json!(null),
            json!({}),
            json!({"jws-kubeconfig-aaaaaa": "x"}),
        ] {
            assert!(reconcile(data, &tokens).1.is_empty());
        }
    }
}
