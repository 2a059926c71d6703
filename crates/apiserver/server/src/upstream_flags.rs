//! Flags of the stock API server that this one does not implement.

use base_cli::{Unsupported, shared};

const NO_REDIRECTS: &str = "redirects of extension servers are never passed on";
const NO_PEERS: &str = "requests are not passed on to other API servers";
const NO_ELECTION: &str = "there is no coordinated leader election";
const FIXED_CACHE: &str = "the watch cache keeps all objects and the latest changes of each kind";

/// The tables that make up [`UPSTREAM_FLAGS`].
const TABLES: &[&[Unsupported]] = &[
    shared::LOGGING,
    shared::METRICS,
    shared::HIDDEN_METRICS,
    shared::PROFILES,
    shared::CONTENTION_PROFILES,
    shared::SERVING,
    shared::NAMED_CERTIFICATES,
    OWN,
];

/// Flags of the stock component that are not implemented.
pub const UPSTREAM_FLAGS: &[Unsupported] =
    &shared::join_tables::<{ shared::count_rows(TABLES) }>(TABLES);

/// Flags that no table of [`shared`] has.
const OWN: &[Unsupported] = &[
    Unsupported::refused(
        "admission-control",
        &[""],
        "it is replaced by --enable-admission-plugins",
    ),
    Unsupported::refused(
        "aggregator-reject-forwarding-redirect",
        &["true"],
        NO_REDIRECTS,
    ),
    Unsupported::refused(
        "allow-privileged",
        &["true"],
        "privileged containers are limited by Pod Security, not by a flag",
    ),
    Unsupported::no_effect(
        "apiserver-count",
        "endpoints of the Service kubernetes are not counted",
    ),
    Unsupported::no_effect(
        "authentication-token-webhook-cache-ttl",
        "there is no token webhook",
    ),
    Unsupported::refused(
        "authentication-token-webhook-config-file",
        &[""],
        "there is no token webhook, so its tokens would be refused",
    ),
    Unsupported::no_effect(
        "authentication-token-webhook-version",
        "there is no token webhook",
    ),
    Unsupported::no_effect(
        "cert-dir",
        "no certificate is made; --tls-cert-file gives it",
    ),
    Unsupported::no_effect("coordinated-leadership-lease-duration", NO_ELECTION),
    Unsupported::no_effect("coordinated-leadership-renew-deadline", NO_ELECTION),
    Unsupported::no_effect("coordinated-leadership-retry-period", NO_ELECTION),
    Unsupported::no_effect(
        "cors-allowed-origins",
        "answers carry no CORS headers, so browsers refuse scripts of other origins",
    ),
    Unsupported::no_effect("debug-socket-path", "there are no profiles"),
    Unsupported::no_effect(
        "default-not-ready-toleration-seconds",
        "pods tolerate a node that is not ready for 300 s",
    ),
    Unsupported::no_effect(
        "default-unreachable-toleration-seconds",
        "pods tolerate a node that is unreachable for 300 s",
    ),
    Unsupported::no_effect("default-watch-cache-size", FIXED_CACHE),
    Unsupported::no_effect(
        "delete-collection-workers",
        "32 objects of a collection are deleted at once",
    ),
    Unsupported::no_effect(
        "egress-selector-config-file",
        "connections to nodes, pods and services are direct",
    ),
    Unsupported::refused(
        "enable-garbage-collector",
        &["true"],
        "finalizers of the garbage collector are always set",
    ),
    Unsupported::no_effect("enable-logs-handler", "the path /logs is not served"),
    Unsupported::no_effect(
        "enable-priority-and-fairness",
        "requests are classified but share one queue, which --max-requests-inflight limits",
    ),
    Unsupported::refused(
        "encryption-provider-config",
        &[""],
        "objects would be stored unencrypted",
    ),
    Unsupported::no_effect(
        "encryption-provider-config-automatic-reload",
        "objects are stored unencrypted",
    ),
    Unsupported::no_effect(
        "etcd-count-metric-poll-period",
        "objects are counted in the watch cache",
    ),
    Unsupported::no_effect(
        "etcd-db-metric-poll-interval",
        "the store shows its size on its own metrics page",
    ),
    Unsupported::no_effect(
        "etcd-healthcheck-timeout",
        "the store has 2 s to answer a health check",
    ),
    Unsupported::no_effect(
        "etcd-readycheck-timeout",
        "the store has 2 s to answer a health check",
    ),
    Unsupported::refused(
        "etcd-servers-overrides",
        &[""],
        "all objects go to the store of --etcd-servers",
    ),
    Unsupported::no_effect(
        "goaway-chance",
        "connections are not closed to spread clients",
    ),
    Unsupported::no_effect("kubelet-port", "the port is taken from the node's status"),
    Unsupported::no_effect(
        "kubelet-read-only-port",
        "kubelets are requested over TLS only",
    ),
    Unsupported::no_effect("kubelet-timeout", "a connection to a kubelet has 5 s"),
    Unsupported::no_effect(
        "kubernetes-service-node-port",
        "the Service kubernetes has a cluster IP only",
    ),
    Unsupported::no_effect(
        "lease-reuse-duration-seconds",
        "leases of events are shared for 60 s",
    ),
    Unsupported::no_effect(
        "livez-grace-period",
        "/livez does not wait for what happens at start",
    ),
    Unsupported::no_effect(
        "max-connection-bytes-per-sec",
        "streams to pods are not slowed down",
    ),
    Unsupported::no_effect(
        "min-request-timeout",
        "watches without a timeout end after 30 to 60 minutes",
    ),
    Unsupported::no_effect("peer-advertise-ip", NO_PEERS),
    Unsupported::no_effect("peer-advertise-port", NO_PEERS),
    Unsupported::no_effect("peer-ca-file", NO_PEERS),
    Unsupported::no_effect(
        "send-retry-after-while-not-ready-once",
        "requests are answered as soon as the port is open",
    ),
    Unsupported::refused(
        "service-account-lookup",
        &["true"],
        "objects that tokens are bound to are always looked up",
    ),
    Unsupported::refused(
        "service-account-signing-endpoint",
        &[""],
        "tokens are signed with --service-account-signing-key-file",
    ),
    Unsupported::no_effect(
        "shutdown-send-retry-after",
        "requests during shutdown are answered as usual",
    ),
    Unsupported::no_effect(
        "shutdown-watch-termination-grace-period",
        "watches end when the server stops to listen",
    ),
    Unsupported::refused(
        "storage-backend",
        &["", "etcd3"],
        "the store speaks etcd v3",
    ),
    Unsupported::no_effect(
        "storage-initialization-timeout",
        "the server waits for the store as long as it takes",
    ),
    Unsupported::refused(
        "strict-transport-security-directives",
        &[""],
        "answers carry no such header",
    ),
    Unsupported::no_effect("tracing-config-file", "no traces are sent"),
    Unsupported::no_effect(
        "watch-cache",
        "reads always come from the watch cache, brought up to the store's revision",
    ),
    Unsupported::no_effect("watch-cache-sizes", FIXED_CACHE),
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::ServerOptions;
    use base_cli::{Treatment, Verdict};
    use clap::CommandFactory;
    use std::collections::BTreeSet;

    #[test]
    fn settings_that_protect_are_not_ignored() {
        for name in [
            "authentication-token-webhook-config-file",
            "encryption-provider-config",
            "tls-sni-cert-key",
        ] {
            let setting = UPSTREAM_FLAGS
                .iter()
                .find(|setting| setting.name == name)
                .unwrap();
            assert!(
                matches!(setting.evaluate_value(name, "/etc/x"), Verdict::Stop(_)),
                "{name}"
            );
        }
    }

    #[test]
    fn flag_is_either_implemented_or_listed() {
        let command = ServerOptions::command();
        for setting in UPSTREAM_FLAGS {
            let implemented = command
                .get_arguments()
                .any(|argument| argument.get_long() == Some(setting.name));
            assert!(!implemented, "{} is implemented and listed", setting.name);
        }
        let names: BTreeSet<&str> = UPSTREAM_FLAGS.iter().map(|setting| setting.name).collect();
        assert_eq!(names.len(), UPSTREAM_FLAGS.len(), "a name is listed twice");
    }

    #[test]
    fn flags_of_the_usual_installers_stop_nothing() {
        for (name, value) in [
            ("allow-privileged", "true"),
            ("egress-selector-config-file", "/x"),
            ("profiling", "false"),
            ("storage-backend", "etcd3"),
            ("service-account-lookup", "true"),
            ("cert-dir", "/x"),
        ] {
            let setting = UPSTREAM_FLAGS
                .iter()
                .find(|setting| setting.name == name)
                .unwrap();
            let stops = matches!(setting.evaluate_value(name, value), Verdict::Stop(_));
            assert!(
                !stops || matches!(setting.treatment, Treatment::NoEffect),
                "{name}={value}"
            );
        }
    }
}
