//! Flags and configuration fields of the stock scheduler that this one does not implement, each
//! with its consequence.

use base_cli::{Unsupported, shared};

const EXTENDER: &str = "an extender that is not called would let pods onto nodes that it rules out";
const PLACEMENT: &str =
    "the extension point belongs to TopologyAwareWorkloadScheduling, an alpha feature that is off";

/// The tables that make up [`UPSTREAM_FLAGS`].
const TABLES: &[&[Unsupported]] = &[
    shared::LOGGING,
    shared::METRICS,
    shared::HIDDEN_METRICS,
    shared::PROFILES,
    shared::CONTENTION_PROFILES,
    shared::FEATURE_GATES,
    shared::VERSIONS,
    shared::API_CLIENT,
    shared::LEADER_ELECTION,
    shared::SERVING,
    shared::NAMED_CERTIFICATES,
    shared::METRICS_SERVER,
    shared::AUTHENTICATION,
    shared::CONFIGURATION,
    OWN,
];

/// Flags that are not implemented.
pub const UPSTREAM_FLAGS: &[Unsupported] =
    &shared::join_tables::<{ shared::count_rows(TABLES) }>(TABLES);

/// Flags that no table of [`shared`] has.
const OWN: &[Unsupported] = &[Unsupported::refused(
    "emulated-version",
    &["", "1.36", "kube=1.36"],
    "no other version is emulated",
)];

/// Fields of KubeSchedulerConfiguration v1 that are not implemented. `[]` stands for every entry of
/// a list.
pub const UPSTREAM_FIELDS: &[Unsupported] = &[
    Unsupported::no_effect(
        "parallelism",
        "one thread filters and scores, with the same outcome",
    ),
    Unsupported::refused(
        "leaderElection.resourceLock",
        &["leases"],
        "the lock is a Lease",
    ),
    Unsupported::no_effect("clientConnection.acceptContentTypes", shared::JSON),
    Unsupported::no_effect("clientConnection.contentType", shared::JSON),
    Unsupported::no_effect("clientConnection.qps", shared::NO_RATE),
    Unsupported::no_effect("clientConnection.burst", shared::NO_RATE),
    Unsupported::no_effect("enableProfiling", shared::NO_PROFILES),
    Unsupported::no_effect("enableContentionProfiling", shared::NO_PROFILES),
    Unsupported::no_effect(
        "delayCacheUntilActive",
        "a standby fills its caches too, so that it takes over at once",
    ),
    Unsupported::refused(
        "profiles[].plugins.placementGenerate.enabled[].name",
        &[],
        PLACEMENT,
    ),
    Unsupported::refused(
        "profiles[].plugins.placementGenerate.enabled[].weight",
        &[],
        PLACEMENT,
    ),
    Unsupported::no_effect(
        "profiles[].plugins.placementGenerate.disabled[].name",
        PLACEMENT,
    ),
    Unsupported::no_effect(
        "profiles[].plugins.placementGenerate.disabled[].weight",
        PLACEMENT,
    ),
    Unsupported::refused(
        "profiles[].plugins.placementScore.enabled[].name",
        &[],
        PLACEMENT,
    ),
    Unsupported::refused(
        "profiles[].plugins.placementScore.enabled[].weight",
        &[],
        PLACEMENT,
    ),
    Unsupported::no_effect(
        "profiles[].plugins.placementScore.disabled[].name",
        PLACEMENT,
    ),
    Unsupported::no_effect(
        "profiles[].plugins.placementScore.disabled[].weight",
        PLACEMENT,
    ),
    Unsupported::refused("extenders[].urlPrefix", &[], EXTENDER),
    Unsupported::refused("extenders[].filterVerb", &[], EXTENDER),
    Unsupported::refused("extenders[].preemptVerb", &[], EXTENDER),
    Unsupported::refused("extenders[].prioritizeVerb", &[], EXTENDER),
    Unsupported::refused("extenders[].weight", &[], EXTENDER),
    Unsupported::refused("extenders[].bindVerb", &[], EXTENDER),
    Unsupported::refused("extenders[].enableHTTPS", &[], EXTENDER),
    Unsupported::refused("extenders[].tlsConfig.insecure", &[], EXTENDER),
    Unsupported::refused("extenders[].tlsConfig.serverName", &[], EXTENDER),
    Unsupported::refused("extenders[].tlsConfig.certFile", &[], EXTENDER),
    Unsupported::refused("extenders[].tlsConfig.keyFile", &[], EXTENDER),
    Unsupported::refused("extenders[].tlsConfig.caFile", &[], EXTENDER),
    Unsupported::refused("extenders[].tlsConfig.certData", &[], EXTENDER),
    Unsupported::refused("extenders[].tlsConfig.keyData", &[], EXTENDER),
    Unsupported::refused("extenders[].tlsConfig.caData", &[], EXTENDER),
    Unsupported::refused("extenders[].httpTimeout", &[], EXTENDER),
    Unsupported::refused("extenders[].nodeCacheCapable", &[], EXTENDER),
    Unsupported::refused("extenders[].managedResources[].name", &[], EXTENDER),
    Unsupported::refused(
        "extenders[].managedResources[].ignoredByScheduler",
        &[],
        EXTENDER,
    ),
    Unsupported::refused("extenders[].ignorable", &[], EXTENDER),
];

/// Extension points that a profile configures.
const POINTS: [&str; 13] = [
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
    "multiPoint",
];

/// Returns the fields of KubeSchedulerConfiguration v1 that are implemented.
pub fn honoured_fields() -> Vec<String> {
    let plain = [
        "leaderElection.leaderElect",
        "leaderElection.leaseDuration",
        "leaderElection.renewDeadline",
        "leaderElection.retryPeriod",
        "leaderElection.resourceName",
        "leaderElection.resourceNamespace",
        "clientConnection.kubeconfig",
        "percentageOfNodesToScore",
        "podInitialBackoffSeconds",
        "podMaxBackoffSeconds",
        "profiles[].schedulerName",
        "profiles[].percentageOfNodesToScore",
        "profiles[].pluginConfig[].name",
        "profiles[].pluginConfig[].args",
    ];
    let of_point = |point| {
        let fields = [
            "enabled[].name",
            "enabled[].weight",
            "disabled[].name",
            "disabled[].weight",
        ];
        fields.map(|field| format!("profiles[].plugins.{point}.{field}"))
    };
    plain
        .into_iter()
        .map(str::to_owned)
        .chain(POINTS.into_iter().flat_map(of_point))
        .collect()
}

/// Plugins of upstream's registry that are not implemented, with the consequence.
pub(crate) const MISSING_PLUGINS: &[(&str, &str)] = &[
    (
        "VolumeRestrictions",
        "ReadWriteOncePod claims are not enforced",
    ),
    (
        "NodeVolumeLimits",
        "the volumes that a node can attach are not counted",
    ),
    ("VolumeZone", "zone labels of volumes are ignored"),
    (
        "NodeDeclaredFeatures",
        "features that nodes declare are ignored",
    ),
    (
        "GangScheduling",
        "pod groups are an alpha feature that is off",
    ),
    (
        "TopologyPlacementGenerator",
        "pod groups are an alpha feature that is off",
    ),
    (
        "PodGroupPodsCount",
        "pod groups are an alpha feature that is off",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_field_has_one_treatment() {
        let mut seen = HashSet::new();
        let rows = UPSTREAM_FIELDS
            .iter()
            .map(|row| row.name.to_owned())
            .chain(honoured_fields());
        for name in rows {
            assert!(seen.insert(name.clone()), "{name}");
        }
        assert_eq!(seen.len(), 103);
    }
}
