//! The release that is emulated, and the versions in which it stores objects.

use std::sync::Arc;

use crate::lifecycle::is_introduced;
use crate::load::{find, list_versions};
use crate::{Release, Resource};

/// The release whose API is served, and how far newer versions are served beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmulatedRelease {
    /// The release that is emulated.
    pub release: Release,
    /// The oldest release that can read what is stored.
    pub min_compatibility: Release,
    /// Serves newer versions of resources that have an older one, other than an alpha version.
    pub emulation_forward_compatible: bool,
    /// Serves what `--runtime-config` names.
    pub runtime_config_forward_compatible: bool,
}

impl Default for EmulatedRelease {
    fn default() -> Self {
        Self {
            release: Release::CURRENT,
            min_compatibility: Release::CURRENT.before(1),
            emulation_forward_compatible: false,
            runtime_config_forward_compatible: false,
        }
    }
}

/// Resources whose storage version is the same whatever release is emulated, by group and plural.
const FIXED: [(&str, &str); 9] = [
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"),
    (
        "admissionregistration.k8s.io",
        "mutatingadmissionpolicybindings",
    ),
    ("certificates.k8s.io", "clustertrustbundles"),
    ("certificates.k8s.io", "podcertificaterequests"),
    ("coordination.k8s.io", "leasecandidates"),
    ("resource.k8s.io", "devicetaintrules"),
    ("resource.k8s.io", "resourcepoolstatusrequests"),
    ("scheduling.k8s.io", "podgroups"),
    ("scheduling.k8s.io", "workloads"),
];

/// Returns the resource, served or not, with a storage version that the oldest compatible release
/// can read.
pub(crate) fn adapt_resource(
    resource: &Arc<Resource>,
    served: bool,
    min_compatibility: Release,
) -> Arc<Resource> {
    let stored = find_storage_version(resource, min_compatibility);
    if served == resource.served && stored.is_none() {
        return resource.clone();
    }
    let mut resource = Resource::clone(resource);
    resource.served = served;
    if let (Some(storage), Some(stored)) = (&mut resource.storage, stored) {
        storage.api_version = stored.api_version().into();
        storage.schema = stored.schema.clone();
    }
    Arc::new(resource)
}

/// Returns the storage version for the oldest compatible release, if that can't read the default
/// one: its preferred version. A kind that it does not have at all keeps the default.
fn find_storage_version(
    resource: &Resource,
    min_compatibility: Release,
) -> Option<&'static Arc<Resource>> {
    let default = &resource.storage.as_ref()?.api_version;
    let (group, version) = default.split_once('/').unwrap_or(("", default));
    let is_known = |stored: &Resource| is_introduced(stored, min_compatibility);
    let is_fixed = FIXED.contains(&(group, &resource.plural));
    if is_fixed || find(group, version, &resource.plural).is_none_or(|stored| is_known(stored)) {
        return None;
    }
    let versions = list_versions(group).iter();
    let mut known = versions.filter_map(|version| find(group, version, &resource.plural));
    known.find(|stored| is_known(stored))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::load::resources;
    use crate::{BuiltInResources, RuntimeConfig};

    fn emulate(release: Release) -> BuiltInResources {
        let emulated = EmulatedRelease {
            release,
            min_compatibility: release.before(1),
            ..EmulatedRelease::default()
        };
        RuntimeConfig::default().apply(&emulated, |_| true).unwrap()
    }

    #[test]
    fn storage_version_is_known_to_the_oldest_compatible_release() {
        let stored = |release, group, plural| {
            let built_in = emulate(release).resources;
            let mut rows = built_in.iter();
            let row = rows.find(|row| row.group == group && row.plural == plural);
            let storage = row.unwrap().storage.clone().unwrap();
            // The fields are written by the schema of the version.
            let message = storage.schema.message().unwrap();
            let version = storage.api_version.rsplit('/').next().unwrap().to_owned();
            assert!(
                message.name.contains(&format!(".{version}.")),
                "{message:?}"
            );
            version
        };
        for (release, group, plural, expect) in [
            (Release::CURRENT, "resource.k8s.io", "resourceclaims", "v1"),
            (
                Release::new(1, 34),
                "resource.k8s.io",
                "resourceclaims",
                "v1beta2",
            ),
            (
                Release::new(1, 34),
                "storage.k8s.io",
                "volumeattributesclasses",
                "v1beta1",
            ),
            (Release::new(1, 33), "apps", "deployments", "v1"),
            // The same whatever release is emulated.
            (
                Release::new(1, 34),
                "admissionregistration.k8s.io",
                "mutatingadmissionpolicies",
                "v1beta1",
            ),
            // 1.33 has no version at all.
            (
                Release::new(1, 34),
                "storagemigration.k8s.io",
                "storageversionmigrations",
                "v1beta1",
            ),
        ] {
            assert_eq!(stored(release, group, plural), expect, "{release} {plural}");
        }
        // By default nothing is stored otherwise than the table says.
        for (resource, default) in emulate(Release::CURRENT).resources.iter().zip(resources()) {
            let version = |r: &Resource| {
                r.storage
                    .as_ref()
                    .map(|storage| storage.api_version.clone())
            };
            assert_eq!(version(resource), version(default), "{resource:?}");
        }
    }
}
