//! `--runtime-config`: the built-in versions and resources that are served.

use std::collections::BTreeMap;
use std::sync::Arc;

use thiserror::Error;

use crate::emulation::{EmulatedRelease, adapt_resource};
use crate::lifecycle::is_introduced;
use crate::load::{find, is_stable, list_versions, resources};
use crate::{Release, Resource};

/// Returns whether a key applies to the version of this name.
type VersionSelector = fn(&str) -> bool;

/// Keys that select versions by their stability. A later one overrides an earlier one.
const SELECTORS: [(&str, VersionSelector); 4] = [
    ("api/all", |_| true),
    ("api/ga", is_stable),
    ("api/beta", |version| version.contains("beta")),
    ("api/alpha", |version| version.contains("alpha")),
];

/// Unstable versions whose kinds have the fields of the stable version, so that they need no code:
/// conversion changes `apiVersion` only.
const WITHOUT_CODE: [(&str, &str); 5] = [
    ("admissionregistration.k8s.io", "v1alpha1"),
    ("admissionregistration.k8s.io", "v1beta1"),
    ("networking.k8s.io", "v1beta1"),
    ("resource.k8s.io", "v1beta2"),
    ("storage.k8s.io", "v1beta1"),
];

/// Unstable versions with other fields than the stable one. [`crate::convert()`] has the
/// difference, and the rules of their kinds are written for the stable version alone.
const CONVERTED: [(&str, &str); 1] = [("resource.k8s.io", "v1beta1")];

/// A resource without a stable version that has code of its own. Its versions have the same fields.
struct UnstableResource {
    group: &'static str,
    plural: &'static str,
    /// The feature gate that it needs.
    gate: Option<&'static str>,
}

const WITH_CODE: [UnstableResource; 9] = [
    UnstableResource {
        group: "certificates.k8s.io",
        plural: "clustertrustbundles",
        gate: Some("ClusterTrustBundle"),
    },
    UnstableResource {
        group: "certificates.k8s.io",
        plural: "podcertificaterequests",
        gate: Some("PodCertificateRequest"),
    },
    UnstableResource {
        group: "coordination.k8s.io",
        plural: "leasecandidates",
        gate: None,
    },
    UnstableResource {
        group: "internal.apiserver.k8s.io",
        plural: "storageversions",
        gate: None,
    },
    UnstableResource {
        group: "resource.k8s.io",
        plural: "devicetaintrules",
        gate: None,
    },
    UnstableResource {
        group: "resource.k8s.io",
        plural: "resourcepoolstatusrequests",
        // Upstream's gate is that of the controller.
        gate: None,
    },
    UnstableResource {
        group: "scheduling.k8s.io",
        plural: "podgroups",
        gate: Some("GenericWorkload"),
    },
    UnstableResource {
        group: "scheduling.k8s.io",
        plural: "workloads",
        gate: Some("GenericWorkload"),
    },
    UnstableResource {
        group: "storagemigration.k8s.io",
        plural: "storageversionmigrations",
        gate: Some("StorageVersionMigrator"),
    },
];

/// Returns whether a feature gate enables a built-in resource.
pub fn is_resource_gate(name: &str) -> bool {
    WITH_CODE.iter().any(|row| row.gate == Some(name))
}

/// A value of `--runtime-config` that can't be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RuntimeConfigError {
    /// Neither a selector, nor a version, nor a resource.
    #[error("runtime-config invalid key {0}")]
    Key(String),
    /// Neither true nor false.
    #[error("invalid value {key}={value}")]
    Value {
        /// The key.
        key: String,
        /// Its value.
        value: String,
    },
    /// Nothing would be served.
    #[error("invalid runtime-config with only api/all=false")]
    Nothing,
    /// Names of groups that upstream does not have.
    #[error("unknown api groups {0}")]
    Groups(String),
    /// A version that upstream does not have.
    #[error("group version {0} that has not been registered")]
    Version(String),
    /// A resource is named by its plural.
    #[error(
        "invalid key {0}: group/version/resource and resource is always lowercase plural, not {1:?}"
    )]
    Plural(String, String),
    /// A resource is enabled by name and is newer than the emulated release.
    #[error(
        "cannot enable resource {version}, Resource={plural} in runtime-config because it is introduced after \
         the current version {release}. Consider setting --runtime-config-emulation-forward-compatible=true"
    )]
    ResourceIntroduced {
        /// `GROUP/VERSION`.
        version: String,
        /// The resource.
        plural: String,
        /// The emulated release.
        release: Release,
    },
    /// A version is enabled by name, and all its resources are newer than the emulated release.
    #[error(
        "cannot enable version {version} in runtime-config because all the resources have been introduced \
         after the current version {release}. Consider setting --runtime-config-emulation-forward-compatible=true"
    )]
    VersionIntroduced {
        /// `GROUP/VERSION`.
        version: String,
        /// The emulated release.
        release: Release,
    },
    /// Upstream serves this, and this server does not.
    #[error("{0}=true: this server does not implement it")]
    NotImplemented(String),
}

