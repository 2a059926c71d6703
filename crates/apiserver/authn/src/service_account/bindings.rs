//! Checks that the objects that a token is bound to still exist.

use super::claims::{Claims, Reference};
use crate::secret;
use api_meta::Meta;
use apiserver_request::{GroupResource, Objects};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::sync::Arc;

/// Seconds for which an object still counts after its deletion was requested.
// Clocks of API servers and kubelets differ, and a container that shuts down may still make its
// last requests.
const DELETION_LEEWAY: i64 = 60;

/// The account of a token, and the Secret that it is bound to or stored in.
pub struct Bound {
    pub account: Arc<Value>,
    pub secret: Option<Arc<Value>>,
}

/// Checks the account, pod, Secret and node of `claims`. The error is only for the log.
pub async fn check_bindings(
    claims: &Claims,
    token: &str,
    objects: &Arc<dyn Objects>,
) -> Result<Bound, String> {
    let now = jiff::Timestamp::now().as_second();
    let namespace = claims.namespace.as_str();
    // Checked at each request, not only when the token was verified: deleting the account must
    // revoke its tokens at once.
    let account = read_current(objects, "serviceaccounts", namespace, &claims.account).await;
    let account = check_alive(account, &claims.account, "service account", now)?;
    let mut secret = None;
    if let Some(reference) = &claims.secret {
        let stored = read_current(objects, "secrets", namespace, reference).await;
        let stored = check_alive(stored, reference, "secret", now)?;
        // A legacy token has no expiration: deleting its Secret is the way to revoke it.
        if claims.is_legacy() {
            check_secret(&stored, token)?;
        }
        secret = Some(stored);
    }
    if let Some(pod) = &claims.pod {
        check_alive(
            read_current(objects, "pods", namespace, pod).await,
            pod,
            "pod",
            now,
        )?;
    } else if let Some(node) = &claims.node {
        // A pod's token also names its node, for information. Only a token bound to the node itself
        // depends on it.
        check_alive(
            read_current(objects, "nodes", "", node).await,
            node,
            "node",
            now,
        )?;
    }
    Ok(Bound { account, secret })
}

/// Checks that the Secret of a legacy token holds it.
fn check_secret(stored: &Value, token: &str) -> Result<(), String> {
    let data = stored["data"]["token"]
        .as_str()
        .and_then(|t| STANDARD.decode(t).ok())
        .unwrap_or_default();
    // Any other Secret could hold a copied token, which its owner may not be allowed to keep valid.
    if stored["type"] != "kubernetes.io/service-account-token"
        || !secret::is_same_digest(&data, token.as_bytes())
    {
        return Err("the token is not the one in its secret".into());
    }
    if !stored.meta_str("deletionTimestamp").is_empty() {
        return Err("the secret of the token is being deleted".into());
    }
    Ok(())
}

/// Returns the object from the watch cache, or from the store if the cache has none or one with
/// another uid.
async fn read_current(
    objects: &Arc<dyn Objects>,
    resource: &str,
    namespace: &str,
    wanted: &Reference,
) -> Option<Arc<Value>> {
    let resource = GroupResource::new("", resource);
    let cached = objects.cached_object(&resource, namespace, &wanted.name);
    if cached
        .as_ref()
        // The cache may still hold the former object of this name.
        .is_some_and(|o| wanted.uid.is_empty() || o.uid() == wanted.uid)
    {
        return cached;
    }
    objects
        // A token may be used at another API server before its cache has the new object.
        .read_live(&resource, namespace, &wanted.name)
        .await
        .ok()
        .flatten()
        .map(Arc::new)
}

fn check_alive(
    object: Option<Arc<Value>>,
    wanted: &Reference,
    what: &str,
    now: i64,
) -> Result<Arc<Value>, String> {
    let object = object.ok_or_else(|| format!("the {what} {:?} is gone", wanted.name))?;
    if !wanted.uid.is_empty() && object.uid() != wanted.uid {
        return Err(format!(
            "the {what} {:?} is another one by now",
            wanted.name
        ));
    }
    // A pod that terminates gracefully still needs its token.
    let deleted = api_meta::time::parse(object.meta_str("deletionTimestamp"));
    if deleted.is_some_and(|at| at.as_second() + DELETION_LEEWAY < now) {
        return Err(format!("the {what} {:?} is being deleted", wanted.name));
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn legacy_token_needs_its_secret() {
        let secret = |kind: &str, deleted: Option<&str>| {
            json!({"type": kind, "data": {"token": STANDARD.encode("t")},
                "metadata": {"name": "s", "deletionTimestamp": deleted}})
        };
        const TYPE: &str = "kubernetes.io/service-account-token";
        for (secret, token, expect) in [
            (secret(TYPE, None), "t", true),
            (secret(TYPE, None), "u", false),
            (secret("Opaque", None), "t", false),
            (secret(TYPE, Some("2026-01-01T00:00:00Z")), "t", false),
        ] {
            assert_eq!(check_secret(&secret, token).is_ok(), expect, "{secret}");
        }
    }
}
