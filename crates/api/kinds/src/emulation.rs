//! The release that is emulated, and the versions in which it stores objects.

use std::sync::Arc;

use crate::lifecycle::is_introduced;
use crate::load::{find, versions};
use crate::{Release, Resource};

/// The release whose API is served, and how far newer versions are served beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmulatedRelease {
    /// The release that is emulated.
    pub release: Release,
    /// The oldest release that can read what is stored.
    pub compatible: Release,
    /// Serves newer versions of resources that have an older one, other than an alpha version.
    pub newer_versions: bool,
    /// Serves what `--runtime-config` names.
    pub named_versions: bool,
}

impl Default for EmulatedRelease {
    fn default() -> Self {
        Self {
            release: Release::CURRENT,
            compatible: Release::CURRENT.before(1),
            newer_versions: false,
            named_versions: false,
        }
    }
}

/// Returns the resource, served or not, and stored in a version that a compatible release can read.
pub(crate) fn with_release(
    resource: &Arc<Resource>,
    served: bool,
    compatible: Release,
) -> Arc<Resource> {
    let stored = find_stored(resource, compatible);
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

/// Returns the preferred version that a compatible release has, if it has no version in which the
/// resource is stored by default. A kind that it does not have at all keeps that version.
fn find_stored(resource: &Resource, compatible: Release) -> Option<&'static Arc<Resource>> {
    let default = &resource.storage.as_ref()?.api_version;
    let (group, version) = default.split_once('/').unwrap_or(("", default));
    let is_known = |stored: &Resource| is_introduced(stored, compatible);
    if find(group, version, &resource.plural).is_none_or(|stored| is_known(stored)) {
        return None;
    }
    let versions = versions(group).iter();
    let mut known = versions.filter_map(|version| find(group, version, &resource.plural));
    known.find(|stored| is_known(stored))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::load::resources;
    use crate::{BuiltInResources, ResourceSet, RuntimeConfig};

    fn emulate(release: Release) -> BuiltInResources {
        let emulated = EmulatedRelease {
            release,
            compatible: release.before(1),
            ..EmulatedRelease::default()
        };
        RuntimeConfig::default().apply(&emulated, |_| true).unwrap()
    }

    #[test]
    fn stored_version_is_known_to_the_compatible_release() {
        let stored = |release, group, plural| {
            let built_in = emulate(release);
            let set = ResourceSet::with_built_in(&built_in.resources, []);
            let storage = set
                .find(group, "v1", plural)
                .unwrap()
                .storage
                .clone()
                .unwrap();
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
            // That release has no version at all.
            (
                Release::new(1, 33),
                "admissionregistration.k8s.io",
                "mutatingadmissionpolicies",
                "v1alpha1",
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
