//! Flags of upstream's component base that several components don't implement, for the same reasons
//! in each.
//!
//! A component joins the tables that it has with one of its own: [`join_tables`].

use crate::upstream::Unsupported;

/// Reason why flags about the stream of log lines have no effect.
pub const ONE_STREAM: &str = "log lines go to standard error as they come, in one stream";
/// Reason why flags about metrics have no effect.
pub const FIXED_METRICS: &str = "metrics and their labels are fixed, and none is hidden";
/// Reason why flags about profiles have no effect.
pub const NO_PROFILES: &str = "no profiles are served";
/// Reason why feature gates have no effect.
pub const NO_GATES: &str = "there are no feature gates: what is implemented is always on";
/// Reason why the media type of requests can't be chosen.
pub const JSON: &str = "the client encodes requests and decodes responses as JSON";
/// Reason why limits on the rate of requests have no effect.
pub const NO_RATE: &str =
    "the client has no rate limit of its own; priority and fairness of the API server apply";
/// Reason why the effective configuration can't be written.
const NO_DUMP: &str = "the effective configuration is not written";
const ONE_VERSION: &str = "only the behaviour of this version exists";
const ONE_PROCESS: &str =
    "the port belongs to one process and is bound with the usual socket options";
const NO_LOOKUP: &str =
    "no authentication settings are looked up in the cluster: only bearer tokens are accepted";
const TOKENS_ONLY: &str = "/metrics takes bearer tokens only: no client certificate and no header of an authenticating proxy counts";

/// Log lines.
pub const LOGGING: &[Unsupported] = &[
    Unsupported::no_effect("log-flush-frequency", ONE_STREAM),
    Unsupported::no_effect("log-json-info-buffer-size", ONE_STREAM),
    Unsupported::no_effect("log-json-split-stream", ONE_STREAM),
    Unsupported::no_effect("log-text-info-buffer-size", ONE_STREAM),
    Unsupported::no_effect("log-text-split-stream", ONE_STREAM),
    Unsupported::no_effect(
        "vmodule",
        "the log level is the same for all modules; -v sets it",
    ),
];

/// Labels of metrics.
pub const METRICS: &[Unsupported] = &[
    Unsupported::no_effect("allow-metric-labels", FIXED_METRICS),
    Unsupported::no_effect("allow-metric-labels-manifest", FIXED_METRICS),
    Unsupported::no_effect("disabled-metrics", FIXED_METRICS),
];

/// Metrics that a version hides.
pub const HIDDEN_METRICS: &[Unsupported] = &[Unsupported::no_effect(
    "show-hidden-metrics-for-version",
    FIXED_METRICS,
)];

/// Profiles.
pub const PROFILES: &[Unsupported] = &[Unsupported::no_effect("profiling", NO_PROFILES)];

/// Profiles of blocked goroutines.
pub const CONTENTION_PROFILES: &[Unsupported] =
    &[Unsupported::no_effect("contention-profiling", NO_PROFILES)];

/// Feature gates.
pub const FEATURE_GATES: &[Unsupported] = &[Unsupported::no_effect("feature-gates", NO_GATES)];

/// Behaviour of other versions, without `--emulated-version`.
pub const VERSIONS: &[Unsupported] = &[
    Unsupported::no_effect("emulation-forward-compatible", ONE_VERSION),
    Unsupported::no_effect("min-compatibility-version", ONE_VERSION),
];

/// `--emulated-version`, where a value has no effect.
pub const EMULATED_VERSION: &[Unsupported] =
    &[Unsupported::no_effect("emulated-version", ONE_VERSION)];

/// Requests to the API server.
pub const API_CLIENT: &[Unsupported] = &[
    Unsupported::no_effect("kube-api-burst", NO_RATE),
    Unsupported::no_effect("kube-api-content-type", JSON),
    Unsupported::no_effect("kube-api-qps", NO_RATE),
];

/// The API server and the lock of leader election.
pub const LEADER_ELECTION: &[Unsupported] = &[
    Unsupported::refused(
        "leader-elect-resource-lock",
        &["leases"],
        "the lock is a Lease",
    ),
    Unsupported::refused(
        "master",
        &[""],
        "the address of the API server comes from the kubeconfig",
    ),
];

/// The port of the component's own server.
pub const SERVING: &[Unsupported] = &[
    Unsupported::no_effect("permit-address-sharing", ONE_PROCESS),
    Unsupported::no_effect("permit-port-sharing", ONE_PROCESS),
    Unsupported::refused(
        "tls-curve-preferences",
        &[""],
        "the key exchanges of the TLS library are offered, all of them",
    ),
];

/// Certificates by the name that a client asks for.
pub const NAMED_CERTIFICATES: &[Unsupported] = &[Unsupported::refused(
    "tls-sni-cert-key",
    &["", "[]"],
    "one certificate is served under every name",
)];

/// The server of health checks and metrics.
pub const METRICS_SERVER: &[Unsupported] = &[
    Unsupported::no_effect(
        "cert-dir",
        "a self-signed certificate is kept in memory and written nowhere",
    ),
    Unsupported::no_effect(
        "http2-max-streams-per-connection",
        "a connection carries at most 1,000 requests at once",
    ),
];

/// Delegated authentication.
pub const AUTHENTICATION: &[Unsupported] = &[
    Unsupported::no_effect("authentication-skip-lookup", NO_LOOKUP),
    Unsupported::no_effect("authentication-tolerate-lookup-failure", NO_LOOKUP),
    Unsupported::no_effect("client-ca-file", TOKENS_ONLY),
    Unsupported::no_effect("requestheader-allowed-names", TOKENS_ONLY),
    Unsupported::no_effect("requestheader-client-ca-file", TOKENS_ONLY),
    Unsupported::no_effect("requestheader-extra-headers-prefix", TOKENS_ONLY),
    Unsupported::no_effect("requestheader-group-headers", TOKENS_ONLY),
    Unsupported::no_effect("requestheader-uid-headers", TOKENS_ONLY),
    Unsupported::no_effect("requestheader-username-headers", TOKENS_ONLY),
];

/// Configuration files.
pub const CONFIGURATION: &[Unsupported] =
    &[Unsupported::refused("write-config-to", &[""], NO_DUMP)];

/// Returns the number of rows, the length of the joined table.
pub const fn count_rows(tables: &[&[Unsupported]]) -> usize {
    let (mut count, mut table) = (0, 0);
    while table < tables.len() {
        count += tables[table].len();
        table += 1;
    }
    count
}

/// Joins tables, in a constant: `&join_tables::<{ count_rows(TABLES) }>(TABLES)`.
pub const fn join_tables<const N: usize>(tables: &[&[Unsupported]]) -> [Unsupported; N] {
    let mut joined = [Unsupported::no_effect("", ""); N];
    let (mut at, mut table) = (0, 0);
    while table < tables.len() {
        let mut row = 0;
        while row < tables[table].len() {
            joined[at] = tables[table][row];
            at += 1;
            row += 1;
        }
        table += 1;
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_table_has_the_rows_of_all_tables_in_order() {
        const TABLES: &[&[Unsupported]] = &[PROFILES, &[], VERSIONS];
        const JOINED: &[Unsupported] = &join_tables::<{ count_rows(TABLES) }>(TABLES);
        assert_eq!(JOINED, [PROFILES, VERSIONS].concat());
    }
}