/// The preferences of a command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeConfig {
    selectors: [Option<bool>; SELECTORS.len()],
    /// Versions (`apps/v1`) and resources (`apps/v1/deployments`) by name.
    named: BTreeMap<String, bool>,
}

/// The built-in resources, with their preferences applied.
#[derive(Clone, Debug)]
pub struct BuiltInResources {
    /// All resources in the order of discovery; `served` says whether they are served.
    pub resources: Vec<Arc<Resource>>,
    /// Resources that were enabled in bulk and are not implemented: `GROUP/VERSION/RESOURCE`.
    pub missing: Vec<String>,
    /// Resources that are not served because their feature gate is off, with the gate.
    pub gated: Vec<(String, &'static str)>,
}

impl RuntimeConfig {
    /// Parses pairs of the form `KEY=BOOL`. Of several pairs with one key, the last one counts.
    ///
    /// # Errors
    /// A key or value that is malformed or unknown.
    pub fn parse<'a>(pairs: impl IntoIterator<Item = &'a str>) -> Result<Self, RuntimeConfigError> {
        let mut values = BTreeMap::new();
        for pair in pairs.into_iter().filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            values.insert(key.trim(), value.trim());
        }
        if values.len() == 1 && values.get("api/all") == Some(&"false") {
            return Err(RuntimeConfigError::Nothing);
        }
        let mut config = RuntimeConfig::default();
        for ((key, _), preference) in SELECTORS.iter().zip(&mut config.selectors) {
            if let Some(value) = values.remove(key) {
                // Upstream accepts other spellings for versions and resources only.
                *preference = Some(match value {
                    "true" => true,
                    "false" => false,
                    _ => return Err(invalid_value(key, value)),
                });
            }
        }
        check_groups(values.keys().copied())?;
        for (key, value) in values {
            config.add_named(key, value)?;
        }
        Ok(config)
    }

    fn add_named(&mut self, key: &str, value: &str) -> Result<(), RuntimeConfigError> {
        let (group, version, plural) = split_key(key)?;
        if !is_registered(group, Some(version)) {
            return Err(RuntimeConfigError::Version(format!("{group}/{version}")));
        }
        if let Some(plural) = plural
            && plural.to_lowercase() != plural
        {
            return Err(RuntimeConfigError::Plural(
                key.to_owned(),
                plural.to_owned(),
            ));
        }
        let enabled = match value {
            "" | "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
            "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
            _ => return Err(invalid_value(key, value)),
        };
        let has = |resource: &&Arc<Resource>| {
            (&*resource.group, &*resource.version) == (group, version)
                && plural.is_none_or(|plural| resource.plural == plural)
        };
        if enabled && !resources().iter().filter(has).any(|r| can_serve(r)) {
            return Err(RuntimeConfigError::NotImplemented(key.to_owned()));
        }
        self.named.insert(key.to_owned(), enabled);
        Ok(())
    }

    /// Applies the preferences to the built-in resources. `is_enabled` returns whether a feature
    /// gate is on.
    ///
    /// # Errors
    /// A resource that is enabled by name and is newer than the emulated release.
    pub fn apply(
        &self,
        emulated: &EmulatedRelease,
        is_enabled: impl Fn(&str) -> bool,
    ) -> Result<BuiltInResources, RuntimeConfigError> {
        let (mut missing, mut gated) = (Vec::new(), Vec::new());
        let mut built_in = Vec::with_capacity(resources().len());
        for resource in resources() {
            let wanted = self.is_wanted(resource) && self.may_serve(resource, emulated)?;
            let mut served = wanted && can_serve(resource);
            if wanted && !served {
                missing.push(resource_key(resource));
            }
            let gate = find_unstable(resource).and_then(|unstable| unstable.gate);
            if served
                && let Some(gate) = gate
                && !is_enabled(gate)
            {
                served = false;
                gated.push((resource_key(resource), gate));
            }
            built_in.push(adapt_resource(resource, served, emulated.min_compatibility));
        }
        Ok(BuiltInResources {
            resources: built_in,
            missing,
            gated,
        })
    }

    /// Returns whether the emulated release has a resource, or a flag serves it all the same.
    fn may_serve(
        &self,
        resource: &Resource,
        emulated: &EmulatedRelease,
    ) -> Result<bool, RuntimeConfigError> {
        let release = emulated.release;
        if is_introduced(resource, release)
            || emulated.emulation_forward_compatible
                && self.has_older_version(resource, emulated)?
        {
            return Ok(true);
        }
        let (key, version) = (resource_key(resource), version_key(resource));
        let is_enabled = |key: &String| self.named.get(key) == Some(&true);
        let is_named = is_enabled(&key) || is_enabled(&version);
        if !is_named || emulated.runtime_config_forward_compatible {
            return Ok(is_named);
        }
        if is_enabled(&key) {
            return Err(RuntimeConfigError::ResourceIntroduced {
                version,
                plural: resource.plural.clone().into_owned(),
                release,
            });
        }
        // A version by name is what the release has of it, which must be something.
        let mut others = resources().iter();
        if others.any(|other| version_key(other) == version && is_introduced(other, release)) {
            return Ok(false);
        }
        Err(RuntimeConfigError::VersionIntroduced { version, release })
    }

    /// Returns whether a version of the resource of lower priority is served, other than an alpha
    /// version.
    fn has_older_version(
        &self,
        resource: &Resource,
        emulated: &EmulatedRelease,
    ) -> Result<bool, RuntimeConfigError> {
        // The preferred version is the first one.
        let versions = list_versions(&resource.group).iter();
        let older = versions.skip_while(|version| **version != resource.version);
        for version in older.skip(1).filter(|version| !version.contains("alpha")) {
            if let Some(other) = find(&resource.group, version, &resource.plural)
                && self.is_wanted(other)
                && self.may_serve(other, emulated)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the preference for the resource, else for its version, else of the selectors.
    fn is_wanted(&self, resource: &Resource) -> bool {
        let version = version_key(resource);
        let named = self.named.get(&resource_key(resource));
        if let Some(preference) = named.or_else(|| self.named.get(&version)) {
            return *preference;
        }
        let mut preferences = SELECTORS.iter().zip(self.selectors).rev();
        let selected = preferences.find_map(|((_, matches), preference)| {
            preference.filter(|_| matches(&resource.version))
        });
        selected.unwrap_or_else(|| is_stable(&resource.version))
    }
}

/// Returns whether a resource can be served: that of a stable version, one with its fields, or one
/// with code of its own.
fn can_serve(resource: &Resource) -> bool {
    is_stable(&resource.version)
        || is_without_code(resource)
        || find_rule_version(resource).is_some()
        || find_unstable(resource).is_some()
}

/// Returns the version for whose fields the strategy and the validation of a kind are written, if
/// `resource` is another version with other fields.
pub fn find_rule_version(resource: &Resource) -> Option<&'static Arc<Resource>> {
    let version = (&*resource.group, &*resource.version);
    if resource.is_custom() || !CONVERTED.contains(&version) {
        return None;
    }
    find(version.0, "v1", &resource.plural)
}

