//! Reads a static pod's manifest: defaults, validation, and the features that need an API object
//! and are rejected.
//!
//! Names and uid of the manifest become parts of paths that root writes to, so everything is
//! validated.

use super::{HASH, SEEN};
use crate::pod_source::SOURCE;
use api_defaulting::default_object;
use api_meta::Kind;
use api_validation::validate_create;
use client::Decode;
use k8s_openapi::api::core::v1::{Container, Pod, Volume, VolumeProjection};
use serde_json::{Value, json};
use sha2::Digest;
use std::path::Path;

const POD: Kind<'static> = Kind {
    group: "",
    version: "v1",
    kind: "Pod",
    namespaced: true,
};

/// The reason why a manifest is rejected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ManifestError {
    #[error("can't be read: {0}")]
    Read(#[from] std::io::Error),
    #[error("is no YAML or JSON of a Pod: {0}")]
    Syntax(#[from] serde_yaml::Error),
    #[error("is no Pod: {0}")]
    Shape(#[from] serde_json::Error),
    #[error("has no metadata.name")]
    NoName,
    #[error("has a metadata.uid that is not made of at most 128 letters, digits and dashes")]
    Uid,
    #[error("is invalid: {0}")]
    Invalid(String),
    #[error("may not reference {0}: static pods can't use objects of the API server")]
    Reference(&'static str),
}

/// Reads the pod of one manifest. Its uid is a hash of node, path and content, unless the manifest
/// has one.
pub(crate) fn read_manifest(path: &Path, node: &str) -> Result<Pod, ManifestError> {
    let text = std::fs::read_to_string(path)?;
    // The node's name too: the same manifest on two nodes makes two mirror pods.
    let digest = sha2::Sha256::digest(format!("{node}\n{}\n{text}", path.display()));
    let hash: String = digest.iter().take(16).map(|b| format!("{b:02x}")).collect();
    parse_manifest(&text, node, &hash)
}

fn parse_manifest(text: &str, node: &str, hash: &str) -> Result<Pod, ManifestError> {
    let mut object: Value = serde_yaml::from_str(text)?;
    complete_object(&mut object, node, hash)?;
    // Typed first: the rules below expect fields of the right types.
    let given = Pod::decode_tree(&object)?;
    if let Some(what) = find_api_reference(&given) {
        return Err(ManifestError::Reference(what));
    }
    default_object(POD, &mut object);
    // The API server, which validates other pods, never sees this one.
    let errors = validate_create(POD, &object);
    if !errors.is_empty() {
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        return Err(ManifestError::Invalid(texts.join(", ")));
    }
    Ok(Pod::decode_tree(&object)?)
}

/// Adds the fields that make a manifest a pod of this node.
fn complete_object(object: &mut Value, node: &str, hash: &str) -> Result<(), ManifestError> {
    let name = object
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .filter(|n| !n.is_empty());
    let name = format!("{}-{node}", name.ok_or(ManifestError::NoName)?);
    let metadata = object
        .pointer_mut("/metadata")
        .and_then(Value::as_object_mut)
        .ok_or(ManifestError::NoName)?;
    metadata.insert("name".into(), json!(name));
    let missing = |value: Option<&Value>| value.is_none_or(|v| v.is_null() || v == "");
    if missing(metadata.get("namespace")) {
        metadata.insert("namespace".into(), json!("default"));
    }
    if missing(metadata.get("uid")) {
        metadata.insert("uid".into(), json!(hash));
    }
    let fine =
        |uid: &str| uid.len() <= 128 && uid.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    if !metadata
        .get("uid")
        .and_then(Value::as_str)
        .is_some_and(fine)
    {
        return Err(ManifestError::Uid);
    }
    if missing(metadata.get("annotations")) {
        metadata.insert("annotations".into(), json!({}));
    }
    if let Some(annotations) = metadata
        .get_mut("annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.insert(HASH.into(), json!(hash));
        annotations.insert(SOURCE.into(), json!("file"));
        annotations.insert(SEEN.into(), json!(jiff::Timestamp::now().to_string()));
    }
    if let Some(spec) = object.pointer_mut("/spec").and_then(Value::as_object_mut) {
        spec.insert("nodeName".into(), json!(node));
        // The taint manager must not evict a pod that only its manifest can remove.
        let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
        if let Some(list) = tolerations.as_array_mut() {
            list.push(json!({"operator": "Exists", "effect": "NoExecute"}));
        }
    }
    if let Some(object) = object.as_object_mut() {
        // A status in the manifest could claim that the pod has already finished.
        object.remove("status");
    }
    Ok(())
}

/// Returns the kind of API objects that a pod references, if any.
fn find_api_reference(pod: &Pod) -> Option<&'static str> {
    let spec = crate::pod::spec::read_spec(pod);
    let named = |name: &Option<String>| name.as_deref().is_some_and(|n| !n.is_empty());
    if named(&spec.service_account_name) || named(&spec.service_account) {
        return Some("serviceaccounts");
    }
    if spec
        .image_pull_secrets
        .as_ref()
        .is_some_and(|s| !s.is_empty())
    {
        return Some("secrets");
    }
    if spec.resource_claims.as_ref().is_some_and(|c| !c.is_empty()) {
        return Some("resourceclaims");
    }
    let init = spec.init_containers.iter().flatten();
    init.chain(&spec.containers)
        .find_map(of_container)
        .or_else(|| spec.volumes.iter().flatten().find_map(of_volume))
}

fn of_container(container: &Container) -> Option<&'static str> {
    for from in container.env_from.iter().flatten() {
        if from.secret_ref.is_some() {
            return Some("secrets");
        }
        if from.config_map_ref.is_some() {
            return Some("configmaps");
        }
    }
    for from in container
        .env
        .iter()
        .flatten()
        .filter_map(|v| v.value_from.as_ref())
    {
        if from.secret_key_ref.is_some() {
            return Some("secrets");
        }
        if from.config_map_key_ref.is_some() {
            return Some("configmaps");
        }
    }
    None
}

fn of_volume(volume: &Volume) -> Option<&'static str> {
    if let Some(projected) = &volume.projected {
        return projected.sources.iter().flatten().find_map(of_projection);
    }
    let table = [
        (volume.config_map.is_some(), "configmaps"),
        (volume.secret.is_some(), "secrets"),
        (
            volume.persistent_volume_claim.is_some(),
            "persistentvolumeclaims",
        ),
        (volume.ephemeral.is_some(), "persistentvolumeclaims"),
        (volume.csi.is_some(), "csidrivers"),
        (volume.glusterfs.is_some(), "endpoints"),
        (volume.azure_file.is_some(), "secrets"),
    ];
    table
        .into_iter()
        .find(|(used, _)| *used)
        .map(|(_, what)| what)
}

