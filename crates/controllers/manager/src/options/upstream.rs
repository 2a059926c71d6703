//! Flags of the stock component that this one does not implement, with the consequence.

use base_cli::{Unsupported, shared};

const CLOUD: &str = "no cloud provider is built in; a cloud controller manager has the flag";
const RECYCLER: &str = "volumes with the reclaim policy Recycle are not recycled";
const ATTACH: &str =
    "volumes are not attached by this process; drivers that need attaching don't work";
const EVICTION: &str =
    "silent nodes are tainted without a limit on the rate, as long as any node is heard";
const BATCHES: &str =
    "changes are written as they come; those that come while one is written go together";

/// The tables that make up [`UPSTREAM_FLAGS`].
const TABLES: &[&[Unsupported]] = &[
    shared::LOGGING,
    shared::METRICS,
    shared::HIDDEN_METRICS,
    shared::PROFILES,
    shared::CONTENTION_PROFILES,
    shared::EMULATED_VERSION,
    shared::VERSIONS,
    shared::API_CLIENT,
    shared::LEADER_ELECTION,
    shared::SERVING,
    shared::METRICS_SERVER,
    shared::AUTHENTICATION,
    OWN,
];

/// Every such flag.
pub const UPSTREAM_FLAGS: &[Unsupported] =
    &shared::join_tables::<{ shared::count_rows(TABLES) }>(TABLES);

/// Flags that no table of [`shared`] has.
const OWN: &[Unsupported] = &[
    Unsupported::no_effect("allow-untagged-cloud", CLOUD),
    Unsupported::no_effect("attach-detach-reconcile-sync-period", ATTACH),
    // Settings are refused if the cluster would behave differently without them or be less secure.
    // Mere tuning only causes a warning.
    Unsupported::refused(
        "cidr-allocator-type",
        &["RangeAllocator"],
        "subnets are allocated from --cluster-cidr only",
    ),
    Unsupported::no_effect("cloud-config", CLOUD),
    Unsupported::no_effect("cloud-provider", CLOUD),
    Unsupported::no_effect("cluster-name", "only cloud providers use the name"),
    Unsupported::no_effect(
        "concurrent-device-taint-eviction-syncs",
        "pods are not evicted for device taints",
    ),
    Unsupported::no_effect(
        "concurrent-ephemeralvolume-syncs",
        "two ephemeral volumes are worked at once",
    ),
    Unsupported::no_effect("controller-shutdown-timeout", "controllers have 5 s to end"),
    Unsupported::no_effect("configure-cloud-routes", CLOUD),
    Unsupported::no_effect(
        "controller-start-interval",
        "controllers start as their caches fill",
    ),
    Unsupported::no_effect("disable-attach-detach-reconcile-sync", ATTACH),
    Unsupported::no_effect("disable-force-detach-on-timeout", ATTACH),
    Unsupported::refused(
        "disable-http2-serving",
        &["false"],
        "HTTP/2 is always offered",
    ),
    Unsupported::no_effect(
        "enable-dynamic-provisioning",
        "only external provisioners make volumes",
    ),
    Unsupported::refused(
        "enable-garbage-collector",
        &["true"],
        "the collector is switched off with --controllers=*,-garbage-collector-controller",
    ),
    Unsupported::no_effect(
        "enable-hostpath-provisioner",
        "only external provisioners make volumes",
    ),
    Unsupported::refused(
        "enable-leader-migration",
        &["false"],
        "controllers do not move to another manager's lease",
    ),
    Unsupported::no_effect("endpoint-updates-batch-period", BATCHES),
    Unsupported::no_effect("endpointslice-updates-batch-period", BATCHES),
    Unsupported::no_effect("external-cloud-volume-plugin", CLOUD),
    Unsupported::no_effect("flex-volume-plugin-dir", ATTACH),
    Unsupported::no_effect("large-cluster-size-threshold", EVICTION),
    Unsupported::refused(
        "leader-migration-config",
        &[""],
        "controllers do not move to another manager's lease",
    ),
    Unsupported::no_effect(
        "max-endpoints-per-slice",
        "a slice holds at most 100 endpoints",
    ),
    Unsupported::no_effect(
        "min-resync-period",
        "caches follow the server by watches; nothing is resynchronized",
    ),
    Unsupported::no_effect(
        "mirroring-concurrent-service-endpoint-syncs",
        "two Endpoints are mirrored at once",
    ),
    Unsupported::no_effect("mirroring-endpointslice-updates-batch-period", BATCHES),
    Unsupported::no_effect(
        "mirroring-max-endpoints-per-subset",
        "all addresses of a subset are mirrored",
    ),
    Unsupported::no_effect(
        "namespace-sync-period",
        "namespaces are worked when something in them changes",
    ),
    Unsupported::no_effect("node-eviction-rate", EVICTION),
    Unsupported::no_effect("node-monitor-period", "heartbeats are noticed as they come"),
    Unsupported::no_effect("node-sync-period", CLOUD),
    Unsupported::no_effect("pv-recycler-increment-timeout-nfs", RECYCLER),
    Unsupported::no_effect("pv-recycler-minimum-timeout-hostpath", RECYCLER),
    Unsupported::no_effect("pv-recycler-minimum-timeout-nfs", RECYCLER),
    Unsupported::no_effect("pv-recycler-pod-template-filepath-hostpath", RECYCLER),
    Unsupported::no_effect("pv-recycler-pod-template-filepath-nfs", RECYCLER),
    Unsupported::no_effect("pv-recycler-timeout-increment-hostpath", RECYCLER),
    Unsupported::no_effect(
        "pvclaimbinder-sync-period",
        "claims and volumes are worked when they or their class change",
    ),
    Unsupported::no_effect(
        "resource-quota-sync-period",
        "usage is counted anew when something goes; there is no period",
    ),
    Unsupported::no_effect("route-reconciliation-period", CLOUD),
    Unsupported::no_effect("secondary-node-eviction-rate", EVICTION),
    Unsupported::no_effect(
        "tls-sni-cert-key",
        "one certificate is served under every name",
    ),
    Unsupported::no_effect("unhealthy-zone-threshold", EVICTION),
];