fn is_without_code(resource: &Resource) -> bool {
    let (group, version) = (&*resource.group, &*resource.version);
    WITHOUT_CODE.contains(&(group, version)) && find(group, "v1", &resource.plural).is_some()
}

fn find_unstable(resource: &Resource) -> Option<&'static UnstableResource> {
    let mut all = WITH_CODE.iter();
    all.find(|row| resource.group == row.group && resource.plural == row.plural)
}

fn version_key(resource: &Resource) -> String {
    format!("{}/{}", resource.group, resource.version)
}

fn resource_key(resource: &Resource) -> String {
    format!("{}/{}", version_key(resource), resource.plural)
}

fn invalid_value(key: &str, value: &str) -> RuntimeConfigError {
    RuntimeConfigError::Value {
        key: key.to_owned(),
        value: value.to_owned(),
    }
}

fn split_key(key: &str) -> Result<(&str, &str, Option<&str>), RuntimeConfigError> {
    let mut parts = key.split('/');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(group), Some(version), plural, None) => Ok((group, version, plural)),
        _ => Err(RuntimeConfigError::Key(key.to_owned())),
    }
}

fn check_groups<'a>(keys: impl Iterator<Item = &'a str>) -> Result<(), RuntimeConfigError> {
    let mut unknown = Vec::new();
    for key in keys {
        let (group, version, _) = split_key(key)?;
        if !is_registered(group, None) {
            unknown.push(format!("{group}/{version}"));
        }
    }
    unknown.dedup();
    if unknown.is_empty() {
        return Ok(());
    }
    Err(RuntimeConfigError::Groups(unknown.join(",")))
}

