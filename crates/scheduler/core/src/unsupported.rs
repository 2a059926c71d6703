//! Flags and configuration fields of the stock scheduler that this one does not implement, each with its consequence.

use base_cli::Unsupported;

const NO_LOOKUP: &str = "no authentication settings are looked up in the cluster: only bearer tokens are accepted";
const NO_PROXY: &str = "/metrics takes bearer tokens only: requests of an authenticating proxy are rejected";
const ONE_STREAM: &str = "logs go to standard error, unbuffered and in one stream";
const NO_PROFILES: &str = "there is no /debug/pprof";
const FIXED_METRICS: &str = "the set of metrics and of their labels is fixed";
const JSON: &str = "the client encodes requests and decodes responses as JSON";
const NO_RATE: &str = "the client has no rate limit of its own; priority and fairness of the API server apply";
const EXTENDER: &str = "an extender that is not called would let pods onto nodes that it rules out";
const PLACEMENT: &str = "the extension point belongs to TopologyAwareWorkloadScheduling, an alpha feature that is off";

/// Flags that are not implemented.
pub const UPSTREAM_FLAGS: &[Unsupported] = &[
    Unsupported::no_effect("allow-metric-labels", FIXED_METRICS),
    Unsupported::no_effect("allow-metric-labels-manifest", FIXED_METRICS),
    Unsupported::no_effect("authentication-skip-lookup", NO_LOOKUP),
    Unsupported::no_effect("authentication-tolerate-lookup-failure", NO_LOOKUP),
    Unsupported::no_effect("cert-dir", "a self-signed certificate is kept in memory and written nowhere"),
    Unsupported::no_effect("client-ca-file", "client certificates are not accepted: /metrics takes bearer tokens only"),
    Unsupported::no_effect("contention-profiling", NO_PROFILES),
    Unsupported::no_effect("disabled-metrics", FIXED_METRICS),
    Unsupported::refused("emulated-version", &["", "1.36", "kube=1.36"], "no other version is emulated"),
    Unsupported::no_effect("emulation-forward-compatible", "no other version is emulated"),
    Unsupported::no_effect("feature-gates", "every feature is in its default state of v1.36"),
    Unsupported::no_effect("http2-max-streams-per-connection", "the limit of the HTTP library applies"),
    Unsupported::no_effect("kube-api-burst", NO_RATE),
    Unsupported::no_effect("kube-api-content-type", JSON),
    Unsupported::no_effect("kube-api-qps", NO_RATE),
    Unsupported::refused("leader-elect-resource-lock", &["leases"], "the lock is a Lease"),
    Unsupported::no_effect("log-flush-frequency", ONE_STREAM),
    Unsupported::no_effect("log-json-info-buffer-size", ONE_STREAM),
    Unsupported::no_effect("log-json-split-stream", ONE_STREAM),
    Unsupported::no_effect("log-text-info-buffer-size", ONE_STREAM),
    Unsupported::no_effect("log-text-split-stream", ONE_STREAM),
    Unsupported::refused("master", &[""], "the address of the API server comes from the kubeconfig"),
    Unsupported::no_effect("min-compatibility-version", "no other version is emulated"),
    Unsupported::no_effect("permit-address-sharing", "the address is bound exclusively"),
    Unsupported::no_effect("permit-port-sharing", "the port is bound exclusively"),
    Unsupported::no_effect("profiling", NO_PROFILES),
    Unsupported::no_effect("requestheader-allowed-names", NO_PROXY),
    Unsupported::no_effect("requestheader-client-ca-file", NO_PROXY),
    Unsupported::no_effect("requestheader-extra-headers-prefix", NO_PROXY),
    Unsupported::no_effect("requestheader-group-headers", NO_PROXY),
    Unsupported::no_effect("requestheader-uid-headers", NO_PROXY),
    Unsupported::no_effect("requestheader-username-headers", NO_PROXY),
    Unsupported::no_effect("show-hidden-metrics-for-version", "no metric is hidden"),
    Unsupported::refused(
        "tls-curve-preferences",
        &[""],
        "the key exchanges of the TLS library are offered, all of them",
    ),
    Unsupported::refused("tls-sni-cert-key", &["", "[]"], "one certificate is served under every name"),
    Unsupported::no_effect("vmodule", "the log level is set for the whole process with --v"),
    Unsupported::refused("write-config-to", &[""], "the effective configuration is not written"),
];

/// Fields of KubeSchedulerConfiguration v1 that are not implemented. `[]` stands for every entry of a list.
pub const UPSTREAM_FIELDS: &[Unsupported] = &[
    Unsupported::no_effect("parallelism", "one thread filters and scores, with the same outcome"),
    Unsupported::refused("leaderElection.resourceLock", &["leases"], "the lock is a Lease"),
    Unsupported::no_effect("clientConnection.acceptContentTypes", JSON),
    Unsupported::no_effect("clientConnection.contentType", JSON),
    Unsupported::no_effect("clientConnection.qps", NO_RATE),
    Unsupported::no_effect("clientConnection.burst", NO_RATE),
    Unsupported::no_effect("enableProfiling", NO_PROFILES),
    Unsupported::no_effect("enableContentionProfiling", NO_PROFILES),
    Unsupported::no_effect("delayCacheUntilActive", "a standby fills its caches too, so that it takes over at once"),
    Unsupported::refused("profiles[].plugins.placementGenerate.enabled[].name", &[], PLACEMENT),
    Unsupported::refused("profiles[].plugins.placementGenerate.enabled[].weight", &[], PLACEMENT),
    Unsupported::no_effect("profiles[].plugins.placementGenerate.disabled[].name", PLACEMENT),
    Unsupported::no_effect("profiles[].plugins.placementGenerate.disabled[].weight", PLACEMENT),
    Unsupported::refused("profiles[].plugins.placementScore.enabled[].name", &[], PLACEMENT),
    Unsupported::refused("profiles[].plugins.placementScore.enabled[].weight", &[], PLACEMENT),
    Unsupported::no_effect("profiles[].plugins.placementScore.disabled[].name", PLACEMENT),
    Unsupported::no_effect("profiles[].plugins.placementScore.disabled[].weight", PLACEMENT),
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
    Unsupported::refused("extenders[].managedResources[].ignoredByScheduler", &[], EXTENDER),
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
        let fields = ["enabled[].name", "enabled[].weight", "disabled[].name", "disabled[].weight"];
        fields.map(|field| format!("profiles[].plugins.{point}.{field}"))
    };
    plain.into_iter().map(str::to_owned).chain(POINTS.into_iter().flat_map(of_point)).collect()
}

/// Plugins of upstream's registry that are not implemented, with the consequence.
pub(crate) const MISSING_PLUGINS: &[(&str, &str)] = &[
    ("VolumeRestrictions", "ReadWriteOncePod claims are not enforced"),
    ("NodeVolumeLimits", "the volumes that a node can attach are not counted"),
    ("VolumeZone", "zone labels of volumes are ignored"),
    ("DynamicResources", "resource claims are not allocated"),
    ("NodeDeclaredFeatures", "features that nodes declare are ignored"),
    ("GangScheduling", "pod groups are an alpha feature that is off"),
    ("TopologyPlacementGenerator", "pod groups are an alpha feature that is off"),
    ("PodGroupPodsCount", "pod groups are an alpha feature that is off"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_field_has_one_treatment() {
        let mut seen = HashSet::new();
        let rows = UPSTREAM_FIELDS.iter().map(|row| row.name.to_owned()).chain(honoured_fields());
        for name in rows {
            assert!(seen.insert(name.clone()), "{name}");
        }
        assert_eq!(seen.len(), 103);
    }
}
