//! Choice of free volumes for claims. Claims of one pod never share a volume.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use api_semantics::selectors::{labels_match, node_matches};
use client::ObjectExt;
use k8s_openapi::api::core::v1::{
    NodeSelectorRequirement, PersistentVolume, PersistentVolumeClaim,
};
use k8s_openapi::api::storage::v1::StorageClass;
use scheduler_framework::{ClaimView, NodeInfo, Resources};

const HOSTNAME: &str = "kubernetes.io/hostname";

/// A claim that waits for its first consumer, and the volumes that serve it on the nodes from which
/// they are accessible.
#[derive(Clone)]
pub(super) struct WaitingClaim {
    pub(super) claim: Arc<PersistentVolumeClaim>,
    class: Arc<StorageClass>,
    /// Best first: a volume that names the claim, else the smallest.
    volumes: Vec<Arc<PersistentVolume>>,
    /// Indexes into `volumes` of those accessible from one host only, by host: most volumes on
    /// local disks.
    local: HashMap<String, Vec<usize>>,
    /// Indexes into `volumes` of the others.
    shared: Vec<usize>,
}

impl WaitingClaim {
    /// Collects the volumes that serve a claim, once for all nodes.
    pub(super) fn new(
        claim: Arc<PersistentVolumeClaim>,
        class: Arc<StorageClass>,
        view: &dyn ClaimView,
    ) -> Self {
        let mut volumes = view.volumes_of_class(class.name());
        // Everything but the node is decided here, once. A storage class can have thousands of
        // local volumes.
        volumes.retain(|volume| serves_claim(volume, &claim));
        match volumes
            .iter()
            .position(|volume| names_claim(volume, &claim))
        {
            // If a volume names the claim, no other may be used.
            Some(at) => volumes = vec![volumes.swap_remove(at)],
            None => volumes
                .sort_by_cached_key(|volume| (volume_capacity(volume), volume.name().to_owned())),
        }
        let (mut local, mut shared): (HashMap<String, Vec<usize>>, _) =
            (HashMap::new(), Vec::new());
        for (at, volume) in volumes.iter().enumerate() {
            match only_host(volume) {
                Some(host) => local.entry(host.to_owned()).or_default().push(at),
                None => shared.push(at),
            }
        }
        Self {
            claim,
            class,
            volumes,
            local,
            shared,
        }
    }

    /// Yields volumes that may be accessible from a node, best first.
    fn candidate_volumes(&self, node: &NodeInfo) -> impl Iterator<Item = &Arc<PersistentVolume>> {
        let local = node.label(HOSTNAME).and_then(|host| self.local.get(host));
        let (mut local, mut shared) = (
            local.into_iter().flatten().peekable(),
            self.shared.iter().peekable(),
        );
        // Merges two ascending lists of indexes, which keeps the order by size across both.
        let next = move || match (local.peek(), shared.peek()) {
            (Some(a), Some(b)) if a < b => local.next(),
            (Some(_), None) => local.next(),
            _ => shared.next(),
        };
        std::iter::from_fn(next).filter_map(|at| self.volumes.get(*at))
    }

    /// Returns whether a volume can be provisioned for the claim.
    pub(super) fn is_provisioned(&self) -> bool {
        self.class.provisioner != "kubernetes.io/no-provisioner"
    }

    /// Returns the same claim with the current volumes.
    pub(super) fn with_current_volumes(&self, view: &dyn ClaimView) -> Self {
        Self::new(self.claim.clone(), self.class.clone(), view)
    }
}

/// Sorts claims by size, so that small ones leave the large volumes to the others.
pub(super) fn sort_by_size(waiting: &mut [WaitingClaim]) {
    waiting.sort_by_key(|waiting| requested_storage(&waiting.claim));
}

