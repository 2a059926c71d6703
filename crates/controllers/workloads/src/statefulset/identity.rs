//! Stable identity of a StatefulSet's pod: name, labels and volumes.

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaimVolumeSource, Pod, Volume};

use controllers_runtime::Meta;

use crate::{history, template};

const NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
const INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// Returns the ordinal in a pod's name, if the name belongs to this set.
pub fn parse_ordinal(set: &StatefulSet, pod: &Pod) -> Option<i32> {
    let (parent, number) = pod.name().rsplit_once('-')?;
    // Leading zeros would give two names to one ordinal.
    let plain =
        number.bytes().all(|b| b.is_ascii_digit()) && (number == "0" || !number.starts_with('0'));
    if parent != set.name() || !plain {
        return None;
    }
    number.parse().ok()
}

/// Returns the revision label of a pod.
pub fn pod_revision(pod: &Pod) -> &str {
    pod.label(history::POD_LABEL).unwrap_or_default()
}

/// Builds a pod of the set at one ordinal and revision.
pub fn build_pod(set: &StatefulSet, revision: &ControllerRevision, ordinal: i32) -> Pod {
    let spec = set.spec.clone().unwrap_or_default();
    let source = history::revision_template(revision).unwrap_or(spec.template);
    let mut pod = template::build_pod(set, &source);
    let name = format!("{}-{ordinal}", set.name());
    pod.metadata.generate_name = Some(format!("{}-", set.name()));
    pod.metadata.name = Some(name.clone());
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(NAME_LABEL.to_owned(), name.clone());
    labels.insert(INDEX_LABEL.to_owned(), ordinal.to_string());
    labels.insert(history::POD_LABEL.to_owned(), revision.name().to_owned());
    let body = pod.spec.get_or_insert_default();
    body.hostname = Some(name);
    body.subdomain = spec.service_name.filter(|s| !s.is_empty());
    let volumes = body.volumes.get_or_insert_default();
    for claim in spec.volume_claim_templates.iter().flatten() {
        // A claim template replaces a volume of the same name, as upstream.
        volumes.retain(|v| v.name != claim.name());
        volumes.push(Volume {
            name: claim.name().to_owned(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: claim_name(set, claim.name(), ordinal),
                read_only: None,
            }),
            ..Volume::default()
        });
    }
    if volumes.is_empty() {
        body.volumes = None;
    }
    pod
}

/// Returns the name of an ordinal's claim.
pub fn claim_name(set: &StatefulSet, template: &str, ordinal: i32) -> String {
    format!("{template}-{}-{ordinal}", set.name())
}