fn of_projection(source: &VolumeProjection) -> Option<&'static str> {
    let table = [
        (source.config_map.is_some(), "configmaps"),
        (source.secret.is_some(), "secrets"),
        (source.service_account_token.is_some(), "serviceaccounts"),
        (source.cluster_trust_bundle.is_some(), "clustertrustbundles"),
        (source.pod_certificate.is_some(), "podcertificates"),
    ];
    table
        .into_iter()
        .find(|(used, _)| *used)
        .map(|(_, what)| what)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn manifest(metadata: Value, spec: Value) -> Result<Pod, ManifestError> {
        let mut whole = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
        for (key, more) in [("metadata", metadata), ("spec", spec)] {
            whole[key]
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
        }
        parse_manifest(&whole.to_string(), "n1", "abc")
    }

    #[test]
    fn manifest_becomes_a_pod_of_the_node_with_defaults() {
        let pod = manifest(json!({}), json!({})).unwrap();
        assert_eq!(pod.metadata.name.as_deref(), Some("web-n1"));
        assert_eq!(pod.metadata.uid.as_deref(), Some("abc"));
        assert_eq!(pod.metadata.namespace.as_deref(), Some("default"));
        let spec = pod.spec.unwrap();
        assert_eq!(spec.node_name.as_deref(), Some("n1"));
        assert_eq!(
            spec.containers[0].image_pull_policy.as_deref(),
            Some("IfNotPresent")
        );
        assert_eq!(spec.restart_policy.as_deref(), Some("Always"));
    }

    #[test]
    fn names_that_lead_out_of_the_pods_folder_are_refused() {
        for (metadata, spec) in [
            (json!({"uid": "../../etc"}), json!({})),
            (json!({"uid": "a/b"}), json!({})),
            (json!({"uid": ".."}), json!({})),
            (json!({"namespace": "../x"}), json!({})),
            (json!({"name": "../x"}), json!({})),
            (
                json!({}),
                json!({"containers": [{"name": "../c", "image": "i"}]}),
            ),
            (json!({}), json!({"containers": []})),
            (
                json!({}),
                json!({"volumes": [{"name": "../v", "emptyDir": {}}]}),
            ),
        ] {
            let result = manifest(metadata.clone(), spec.clone());
            assert!(
                matches!(result, Err(ManifestError::Uid | ManifestError::Invalid(_))),
                "{metadata} {spec}"
            );
        }
    }

    #[test]
    fn references_to_api_objects_are_refused() {
        let container = |more: Value| {
            let mut c = json!({"name": "c", "image": "i"});
            c.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            json!({"containers": [c]})
        };
        let volume = |source: Value| {
            let mut v = json!({"name": "v"});
            v.as_object_mut()
                .unwrap()
                .extend(source.as_object().unwrap().clone());
            json!({"volumes": [v]})
        };
        for spec in [
            json!({"serviceAccountName": "default"}),
            json!({"serviceAccount": "default"}),
            json!({"imagePullSecrets": [{"name": "s"}]}),
            container(json!({"envFrom": [{"secretRef": {"name": "s"}}]})),
            container(
                json!({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}]}),
            ),
            volume(json!({"secret": {"secretName": "s"}})),
            volume(json!({"configMap": {"name": "m"}})),
            volume(json!({"persistentVolumeClaim": {"claimName": "c"}})),
            volume(json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}})),
        ] {
            let result = manifest(json!({}), spec.clone());
            assert!(matches!(result, Err(ManifestError::Reference(_))), "{spec}");
        }
        let downward = volume(json!({"projected": {"sources": [{"downwardAPI": {"items": []}}]}}));
        assert!(manifest(json!({}), downward).is_ok());
    }

    #[test]
    fn static_pod_is_not_evicted_by_taints_and_has_no_status() {
        let spec = json!({"tolerations": [{"key": "a", "operator": "Exists"}]});
        let pod = manifest(json!({"annotations": {"own": "x"}}), spec).unwrap();
        let tolerations = pod.spec.unwrap().tolerations.unwrap();
        let last = tolerations.last().unwrap();
        assert_eq!(tolerations.len(), 2);
        assert_eq!(
            (
                last.key.as_deref(),
                last.operator.as_deref(),
                last.effect.as_deref()
            ),
            (None, Some("Exists"), Some("NoExecute"))
        );
        let annotations = pod.metadata.annotations.unwrap();
        assert_eq!(annotations.get(HASH).map(String::as_str), Some("abc"));
        assert_eq!(annotations.get(SOURCE).map(String::as_str), Some("file"));
        assert_eq!(annotations.get("own").map(String::as_str), Some("x"));
        let text = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
            "spec": {"containers": [{"name": "c", "image": "i"}]}, "status": {"phase": "Failed"}});
        assert_eq!(
            parse_manifest(&text.to_string(), "n1", "abc")
                .unwrap()
                .status,
            None
        );
    }

    /// A restarted kubelet finds its containers by the uid; a changed manifest is another pod.
    #[test]
    fn uid_depends_on_node_file_and_content() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, image: &str| {
            let path = dir.path().join(name);
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
                "spec": {"containers": [{"name": "c", "image": image}]}});
            std::fs::write(&path, pod.to_string()).unwrap();
            path
        };
        let uid =
            |path: &Path, node: &str| read_manifest(path, node).unwrap().metadata.uid.unwrap();
        let path = write("a.yaml", "i:1");
        let first = uid(&path, "n1");
        assert_eq!(uid(&path, "n1"), first);
        assert_ne!(uid(&path, "n2"), first);
        assert_ne!(uid(&write("b.yaml", "i:1"), "n1"), first);
        assert_ne!(uid(&write("a.yaml", "i:2"), "n1"), first);
    }

    #[test]
    fn file_that_is_no_pod_is_rejected() {
        for (text, expected) in [
            ("{", "is no YAML or JSON"),
            ("metadata: {}", "has no metadata.name"),
            ("metadata: {name: a}\nspec: {containers: 3}", "is no Pod"),
        ] {
            let error = parse_manifest(text, "n1", "abc").unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
