//! The graph from objects to nodes: pods name the objects they use, volumes name their claim and
//! Secrets.

use super::references;
use super::target::Target;
use api_meta::Meta;
use serde_json::Value;
use std::collections::HashMap;

type Key = (Target, String, String);

/// For each object the nodes that use it, with a count.
#[derive(Default)]
pub struct Graph {
    // Counted by node and not by pod: authorization needs the node only, and is on the path of
    // every read.
    users: HashMap<Key, HashMap<String, usize>>,
    pods: HashMap<(String, String), (String, Vec<Key>)>,
    volumes: HashMap<String, Volume>,
    /// Secrets named by volumes, with the volumes.
    // Indexed by Secret, so that a read need not look through all volumes of the cluster.
    secret_volumes: HashMap<(String, String), Vec<String>>,
    /// Objects that name their node: attachments, slices, certificate requests.
    owned: HashMap<Key, String>,
}

struct Volume {
    claim: (String, String),
    secrets: Vec<(String, String)>,
}

impl Graph {
    /// Returns whether a pod or volume on `node` uses the object.
    pub fn reaches_object(&self, node: &str, target: Target, namespace: &str, name: &str) -> bool {
        match target {
            Target::Volume => self
                .volumes
                .get(name)
                .is_some_and(|v| self.uses_claim(node, &v.claim)),
            Target::Attachment | Target::Slice | Target::CertificateRequest => {
                let key = (target, namespace.to_owned(), name.to_owned());
                self.owned.get(&key).is_some_and(|owner| owner == node)
            }
            Target::Secret => {
                self.uses_object(node, target, namespace, name)
                    || self.uses_by_volume(node, namespace, name)
            }
            _ => self.uses_object(node, target, namespace, name),
        }
    }

    fn uses_object(&self, node: &str, target: Target, namespace: &str, name: &str) -> bool {
        let key = (target, namespace.to_owned(), name.to_owned());
        self.users
            .get(&key)
            .is_some_and(|nodes| nodes.contains_key(node))
    }

    fn uses_claim(&self, node: &str, (namespace, name): &(String, String)) -> bool {
        // A volume without a claim is used by no pod, so that no node may read it.
        !name.is_empty() && self.uses_object(node, Target::Claim, namespace, name)
    }

    fn uses_by_volume(&self, node: &str, namespace: &str, name: &str) -> bool {
        let volumes = self
            .secret_volumes
            .get(&(namespace.to_owned(), name.to_owned()))
            .into_iter()
            .flatten();
        volumes
            .filter_map(|v| self.volumes.get(v))
            .any(|v| self.uses_claim(node, &v.claim))
    }

    /// Records an added, changed or deleted pod.
    pub fn update_pod(&mut self, pod: &Value, deleted: bool) {
        let key = (pod.namespace().to_owned(), pod.name().to_owned());
        // The former references first, since a changed pod may name other objects.
        if let Some((node, targets)) = self.pods.remove(&key) {
            targets.iter().for_each(|t| self.release_target(&node, t));
        }
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        // Mirror pods are created by kubelets, so their references prove nothing.
        if deleted || node.is_empty() || pod.annotation("kubernetes.io/config.mirror").is_some() {
            return;
        }
        let mut targets: Vec<Key> = references::of_pod(pod)
            .into_iter()
            .map(|(target, name)| (target, key.0.clone(), name))
            .collect();
        // The kubelet may also read the pod itself.
        targets.push((Target::Pod, key.0.clone(), key.1.clone()));
        for target in &targets {
            *self
                .users
                .entry(target.clone())
                .or_default()
                .entry(node.to_owned())
                .or_default() += 1;
        }
        self.pods.insert(key, (node.to_owned(), targets));
    }

    fn release_target(&mut self, node: &str, target: &Key) {
        let Some(nodes) = self.users.get_mut(target) else {
            return;
        };
        if let Some(count) = nodes.get_mut(node) {
            // Several pods of a node may use the object.
            *count -= 1;
            if *count == 0 {
                nodes.remove(node);
            }
        }
        // Names of Secrets come and go with pods; without this, the map would only grow.
        if nodes.is_empty() {
            self.users.remove(target);
        }
    }

    /// Records an added, changed or deleted volume.
    pub fn update_volume(&mut self, volume: &Value, deleted: bool) {
        let name = volume.name().to_owned();
        if let Some(old) = self.volumes.remove(&name) {
            // A changed volume may name other Secrets.
            for secret in old.secrets {
                if let Some(volumes) = self.secret_volumes.get_mut(&secret) {
                    volumes.retain(|v| *v != name);
                }
            }
        }
        if deleted {
            return;
        }
        let claim = &volume["spec"]["claimRef"];
        let text = |v: &Value, f: &str| v[f].as_str().unwrap_or_default().to_owned();
        // The path from a volume to a node leads through its claim and the claim's pods.
        let claim = (text(claim, "namespace"), text(claim, "name"));
        let secrets = references::of_volume(volume, &claim.0);
        for secret in &secrets {
            self.secret_volumes
                .entry(secret.clone())
                .or_default()
                .push(name.clone());
        }
        self.volumes.insert(name, Volume { claim, secrets });
    }

    /// Records an added, changed or deleted object that names its node.
    pub fn update_owned(&mut self, target: Target, object: &Value, deleted: bool) {
        let node = object["spec"]["nodeName"].as_str().unwrap_or_default();
        let key = (
            target,
            object.namespace().to_owned(),
            object.name().to_owned(),
        );
        // Some slices belong to no node.
        if deleted || node.is_empty() {
            self.owned.remove(&key);
        } else {
            self.owned.insert(key, node.to_owned());
        }
    }
}
