//! Flags of etcd that are not implemented.

use anyhow::{Result, bail};
use base_cli::{Unsupported, Verdict};
use clap::Command;

const OUT: &str = "starting without it would accept clients or members that it excludes";
const DISC: &str =
    "the member would start a cluster of its own instead of joining the discovered one";

/// Flags of etcd 3.4 to 3.6 that are not implemented.
pub const UPSTREAM_FLAGS: &[Unsupported] = &[
    Unsupported::refused("client-crl-file", &[""], OUT),
    Unsupported::refused("peer-crl-file", &[""], OUT),
    Unsupported::refused("peer-cert-allowed-hostname", &[""], OUT),
    Unsupported::refused("client-cert-allowed-hostname", &[""], OUT),
    Unsupported::refused("host-whitelist", &["", "*"], OUT),
    Unsupported::refused("discovery", &[""], DISC),
    Unsupported::refused("discovery-srv", &[""], DISC),
    Unsupported::refused("discovery-endpoints", &[""], DISC),
    Unsupported::refused("discovery-token", &[""], DISC),
    Unsupported::refused(
        "proxy",
        &["", "off"],
        "there is no proxy mode, and a member started instead would bootstrap a cluster",
    ),
    Unsupported::no_effect(
        "backend-batch-interval",
        "the engine's batches are those of the log",
    ),
    Unsupported::no_effect(
        "backend-batch-limit",
        "the engine's batches are those of the log",
    ),
    Unsupported::no_effect("backend-bbolt-freelist-type", "the engine is not bbolt"),
    Unsupported::no_effect(
        "bootstrap-defrag-threshold-megabytes",
        "files shrink while serving",
    ),
    Unsupported::no_effect(
        "client-cert-file",
        "only etcd's JSON gateway uses it, and there is none",
    ),
    Unsupported::no_effect(
        "client-key-file",
        "only etcd's JSON gateway uses it, and there is none",
    ),
    Unsupported::no_effect(
        "compaction-batch-limit",
        "compaction takes steps of at most 5 ms",
    ),
    Unsupported::no_effect(
        "compaction-sleep-interval",
        "compaction runs in steps of at most 5 ms, and other requests run in between",
    ),
    Unsupported::no_effect(
        "cors",
        "no page allows other origins, so browsers reject all of them",
    ),
    Unsupported::no_effect("discovery-cacert", "there is no discovery"),
    Unsupported::no_effect("discovery-cert", "there is no discovery"),
    Unsupported::no_effect("discovery-dial-timeout", "there is no discovery"),
    Unsupported::no_effect(
        "discovery-fallback",
        "there is no discovery to fall back from",
    ),
    Unsupported::no_effect(
        "discovery-insecure-skip-tls-verify",
        "there is no discovery",
    ),
    Unsupported::no_effect("discovery-insecure-transport", "there is no discovery"),
    Unsupported::no_effect("discovery-keepalive-time", "there is no discovery"),
    Unsupported::no_effect("discovery-keepalive-timeout", "there is no discovery"),
    Unsupported::no_effect("discovery-key", "there is no discovery"),
    Unsupported::no_effect("discovery-password", "there is no discovery"),
    Unsupported::no_effect("discovery-proxy", "there is no discovery"),
    Unsupported::no_effect("discovery-request-timeout", "there is no discovery"),
    Unsupported::no_effect("discovery-srv-name", "there is no discovery"),
    Unsupported::no_effect("discovery-user", "there is no discovery"),
    Unsupported::no_effect("distributed-tracing-address", "there are no traces"),
    Unsupported::no_effect("distributed-tracing-instance-id", "there are no traces"),
    Unsupported::no_effect("distributed-tracing-sampling-rate", "there are no traces"),
    Unsupported::no_effect("distributed-tracing-service-name", "there are no traces"),
    Unsupported::no_effect(
        "downgrade-check-time",
        "no older version reads these data directories",
    ),
    Unsupported::no_effect("enable-distributed-tracing", "there are no traces"),
    Unsupported::no_effect(
        "enable-grpc-gateway",
        "there is no JSON gateway: clients speak gRPC",
    ),
    Unsupported::no_effect(
        "enable-log-rotation",
        "logs go to standard error; rotate them where they are stored",
    ),
    Unsupported::no_effect("enable-pprof", "there are no Go profiles"),
    Unsupported::no_effect("enable-v2", "the v2 API ended with etcd 3.6"),
    Unsupported::no_effect(
        "experimental-bootstrap-defrag-threshold-megabytes",
        "files shrink while serving",
    ),
    Unsupported::no_effect(
        "experimental-compaction-batch-limit",
        "compaction takes steps of at most 5 ms",
    ),
    Unsupported::no_effect(
        "experimental-compaction-sleep-interval",
        "compaction runs in steps of at most 5 ms, and other requests run in between",
    ),
    Unsupported::no_effect(
        "experimental-distributed-tracing-address",
        "there are no traces",
    ),
    Unsupported::no_effect(
        "experimental-distributed-tracing-instance-id",
        "there are no traces",
    ),
    Unsupported::no_effect(
        "experimental-distributed-tracing-sampling-rate",
        "there are no traces",
    ),
    Unsupported::no_effect(
        "experimental-distributed-tracing-service-name",
        "there are no traces",
    ),
    Unsupported::no_effect(
        "experimental-downgrade-check-time",
        "no older version reads these data directories",
    ),
    Unsupported::no_effect(
        "experimental-enable-distributed-tracing",
        "there are no traces",
    ),
    Unsupported::no_effect(
        "experimental-enable-lease-checkpoint",
        "the remaining TTL of leases is always checkpointed",
    ),
    Unsupported::no_effect(
        "experimental-enable-lease-checkpoint-persist",
        "the remaining TTL of leases is always checkpointed",
    ),
    Unsupported::no_effect(
        "experimental-memory-mlock",
        "the state in memory is not mapped from a file",
    ),
    Unsupported::no_effect(
        "experimental-peer-skip-client-san-verification",
        "a member's certificate is verified against its peer URL, not against its source address",
    ),
    Unsupported::no_effect(
        "experimental-stop-grpc-service-on-defrag",
        "requests continue during defragmentation",
    ),
    Unsupported::no_effect(
        "experimental-txn-mode-write-with-shared-buffer",
        "reads come from memory, without a buffer to share",
    ),
    Unsupported::no_effect(
        "grpc-keepalive-min-time",
        "the rate of clients' pings is not limited",
    ),
    Unsupported::no_effect(
        "initial-election-tick-advance",
        "the first election waits for the election timeout, like every other",
    ),
    Unsupported::no_effect("log-outputs", "logs go to standard error"),
    Unsupported::no_effect(
        "log-rotation-config-json",
        "logs go to standard error; rotate them where they are stored",
    ),
    Unsupported::no_effect("logger", "there is one logger"),
    Unsupported::no_effect(
        "max-snapshots",
        "there are no snapshot files: the engine contains the state",
    ),
    Unsupported::no_effect(
        "max-wals",
        "the log is cut after each --snapshot-count entries",
    ),
    Unsupported::no_effect(
        "memory-mlock",
        "the state in memory is not mapped from a file",
    ),
    Unsupported::no_effect(
        "peer-skip-client-san-verification",
        "a member's certificate is verified against its peer URL, not against its source address",
    ),
    Unsupported::no_effect("pre-vote", "a member always uses PreVote"),
    Unsupported::no_effect("proxy-dial-timeout", "there is no v2 proxy"),
    Unsupported::no_effect("proxy-failure-wait", "there is no v2 proxy"),
    Unsupported::no_effect("proxy-read-timeout", "there is no v2 proxy"),
    Unsupported::no_effect("proxy-refresh-interval", "there is no v2 proxy"),
    Unsupported::no_effect("proxy-write-timeout", "there is no v2 proxy"),
    Unsupported::no_effect(
        "raft-read-timeout",
        "connections between members have keep-alive pings every 5 s",
    ),
    Unsupported::no_effect(
        "raft-write-timeout",
        "connections between members have keep-alive pings every 5 s",
    ),
    Unsupported::no_effect("socket-reuse-address", "addresses are reused in any case"),
    Unsupported::no_effect("socket-reuse-port", "a port belongs to one process"),
    Unsupported::no_effect(
        "stop-grpc-service-on-defrag",
        "requests continue during defragmentation",
    ),
    Unsupported::no_effect(
        "unsafe-no-fsync",
        "every write is synced before it is acknowledged",
    ),
    Unsupported::no_effect("v2-deprecation", "there is no v2 store"),
];

