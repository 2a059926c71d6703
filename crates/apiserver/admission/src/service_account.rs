//! Sets a pod's ServiceAccount (the default one if none is given) and mounts its token unless opted
//! out.

use crate::context::{Context, forbidden, is_for, list, push, text};
use crate::mountable_secrets;
use api_meta::{ApiError, Meta, names};
use apiserver_request::{Admission, AdmissionRequest, Operation};
use rand::Rng;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME_PREFIX: &str = "kube-api-access-";
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
            return mirror(request);
        }
        if text(&request.object, "/spec/serviceAccountName").is_empty() {
            request.object["spec"]["serviceAccountName"] = "default".into();
        }
        let name = text(&request.object, "/spec/serviceAccountName").to_owned();
        let account = self
            .account(request.namespace, &name)
            .await
            .map_err(|why| {
                forbidden(
                    request,
                    format!(
                        "error looking up service account {}/{name}: {why}",
                        request.namespace
                    ),
                )
            })?;
        request.object["spec"]["serviceAccount"] = name.into();
        if automount(&account, &request.object) {
            mount(&mut request.object["spec"]);
        }
        let secrets = list(&account, "/imagePullSecrets");
        if list(&request.object, "/spec/imagePullSecrets").is_empty() && !secrets.is_empty() {
            request.object["spec"]["imagePullSecrets"] = secrets.to_vec().into();
        }
        Ok(())
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let counts = matches!(
            (request.operation, request.subresource),
            (Operation::Create, "") | (Operation::Update, "ephemeralcontainers")
        );
        let name = text(&request.object, "/spec/serviceAccountName");
        if !request.group.is_empty() || request.resource != "pods" || !counts || name.is_empty() {
            return Ok(());
        }
        let account = self
            .0
            .find("", "serviceaccounts", request.namespace, name)
            .await?;
        match account
            .and_then(|account| mountable_secrets::find_forbidden(&request.object, &account))
        {
            Some(why) => Err(forbidden(request, why)),
            None => Ok(()),
        }
    }
}

impl ServiceAccount {
    async fn account(&self, namespace: &str, name: &str) -> Result<Arc<Value>, String> {
        let problems = names::path_segment(name);
        if !problems.is_empty() {
            return Err(format!(
                "invalid resource name {name:?}: [{}]",
                problems.join(", ")
            ));
        }
        let attempts = if name == "default" { ATTEMPTS } else { 1 };
        for attempt in 0..attempts {
            if attempt > 0 {
                tokio::time::sleep(PAUSE).await;
            }
            let found = self.0.find("", "serviceaccounts", namespace, name).await;
            if let Some(account) = found.map_err(|e| e.to_string())? {
                return Ok(account);
            }
        }
        Err(format!("serviceaccount {name:?} not found"))
    }
}

/// Checks mirror pods: like static pods, they may not use API objects.
fn mirror(request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
    if !text(&request.object, "/spec/serviceAccountName").is_empty() {
        return Err(forbidden(
            request,
            "a mirror pod may not reference service accounts",
        ));
    }
    let volumes = list(&request.object, "/spec/volumes");
    if volumes
        .iter()
        .any(|v| v.get("secret").is_some_and(|s| !s.is_null()))
    {
        return Err(forbidden(request, "a mirror pod may not reference secrets"));
    }
    let token = |v: &Value| {
        list(v, "/projected/sources")
            .iter()
            .any(|s| s.get("serviceAccountToken").is_some())
    };
    if volumes.iter().any(token) {
        return Err(forbidden(
            request,
            "a mirror pod may not use ServiceAccountToken volume projections",
        ));
    }
    Ok(())
}

fn automount(account: &Value, pod: &Value) -> bool {
    let said = |v: Option<&Value>| v.and_then(Value::as_bool);
    said(pod.pointer("/spec/automountServiceAccountToken"))
        .or_else(|| said(account.get("automountServiceAccountToken")))
        .unwrap_or(true)
}

fn mount(spec: &mut Value) {
    let existing = list(spec, "/volumes")
        .iter()
        .map(|v| text(v, "/name"))
        .find(|n| n.starts_with(VOLUME_PREFIX));
    let (volume, found) = match existing {
        Some(name) => (name.to_owned(), true),
        None => (format!("{VOLUME_PREFIX}{}", suffix()), false),
    };
    let mut needed = false;
    for field in ["initContainers", "containers"] {
        for container in spec
            .get_mut(field)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            if list(container, "/volumeMounts")
                .iter()
                .any(|m| text(m, "/mountPath") == MOUNT_PATH)
            {
                continue;
            }
            let one = json!({"name": volume, "readOnly": true, "mountPath": MOUNT_PATH});
            push(container, "volumeMounts", one);
            needed = true;
        }
    }
    if needed && !found {
        push(
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

fn suffix() -> String {
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
        mount(&mut spec);
        let name = text(&spec, "/volumes/0/name").to_owned();
        assert!(
            name.starts_with(VOLUME_PREFIX) && name.len() == VOLUME_PREFIX.len() + 5,
            "{name}"
        );
        assert_eq!(text(&spec, "/containers/0/volumeMounts/0/name"), name);
        assert_eq!(list(&spec, "/containers/1/volumeMounts").len(), 1);
        assert_eq!(text(&spec, "/initContainers/0/volumeMounts/0/name"), name);
        mount(&mut spec);
        assert_eq!(list(&spec, "/volumes").len(), 1);
    }

    #[test]
    fn the_pod_decides_before_the_account() {
        let no = json!({"automountServiceAccountToken": false});
        let yes = json!({"spec": {"automountServiceAccountToken": true}});
        assert!(automount(&no, &yes));
        assert!(!automount(&no, &json!({"spec": {}})));
        assert!(automount(&json!({}), &json!({"spec": {}})));
    }
}
