//! Sets a pod's ServiceAccount (the default one if none is given) and mounts its token unless opted
//! out.

use crate::context::{Context, forbidden_error, is_for, list_at, push_item, string_at};
use crate::mountable_secrets;
use api_meta::{ApiError, Meta, names};
use apiserver_request::{Admission, AdmissionRequest, Operation};
use rand::Rng;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME_PREFIX: &str = "kube-api-access-";
// The odd seconds mark a token that was mounted by default: the issuer extends exactly this
// lifetime for old clients that never read the file again.
const TOKEN_SECONDS: i64 = 3607;
/// Attempts to find the default account: a controller creates it shortly after its namespace.
const ATTEMPTS: usize = 10;
const PAUSE: Duration = Duration::from_millis(100);

/// Sets accounts and token volumes of pods.
pub struct ServiceAccount(pub Context);

#[async_trait::async_trait]
impl Admission for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        if !is_for(request, "", "pods") || request.operation != Operation::Create {
            return Ok(());
        }
        if request
            .object
            .annotation("kubernetes.io/config.mirror")
            .is_some()
        {
            // A static pod runs without the API server, so its mirror can have no account.
            return check_mirror_pod(request);
        }
        if string_at(&request.object, "/spec/serviceAccountName").is_empty() {
            request.object["spec"]["serviceAccountName"] = "default".into();
        }
        let name = string_at(&request.object, "/spec/serviceAccountName").to_owned();
        let account = self
            .find_account(request.namespace, &name)
            .await
            .map_err(|why| {
                forbidden_error(
                    request,
                    format!(
                        "error looking up service account {}/{name}: {why}",
                        request.namespace
                    ),
                )
            })?;
        // The deprecated name of the field, which old clients still read.
        request.object["spec"]["serviceAccount"] = name.into();
        if is_automounted(&account, &request.object) {
            mount_token(&mut request.object["spec"]);
        }
        let secrets = list_at(&account, "/imagePullSecrets");
        // A pod with pull Secrets of its own gets none of the account.
        if list_at(&request.object, "/spec/imagePullSecrets").is_empty() && !secrets.is_empty() {
            request.object["spec"]["imagePullSecrets"] = secrets.to_vec().into();
        }
        Ok(())
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let counts = matches!(
            (request.operation, request.subresource),
            (Operation::Create, "") | (Operation::Update, "ephemeralcontainers")
        );
        let name = string_at(&request.object, "/spec/serviceAccountName");
        // An ephemeral container can name Secrets in its environment, so that it is checked like a
        // new pod.
        if !request.group.is_empty() || request.resource != "pods" || !counts || name.is_empty() {
            return Ok(());
        }
        let account = self
            .0
            .find_object("", "serviceaccounts", request.namespace, name)
            .await?;
        match account
            .and_then(|account| mountable_secrets::find_forbidden(&request.object, &account))
        {
            Some(why) => Err(forbidden_error(request, why)),
            None => Ok(()),
        }
    }
}

impl ServiceAccount {
    async fn find_account(&self, namespace: &str, name: &str) -> Result<Arc<Value>, String> {
        // The name becomes a part of a storage key, and a slash would lead to another object.
        let problems = names::path_segment(name);
        if !problems.is_empty() {
            return Err(format!(
                "invalid resource name {name:?}: [{}]",
                problems.join(", ")
            ));
        }
        // Only the default account is created by a controller; any other one must exist.
        let attempts = if name == "default" { ATTEMPTS } else { 1 };
        for attempt in 0..attempts {
            if attempt > 0 {
                tokio::time::sleep(PAUSE).await;
            }
            let found = self
                .0
                .find_object("", "serviceaccounts", namespace, name)
                .await;
            if let Some(account) = found.map_err(|e| e.to_string())? {
                return Ok(account);
            }
        }
        Err(format!("serviceaccount {name:?} not found"))
    }
}

