//! References of pods and volumes to other objects.

use super::target::Target;
use api_meta::tree::find;
use serde_json::Value;

fn each_item<'a>(v: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    v.get(field).and_then(Value::as_array).into_iter().flatten()
}

fn name_at(v: &Value, pointer: &str) -> Option<String> {
    find(v, pointer)
        .and_then(Value::as_str)
        .filter(|s| !s.is_empty())
        .map(str::to_owned)
}

/// Volume sources that name a Secret of the pod's namespace, with the pointer to the name.
// In-tree drivers name their Secrets in fields of their own; a missing one would make such volumes
// unmountable.
const VOLUME_SECRETS: [&str; 11] = [
    "/secret/secretName",
    "/cephfs/secretRef/name",
    "/flexVolume/secretRef/name",
    "/iscsi/secretRef/name",
    "/rbd/secretRef/name",
    "/scaleIO/secretRef/name",
    "/storageos/secretRef/name",
    "/azureFile/secretName",
    "/cinder/secretRef/name",
    "/csi/nodePublishSecretRef/name",
    "/glusterfs/secretRef/name",
];

/// Returns all objects that a pod uses, by kind and name, in the pod's namespace.
pub fn of_pod(pod: &Value) -> Vec<(Target, String)> {
    let spec = &pod["spec"];
    let mut out = Vec::new();
    out.extend(name_at(spec, "/serviceAccountName").map(|n| (Target::Account, n)));
    out.extend(
        each_item(spec, "imagePullSecrets")
            .filter_map(|s| name_at(s, "/name"))
            .map(|n| (Target::Secret, n)),
    );
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        each_item(spec, list).for_each(|c| container_references(c, &mut out));
    }
    let pod_name = pod["metadata"]["name"].as_str().unwrap_or_default();
    each_item(spec, "volumes").for_each(|v| volume_references(v, pod_name, &mut out));
    for claim in
        // Claims made from a template have a generated name, which only the status holds.
        each_item(spec, "resourceClaims")
            .chain(each_item(&pod["status"], "resourceClaimStatuses"))
    {
        out.extend(name_at(claim, "/resourceClaimName").map(|n| (Target::ResourceClaim, n)));
    }
    out
}

fn container_references(container: &Value, out: &mut Vec<(Target, String)>) {
    for env in each_item(container, "env") {
        out.extend(name_at(env, "/valueFrom/secretKeyRef/name").map(|n| (Target::Secret, n)));
        out.extend(name_at(env, "/valueFrom/configMapKeyRef/name").map(|n| (Target::ConfigMap, n)));
    }
    for from in each_item(container, "envFrom") {
        out.extend(name_at(from, "/secretRef/name").map(|n| (Target::Secret, n)));
        out.extend(name_at(from, "/configMapRef/name").map(|n| (Target::ConfigMap, n)));
    }
}

fn volume_references(volume: &Value, pod_name: &str, out: &mut Vec<(Target, String)>) {
    out.extend(
        VOLUME_SECRETS
            .iter()
            .filter_map(|p| name_at(volume, p))
            .map(|n| (Target::Secret, n)),
    );
    out.extend(name_at(volume, "/configMap/name").map(|n| (Target::ConfigMap, n)));
    out.extend(name_at(volume, "/persistentVolumeClaim/claimName").map(|n| (Target::Claim, n)));
    if volume.get("ephemeral").is_some_and(|e| !e.is_null()) {
        // The name that the ephemeral volume controller gives to the claim.
        let own = volume["name"].as_str().unwrap_or_default();
        out.push((Target::Claim, format!("{pod_name}-{own}")));
    }
    for source in each_item(&volume["projected"], "sources") {
        out.extend(name_at(source, "/secret/name").map(|n| (Target::Secret, n)));
        out.extend(name_at(source, "/configMap/name").map(|n| (Target::ConfigMap, n)));
    }
}

/// Returns Secrets that a persistent volume names; without a namespace of their own they are in the
/// claim's.
pub fn of_volume(volume: &Value, claim_namespace: &str) -> Vec<(String, String)> {
    const PLACES: [&str; 10] = [
        "/csi/nodePublishSecretRef",
        "/csi/nodeStageSecretRef",
        "/csi/nodeExpandSecretRef",
        "/csi/controllerPublishSecretRef",
        "/cephfs/secretRef",
        "/rbd/secretRef",
        "/iscsi/secretRef",
        "/flexVolume/secretRef",
        "/scaleIO/secretRef",
        "/storageos/secretRef",
    ];
    let spec = &volume["spec"];
    let mut out = Vec::new();
    for reference in PLACES.iter().filter_map(|p| find(spec, p)) {
        if let Some(name) = name_at(reference, "/name") {
            let namespace =
                // Secrets of a PersistentVolume may be in any namespace; without one, they are in
                // the claim's.
                name_at(reference, "/namespace").unwrap_or_else(|| claim_namespace.to_owned());
            out.push((namespace, name));
        }
    }
    if let Some(name) = name_at(spec, "/azureFile/secretName") {
        let namespace = name_at(spec, "/azureFile/secretNamespace")
            .unwrap_or_else(|| claim_namespace.to_owned());
        out.push((namespace, name));
    }
    out
}