/// Chooses a volume for each claim on a node; None for a claim without an accessible free volume.
pub(super) fn choose_volumes<'a>(
    waiting: &'a [WaitingClaim],
    node: &NodeInfo,
) -> Vec<Option<&'a Arc<PersistentVolume>>> {
    let mut taken = HashSet::new();
    let mut chosen = |waiting: &'a WaitingClaim| {
        let free = |volume: &&Arc<PersistentVolume>| {
            !taken.contains(volume.name()) && reaches_node(volume, node)
        };
        let volume = waiting.candidate_volumes(node).find(free)?;
        taken.insert(volume.name());
        Some(volume)
    };
    waiting.iter().map(&mut chosen).collect()
}

/// Returns whether a volume is accessible from a node.
pub(super) fn reaches_node(volume: &PersistentVolume, node: &NodeInfo) -> bool {
    let affinity = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    let Some(object) = &node.node else {
        return false;
    };
    required.is_none_or(|required| node_matches(required, object))
}

/// Returns the only host that can access a volume, if its affinity names one by label.
fn only_host(volume: &PersistentVolume) -> Option<&str> {
    let required = volume
        .spec
        .as_ref()?
        .node_affinity
        .as_ref()?
        .required
        .as_ref()?;
    // With several terms the volume is accessible from several hosts.
    let [term] = required.node_selector_terms.as_slice() else {
        return None;
    };
    let named = |requirement: &&NodeSelectorRequirement| {
        requirement.key == HOSTNAME && requirement.operator == "In"
    };
    match term
        .match_expressions
        .iter()
        .flatten()
        .find(named)?
        .values
        .as_deref()
    {
        Some([host]) => Some(host),
        _ => None,
    }
}

fn volume_capacity(volume: &PersistentVolume) -> i64 {
    Resources::from_resource_list(volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()))
        .get("storage")
}

fn requested_storage(claim: &PersistentVolumeClaim) -> i64 {
    let resources = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    Resources::from_resource_list(resources.and_then(|resources| resources.requests.as_ref()))
        .get("storage")
}

/// Returns whether a volume names this claim.
fn names_claim(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let Some(by) = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.claim_ref.as_ref())
    else {
        return false;
    };
    by.name.as_deref() == Some(claim.name())
        && by.namespace.as_deref() == Some(claim.namespace())
        && by
            .uid
            .as_deref()
            .is_none_or(|uid| uid.is_empty() || uid == claim.uid())
}

