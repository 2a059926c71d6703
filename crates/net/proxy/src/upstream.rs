//! Flags and configuration fields of the stock kube-proxy that this one does not implement, each
//! with its consequence.

use base_cli::{Unsupported, shared};

const IPVS: &str = "it belongs to the mode ipvs, which is not offered";
const WINDOWS: &str = "it belongs to Windows";
const LOG_FLAGS: &str = "logging is set with the flags --v and --logging-format";
const WATCH: &str = "changes arrive by watches, and there is no periodic refresh";

/// The tables that make up [`UPSTREAM_FLAGS`].
const TABLES: &[&[Unsupported]] = &[
    shared::LOGGING,
    shared::HIDDEN_METRICS,
    shared::PROFILES,
    shared::FEATURE_GATES,
    shared::API_CLIENT,
    shared::CONFIGURATION,
    OWN,
];

/// Flags that are not implemented.
pub const UPSTREAM_FLAGS: &[Unsupported] =
    &shared::join_tables::<{ shared::count_rows(TABLES) }>(TABLES);

/// Flags that no table of [`shared`] has.
const OWN: &[Unsupported] = &[
    Unsupported::no_effect("config-sync-period", WATCH),
    Unsupported::refused(
        "healthz-port",
        &["10256"],
        "the port is set with --healthz-bind-address",
    ),
    Unsupported::no_effect("ipvs-exclude-cidrs", IPVS),
    Unsupported::no_effect("ipvs-min-sync-period", IPVS),
    Unsupported::no_effect("ipvs-scheduler", IPVS),
    Unsupported::no_effect("ipvs-strict-arp", IPVS),
    Unsupported::no_effect("ipvs-sync-period", IPVS),
    Unsupported::no_effect("ipvs-tcp-timeout", IPVS),
    Unsupported::no_effect("ipvs-tcpfin-timeout", IPVS),
    Unsupported::no_effect("ipvs-udp-timeout", IPVS),
    Unsupported::refused(
        "metrics-port",
        &["10249"],
        "the port is set with --metrics-bind-address",
    ),
];

/// Fields of KubeProxyConfiguration v1alpha1 that are not implemented.
pub const UPSTREAM_FIELDS: &[Unsupported] = &[
    Unsupported::no_effect("featureGates", shared::NO_GATES),
    Unsupported::no_effect("clientConnection.acceptContentTypes", shared::JSON),
    Unsupported::no_effect("clientConnection.contentType", shared::JSON),
    Unsupported::no_effect("clientConnection.qps", shared::NO_RATE),
    Unsupported::no_effect("clientConnection.burst", shared::NO_RATE),
    Unsupported::no_effect("logging.format", LOG_FLAGS),
    Unsupported::no_effect("logging.flushFrequency", shared::ONE_STREAM),
    Unsupported::no_effect("logging.verbosity", LOG_FLAGS),
    Unsupported::no_effect("logging.vmodule", LOG_FLAGS),
    Unsupported::no_effect("logging.options.text.splitStream", shared::ONE_STREAM),
    Unsupported::no_effect("logging.options.text.infoBufferSize", shared::ONE_STREAM),
    Unsupported::no_effect("logging.options.json.splitStream", shared::ONE_STREAM),
    Unsupported::no_effect("logging.options.json.infoBufferSize", shared::ONE_STREAM),
    Unsupported::no_effect("enableProfiling", shared::NO_PROFILES),
    Unsupported::no_effect("showHiddenMetricsForVersion", shared::FIXED_METRICS),
    Unsupported::no_effect("ipvs.syncPeriod", IPVS),
    Unsupported::no_effect("ipvs.minSyncPeriod", IPVS),
    Unsupported::no_effect("ipvs.scheduler", IPVS),
    Unsupported::no_effect("ipvs.excludeCIDRs", IPVS),
    Unsupported::no_effect("ipvs.strictARP", IPVS),
    Unsupported::no_effect("ipvs.tcpTimeout", IPVS),
    Unsupported::no_effect("ipvs.tcpFinTimeout", IPVS),
    Unsupported::no_effect("ipvs.udpTimeout", IPVS),
    Unsupported::no_effect("winkernel.networkName", WINDOWS),
    Unsupported::no_effect("winkernel.sourceVip", WINDOWS),
    Unsupported::no_effect("winkernel.enableDSR", WINDOWS),
    Unsupported::no_effect("winkernel.rootHnsEndpointName", WINDOWS),
    Unsupported::no_effect("winkernel.forwardHealthCheckVip", WINDOWS),
    Unsupported::no_effect("configSyncPeriod", WATCH),
    Unsupported::no_effect(
        "portRange",
        "upstream has no use for it either: kube-proxy opens no ports for Services",
    ),
    Unsupported::no_effect("windowsRunAsService", WINDOWS),
];

/// Returns the fields of KubeProxyConfiguration v1alpha1 that are implemented.
#[must_use]
pub fn honoured_fields() -> &'static [&'static str] {
    &[
        "bindAddress",
        "bindAddressHardFail",
        "clientConnection.kubeconfig",
        "clusterCIDR",
        "conntrack.maxPerCore",
        "conntrack.min",
        "conntrack.tcpBeLiberal",
        "conntrack.tcpCloseWaitTimeout",
        "conntrack.tcpEstablishedTimeout",
        "conntrack.udpStreamTimeout",
        "conntrack.udpTimeout",
        "detectLocal.bridgeInterface",
        "detectLocal.interfaceNamePrefix",
        "detectLocalMode",
        "healthzBindAddress",
        "hostnameOverride",
        "iptables.localhostNodePorts",
        "iptables.masqueradeAll",
        "iptables.masqueradeBit",
        "iptables.minSyncPeriod",
        "iptables.syncPeriod",
        "metricsBindAddress",
        "mode",
        "nftables.masqueradeAll",
        "nftables.masqueradeBit",
        "nftables.minSyncPeriod",
        "nftables.syncPeriod",
        "nodePortAddresses",
        "oomScoreAdj",
    ]
}