/// Checks mirror pods: like static pods, they may not use API objects.
fn check_mirror_pod(request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
    // NodeRestriction binds only kubelets. Mirror pods of other creators are limited here.
    if !string_at(&request.object, "/spec/serviceAccountName").is_empty() {
        return Err(forbidden_error(
            request,
            "a mirror pod may not reference service accounts",
        ));
    }
    let volumes = list_at(&request.object, "/spec/volumes");
    if volumes
        .iter()
        .any(|v| v.get("secret").is_some_and(|s| !s.is_null()))
    {
        return Err(forbidden_error(
            request,
            "a mirror pod may not reference secrets",
        ));
    }
    let token = |v: &Value| {
        list_at(v, "/projected/sources")
            .iter()
            .any(|s| s.get("serviceAccountToken").is_some())
    };
    if volumes.iter().any(token) {
        return Err(forbidden_error(
            request,
            "a mirror pod may not use ServiceAccountToken volume projections",
        ));
    }
    Ok(())
}

fn is_automounted(account: &Value, pod: &Value) -> bool {
    let setting = |v: Option<&Value>| v.and_then(Value::as_bool);
    // The pod overrides its account: one workload may need a token in a namespace that mounts none.
    setting(pod.pointer("/spec/automountServiceAccountToken"))
        .or_else(|| setting(account.get("automountServiceAccountToken")))
        .unwrap_or(true)
}

fn mount_token(spec: &mut Value) {
    // A client may send back a spec that already holds the volume of an earlier create.
    let existing = list_at(spec, "/volumes")
        .iter()
        .map(|v| string_at(v, "/name"))
        .find(|n| n.starts_with(VOLUME_PREFIX));
    let (volume, found) = match existing {
        Some(name) => (name.to_owned(), true),
        None => (format!("{VOLUME_PREFIX}{}", random_suffix()), false),
    };
    let mut needed = false;
    for field in ["initContainers", "containers"] {
        for container in spec
            .get_mut(field)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            // A container that mounts something at the path has opted out, by the same rule as
            // upstream.
            if list_at(container, "/volumeMounts")
                .iter()
                .any(|m| string_at(m, "/mountPath") == MOUNT_PATH)
            {
                continue;
            }
            let one = json!({"name": volume, "readOnly": true, "mountPath": MOUNT_PATH});
            push_item(container, "volumeMounts", one);
            needed = true;
        }
    }
    // No volume without a mount: the kubelet would keep refreshing a token that nothing reads.
    if needed && !found {
        push_item(
            spec,
            "volumes",
            json!({"name": volume, "projected": token_source()}),
        );
    }
}

fn token_source() -> Value {
    json!({"defaultMode": 0o644, "sources": [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}}]})
}

fn random_suffix() -> String {
    // Upstream's alphabet for generated names: no vowels, no look-alikes.
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut rng = rand::rng();
    (0..5)
        .filter_map(|_| ALPHABET.get(rng.random_range(0..ALPHABET.len())))
        .map(|b| char::from(*b))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_mounted_into_every_container_once() {
        let mut spec = json!({"containers": [{"name": "a"}, {"name": "b", "volumeMounts": [{"name": "x", "mountPath": MOUNT_PATH}]}],
            "initContainers": [{"name": "i"}]});
        mount_token(&mut spec);
        let name = string_at(&spec, "/volumes/0/name").to_owned();
        assert!(
            name.starts_with(VOLUME_PREFIX) && name.len() == VOLUME_PREFIX.len() + 5,
            "{name}"
        );
        assert_eq!(string_at(&spec, "/containers/0/volumeMounts/0/name"), name);
        assert_eq!(list_at(&spec, "/containers/1/volumeMounts").len(), 1);
        assert_eq!(
            string_at(&spec, "/initContainers/0/volumeMounts/0/name"),
            name
        );
        mount_token(&mut spec);
        assert_eq!(list_at(&spec, "/volumes").len(), 1);
    }

    #[test]
    fn automount_of_the_pod_overrides_that_of_the_account() {
        let no = json!({"automountServiceAccountToken": false});
        let yes = json!({"spec": {"automountServiceAccountToken": true}});
        assert!(is_automounted(&no, &yes));
        assert!(!is_automounted(&no, &json!({"spec": {}})));
        assert!(is_automounted(&json!({}), &json!({"spec": {}})));
    }
}