/// Returns whether a free volume serves a claim, on the nodes that can access it.
fn serves_claim(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let (Some(offer), Some(want)) = (&volume.spec, &claim.spec) else {
        return false;
    };
    let text =
        |given: &Option<String>, default: &str| given.clone().unwrap_or_else(|| default.to_owned());
    let fits = volume_capacity(volume) >= requested_storage(claim)
        && text(&offer.volume_mode, "Filesystem") == text(&want.volume_mode, "Filesystem")
        && text(&offer.volume_attributes_class_name, "")
            == text(&want.volume_attributes_class_name, "")
        && volume.metadata.deletion_timestamp.is_none();
    // A reserved volume serves its claim whatever the access modes and class are: an administrator
    // decided so.
    if offer.claim_ref.is_some() {
        return fits && names_claim(volume, claim);
    }
    let modes = offer.access_modes.as_deref().unwrap_or_default();
    let accessible = want
        .access_modes
        .iter()
        .flatten()
        .all(|mode| modes.contains(mode));
    let selected = want.selector.is_none()
        || labels_match(want.selector.as_ref(), volume.metadata.labels.as_ref());
    let same = text(&offer.storage_class_name, "") == text(&want.storage_class_name, "");
    // Volumes in other phases are being bound or released.
    let available = volume
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        == Some("Available");
    fits && accessible && selected && same && available
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::testing::{VolumeList, labelled_node};
    use serde_json::{Value, json};

    fn volume(name: &str, size: &str) -> Value {
        json!({"metadata": {"name": name}, "status": {"phase": "Available"}, "spec": {"storageClassName": "c",
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}}})
    }

    fn waiting(name: &str, size: &str, volumes: &[Value]) -> WaitingClaim {
        let claim = json!({"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": {
            "storageClassName": "c", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}});
        let class =
            json!({"metadata": {"name": "c"}, "provisioner": "kubernetes.io/no-provisioner"});
        let view = VolumeList(
            volumes
                .iter()
                .map(|volume| serde_json::from_value(volume.clone()).unwrap())
                .collect(),
        );
        let from = |value| Arc::new(serde_json::from_value(value).unwrap());
        WaitingClaim::new(
            from(claim),
            Arc::new(serde_json::from_value(class).unwrap()),
            &view,
        )
    }

    fn chosen(waiting: &[WaitingClaim]) -> Vec<Option<String>> {
        let node = labelled_node("n", json!({"zone": "a"}));
        choose_volumes(waiting, &node)
            .into_iter()
            .map(|volume| volume.map(|volume| volume.name().to_owned()))
            .collect()
    }

    #[test]
    fn claims_of_one_pod_do_not_share_a_volume() {
        let one = [volume("v1", "2Gi")];
        let mut both = [waiting("a", "1Gi", &one), waiting("b", "1Gi", &one)];
        sort_by_size(&mut both);
        assert_eq!(chosen(&both), [Some("v1".to_owned()), None]);
    }

    #[test]
    fn small_claims_take_small_volumes() {
        let volumes = [volume("large", "9Gi"), volume("small", "1Gi")];
        let mut both = [waiting("b", "8Gi", &volumes), waiting("a", "1Gi", &volumes)];
        sort_by_size(&mut both);
        assert_eq!(
            chosen(&both),
            [Some("small".to_owned()), Some("large".to_owned())]
        );
    }

    #[test]
    fn local_volumes_are_found_by_host_in_order_of_size() {
        let on = |host: &str, size: &str, name: &str| {
            let mut local = volume(name, size);
            local["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [{"matchExpressions":
                [{"key": HOSTNAME, "operator": "In", "values": [host]}]}]}});
            local
        };
        let waiting = waiting(
            "a",
            "1Gi",
            &[
                on("n", "4Gi", "mine"),
                on("m", "1Gi", "theirs"),
                volume("any", "2Gi"),
            ],
        );
        let node = labelled_node("n", json!({HOSTNAME: "n"}));
        let names: Vec<&str> = waiting
            .candidate_volumes(&node)
            .map(|volume| volume.name())
            .collect();
        assert_eq!(names, ["any", "mine"]);
    }

    #[test]
    fn volume_that_names_the_claim_is_the_only_one_that_will_do() {
        let mut own = volume("own", "9Gi");
        own["spec"]["claimRef"] = json!({"namespace": "ns", "name": "a"});
        assert_eq!(
            chosen(&[waiting("a", "1Gi", &[volume("v", "1Gi"), own.clone()])]),
            [Some("own".to_owned())]
        );
        own["spec"]["claimRef"]["uid"] = json!("earlier life");
        assert_eq!(chosen(&[waiting("a", "1Gi", &[own])]), [None]);
    }

    #[test]
    fn volume_must_match_class_size_mode_and_claim_reference() {
        assert_eq!(
            chosen(&[waiting("a", "1Gi", &[volume("v", "2Gi")])]),
            [Some("v".to_owned())]
        );
        let in_zone_b = json!({"required": {"nodeSelectorTerms": [{"matchExpressions":
            [{"key": "zone", "operator": "In", "values": ["b"]}]}]}});
        for (path, value) in [
            ("storageClassName", json!("d")),
            ("capacity", json!({"storage": "1Mi"})),
            ("accessModes", json!(["ReadOnlyMany"])),
            ("volumeMode", json!("Block")),
            ("claimRef", json!({"namespace": "ns", "name": "other"})),
            ("nodeAffinity", in_zone_b),
        ] {
            let mut other = volume("v", "2Gi");
            other["spec"][path] = value;
            assert_eq!(chosen(&[waiting("a", "1Gi", &[other])]), [None], "{path}");
        }
        let mut released = volume("v", "2Gi");
        released["status"]["phase"] = json!("Released");
        assert_eq!(chosen(&[waiting("a", "1Gi", &[released])]), [None]);
    }
}