/// Returns whether upstream has types of a group and version, served or not.
fn is_registered(group: &str, version: Option<&str>) -> bool {
    let is_named = |resource: &Arc<Resource>| {
        resource.group == group && version.is_none_or(|version| resource.version == version)
    };
    if resources().iter().any(is_named) {
        return true;
    }
    // Versions that exist in the schema alone, such as apps/v1beta1. Their packages are named by
    // the first label of the group.
    let known_group = resources().iter().any(|resource| resource.group == group);
    let (Some(label), Some(version)) = (group.split('.').next(), version) else {
        return known_group;
    };
    let prefix = format!("k8s.io.api.{label}.{version}.");
    let mut messages = api_schema::schema().messages().iter();
    known_group && messages.any(|message| message.name.starts_with(&prefix))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::ResourceSet;

    fn apply(pairs: &[&str]) -> BuiltInResources {
        let config = RuntimeConfig::parse(pairs.iter().copied()).unwrap();
        config
            .apply(&EmulatedRelease::default(), |_| false)
            .unwrap()
    }

    fn is_served(built_in: &BuiltInResources, group: &str, version: &str, plural: &str) -> bool {
        let set = ResourceSet::with_built_in(&built_in.resources, []);
        set.find(group, version, plural).unwrap().served
    }

    /// Returns the fields of a resource and of all types below it, without the version.
    fn fields_below(resource: &Resource) -> std::collections::BTreeSet<String> {
        let root = resource.schema.message().unwrap();
        let package = root.name.strip_suffix(&*resource.kind).unwrap();
        let stable = package.replace(&format!(".{}.", resource.version), ".v1.");
        let mut fields = std::collections::BTreeSet::new();
        let (mut open, mut seen) = (vec![root], Vec::new());
        while let Some(message) = open.pop() {
            if seen.contains(&message.name) {
                continue;
            }
            seen.push(message.name);
            for field in &message.fields {
                let mut text = format!("{} {field:?}", message.name);
                // Positions differ between versions, names do not.
                while let Some((before, rest)) = text.split_once("MessageId(") {
                    let (at, after) = rest.split_once(')').unwrap();
                    let message = &api_schema::schema().messages()[at.parse::<usize>().unwrap()];
                    open.push(message);
                    text = format!("{before}{}{after}", message.name);
                }
                // The names of an enum's values are documentation.
                let text = text.split(", values:").next().unwrap();
                // Versions share types of the stable one.
                let text = text
                    .replace(package, "PACKAGE.")
                    .replace(&stable, "PACKAGE.");
                fields.insert(text);
            }
        }
        fields
    }

    #[test]
    fn versions_without_code_have_the_fields_of_the_stable_version() {
        let mut compared = 0;
        for resource in resources().iter().filter(|r| is_without_code(r)) {
            let stable = find(&resource.group, "v1", &resource.plural).unwrap();
            let (ours, theirs) = (fields_below(resource), fields_below(stable));
            let difference: Vec<_> = ours.symmetric_difference(&theirs).collect();
            assert!(difference.is_empty(), "{resource:?}: {difference:#?}");
            assert_eq!(resource.storage.is_some(), stable.storage.is_some());
            compared += 1;
        }
        assert_eq!(compared, 11);
    }

    #[test]
    fn versions_of_an_unstable_resource_have_the_same_fields() {
        let mut compared = 0;
        for resource in resources().iter().filter(|r| find_unstable(r).is_some()) {
            let stored = &resource.storage.as_ref().unwrap().api_version;
            let (group, version) = stored.split_once('/').unwrap();
            let stored = find(group, version, &resource.plural).unwrap();
            assert_eq!(fields_below(resource), fields_below(stored), "{resource:?}");
            compared += 1;
        }
        assert_eq!(compared, 12);
    }

    #[test]
    fn resource_with_a_feature_gate_is_served_if_the_gate_is_on() {
        let pairs = [
            "certificates.k8s.io/v1beta1=true",
            "coordination.k8s.io/v1alpha2=true",
        ];
        let config = RuntimeConfig::parse(pairs).unwrap();
        let bundles = ("certificates.k8s.io", "v1beta1", "clustertrustbundles");
        for (is_on, gated) in [(true, 1), (false, 2)] {
            let built_in = config
                .apply(&EmulatedRelease::default(), |gate| {
                    gate == "ClusterTrustBundle" && is_on
                })
                .unwrap();
            assert_eq!(is_served(&built_in, bundles.0, bundles.1, bundles.2), is_on);
            assert_eq!(built_in.gated.len(), gated);
            let (group, version) = ("coordination.k8s.io", "v1alpha2");
            assert!(is_served(&built_in, group, version, "leasecandidates"));
            assert!(built_in.missing.is_empty());
        }
    }

    #[test]
    fn stable_versions_are_served_by_default() {
        let built_in = apply(&[]);
        assert!(built_in.missing.is_empty());
        for (before, after) in resources().iter().zip(&built_in.resources) {
            assert!(Arc::ptr_eq(before, after), "{before:?}");
        }
    }

    #[test]
    fn more_specific_preference_wins_whatever_the_order() {
        let pairs = [
            "apps/v1/deployments=true",
            "apps/v1=false",
            "api/ga=true",
            "api/all=false",
        ];
        let forward = apply(&pairs);
        let backward = apply(&pairs.iter().rev().copied().collect::<Vec<_>>());
        for built_in in [forward, backward] {
            assert!(is_served(&built_in, "apps", "v1", "deployments"));
            assert!(!is_served(&built_in, "apps", "v1", "daemonsets"));
            assert!(is_served(&built_in, "", "v1", "pods"));
        }
    }

    #[test]
    fn versions_are_turned_on_and_off() {
        let built_in = apply(&[
            "/v1/pods=false",
            "storage.k8s.io/v1beta1",
            "autoscaling/v1=0",
        ]);
        assert!(!is_served(&built_in, "", "v1", "pods"));
        assert!(is_served(&built_in, "", "v1", "services"));
        let plural = "volumeattributesclasses";
        assert!(is_served(&built_in, "storage.k8s.io", "v1beta1", plural));
        let set = ResourceSet::with_built_in(&built_in.resources, []);
        let versions = |name: &str| {
            let mut groups = set.groups().iter();
            groups
                .find(|group| group.name == name)
                .unwrap()
                .versions
                .clone()
        };
        assert_eq!(versions("storage.k8s.io"), ["v1", "v1beta1"]);
        assert_eq!(versions("autoscaling"), ["v2"]);
    }

    #[test]
    fn bulk_preference_names_what_is_missing() {
        // Nothing is missing now. A kind of the next release is, until it has its code.
        assert_eq!(apply(&["api/all=true"]).missing, Vec::<String>::new());
        let built_in = apply(&["api/beta=true"]);
        assert!(is_served(
            &built_in,
            "networking.k8s.io",
            "v1beta1",
            "ipaddresses"
        ));
        assert!(!is_served(
            &built_in,
            "admissionregistration.k8s.io",
            "v1alpha1",
            "mutatingadmissionpolicies"
        ));
    }

    #[test]
    fn wrong_preferences_are_rejected() {
        for (pair, error) in [
            ("v1=true", "runtime-config invalid key v1"),
            ("a/b/c/d=true", "runtime-config invalid key a/b/c/d"),
            ("api/all=1", "invalid value api/all=1"),
            ("apps/v1=yes", "invalid value apps/v1=yes"),
            (
                "api/all=false",
                "invalid runtime-config with only api/all=false",
            ),
            ("api/legacy=false", "unknown api groups api/legacy"),
            ("example.com/v1=true", "unknown api groups example.com/v1"),
            (
                "apps/v7=false",
                "group version apps/v7 that has not been registered",
            ),
            (
                "apps/v1/Deployment=false",
                "invalid key apps/v1/Deployment: group/version/resource and resource is always \
                 lowercase plural, not \"Deployment\"",
            ),
            (
                "apps/v1beta1=true",
                "apps/v1beta1=true: this server does not implement it",
            ),
        ] {
            let found = RuntimeConfig::parse([pair]).unwrap_err();
            assert_eq!(found.to_string(), error, "{pair}");
        }
        // Turning off what is off anyway is no error.
        apply(&["apps/v1beta1=false", "resource.k8s.io/v1alpha3=false"]);
    }

    fn emulate(release: Release, pairs: &[&str]) -> Result<BuiltInResources, RuntimeConfigError> {
        let emulated = EmulatedRelease {
            release,
            min_compatibility: release.before(1),
            ..EmulatedRelease::default()
        };
        RuntimeConfig::parse(pairs.iter().copied())?.apply(&emulated, |_| true)
    }

    #[test]
    fn versions_of_later_releases_are_not_served() {
        let group = "admissionregistration.k8s.io";
        let plural = "mutatingadmissionpolicies";
        for (release, pairs, stable, beta) in [
            (Release::CURRENT, &[][..], true, false),
            (Release::new(1, 35), &[], false, false),
            (Release::new(1, 35), &["api/all=true"], false, true),
            (Release::new(1, 33), &["api/all=true"], false, false),
        ] {
            let built_in = emulate(release, pairs).unwrap();
            let is_served = |version| is_served(&built_in, group, version, plural);
            assert_eq!(
                (is_served("v1"), is_served("v1beta1")),
                (stable, beta),
                "{release}"
            );
        }
        let error = emulate(
            Release::new(1, 35),
            &["admissionregistration.k8s.io/v1/mutatingadmissionpolicies=true"],
        )
        .unwrap_err();
        assert!(
            error
                .to_string()
                .contains("introduced after the current version 1.35"),
            "{error}"
        );
    }

    #[test]
    fn version_by_name_is_what_the_release_has_of_it() {
        let release = Release::new(1, 35);
        let built_in = emulate(release, &["resource.k8s.io/v1beta2=true"]).unwrap();
        for (plural, expect) in [("resourceclaims", true), ("devicetaintrules", false)] {
            let served = is_served(&built_in, "resource.k8s.io", "v1beta2", plural);
            assert_eq!(served, expect, "{plural}");
        }
        // A version of which the release has nothing.
        let error = emulate(
            Release::new(1, 33),
            &["storagemigration.k8s.io/v1beta1=true"],
        );
        assert!(error.is_err());
    }

    #[test]
    fn emulation_forward_compatible_can_be_served_all_the_same() {
        let (group, plural) = ("resource.k8s.io", "resourceclaims");
        let named = "resource.k8s.io/v1/resourceclaims=true";
        let beta = "resource.k8s.io/v1beta2/resourceclaims=true";
        for (emulation_forward_compatible, runtime_config_forward_compatible, pairs, expect) in [
            (false, false, &[beta][..], false),
            (true, false, &[beta], true),
            (true, false, &[], false),
            (false, true, &[named], true),
            (false, true, &[], false),
            // An older version that is not the next one.
            (true, true, &["resource.k8s.io/v1beta1=true"], true),
        ] {
            let emulated = EmulatedRelease {
                release: Release::new(1, 33),
                min_compatibility: Release::new(1, 33),
                emulation_forward_compatible,
                runtime_config_forward_compatible,
            };
            let config = RuntimeConfig::parse(pairs.iter().copied()).unwrap();
            let built_in = config.apply(&emulated, |_| false).unwrap();
            assert_eq!(
                is_served(&built_in, group, "v1", plural),
                expect,
                "{emulated:?} {pairs:?}"
            );
        }
    }
}