/// Returns the name of etcd's environment variable for a flag.
fn variable_name(flag: &str) -> String {
    format!("ETCD_{}", flag.replace('-', "_").to_uppercase())
}

/// Returns warnings about environment variables that are set for the former names of flags. etcd
/// reads them; here only the command line and the configuration file accept those names.
pub(super) fn find_former_names(
    command: &Command,
    variable: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let warn = |former: &str, flag: &str| {
        let name = variable_name(former);
        variable(&name).map(|_| format!("{name} is not read; set {}", variable_name(flag)))
    };
    let mut warnings = Vec::new();
    for argument in command.get_arguments() {
        let flag = argument.get_long().unwrap_or_default();
        for former in argument.get_all_aliases().unwrap_or_default() {
            warnings.extend(warn(former, flag));
        }
    }
    warnings
}

/// Checks the environment variables of these flags, which etcd reads as well.
pub(super) fn check_environment(variable: impl Fn(&str) -> Option<String>) -> Result<()> {
    for flag in UPSTREAM_FLAGS {
        let name = variable_name(flag.name);
        let Some(value) = variable(&name) else {
            continue;
        };
        match flag.evaluate_value(&name, &value) {
            Verdict::Pass => {}
            Verdict::Warn(warning) => tracing::warn!("{warning}"),
            Verdict::Stop(refusal) => bail!("{refusal}"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_flag_has_one_row_and_a_reason() {
        let names: BTreeSet<&str> = UPSTREAM_FLAGS.iter().map(|flag| flag.name).collect();
        assert_eq!(names.len(), UPSTREAM_FLAGS.len());
        assert!(
            UPSTREAM_FLAGS
                .iter()
                .all(|flag| flag.reason.len() > 10 && !flag.reason.contains("not implemented"))
        );
    }

    #[test]
    fn environment_is_judged_like_flags() {
        let given = |name: &'static str, value: &'static str| {
            move |asked: &str| (asked == name).then(|| value.to_owned())
        };
        let refused = check_environment(given("ETCD_CLIENT_CRL_FILE", "/x"))
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("ETCD_CLIENT_CRL_FILE") && refused.contains("not supported"),
            "{refused}"
        );
        check_environment(given("ETCD_HOST_WHITELIST", "*")).unwrap();
        check_environment(given("ETCD_LOGGER", "zap")).unwrap();
        check_environment(|_| None).unwrap();
    }

    #[test]
    fn variable_of_a_former_name_is_warned_about() {
        use clap::CommandFactory;
        let warnings = |given: &str| {
            find_former_names(&crate::Flags::command(), |asked| {
                (asked == given).then(|| "7".to_owned())
            })
        };
        for name in [
            "SNAPSHOT_CATCHUP_ENTRIES",
            "MAX_LEARNERS",
            "CORRUPT_CHECK_TIME",
        ] {
            let former = format!("ETCD_EXPERIMENTAL_{name}");
            let expect = format!("{former} is not read; set ETCD_{name}");
            assert_eq!(warnings(&former), [expect]);
            assert!(warnings(&format!("ETCD_{name}")).is_empty());
        }
    }
}
