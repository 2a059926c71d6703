//! Flags of the corruption check.

use super::time::parse_duration;
use anyhow::{Result, bail};
use clap::{ArgAction, Args};
use std::time::Duration;

/// etcd's feature gates.
const GATES: &[&str] = &[
    "AllAlpha",
    "AllBeta",
    "CompactHashCheck",
    // Leases are renewed by the leader without waiting for the log, whether this gate of etcd 3.7
    // is open or not.
    "FastLeaseKeepAlive",
    "InitialCorruptCheck",
    "LeaseCheckpoint",
    "LeaseCheckpointPersist",
    "SetMemberLocalAddr",
    "StopGRPCServiceOnDefrag",
    "TxnModeWriteWithSharedBuffer",
];

/// Occasions on which the members' data are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CorruptionChecks {
    /// Before this member serves.
    pub initial: bool,
    /// Interval on the leader, at the current revision.
    pub every: Option<Duration>,
    /// Interval on the leader, at the compacted revision if that has changed.
    pub compacted_every: Option<Duration>,
}

/// Flags of the comparison of the members' data.
#[derive(Args, Debug, Clone)]
pub struct CorruptionFlags {
    /// Interval at which the leader compares the members' data and raises the alarm CORRUPT for a
    /// member that differs; 0: never
    #[arg(
        long,
        alias = "experimental-corrupt-check-time",
        env = "ETCD_CORRUPT_CHECK_TIME",
        default_value = "0s"
    )]
    corrupt_check_time: String,
    /// Interval of the same check after compactions, with the feature gate CompactHashCheck
    #[arg(
        long,
        alias = "experimental-compact-hash-check-time",
        env = "ETCD_COMPACT_HASH_CHECK_TIME",
        default_value = "1m"
    )]
    compact_hash_check_time: String,
    /// Features to turn on or off: InitialCorruptCheck=true (compare this member's data with the
    /// others' before it serves), CompactHashCheck=true; etcd's other gates have no effect
    #[arg(long, env = "ETCD_FEATURE_GATES", default_value = "")]
    feature_gates: String,
    /// Same as the feature gate InitialCorruptCheck
    #[arg(long, env = "ETCD_EXPERIMENTAL_INITIAL_CORRUPT_CHECK", action = ArgAction::Set, num_args = 0..=1, default_value_t = false, default_missing_value = "true", require_equals = true)]
    experimental_initial_corrupt_check: bool,
    /// Same as the feature gate CompactHashCheck
    #[arg(long, env = "ETCD_EXPERIMENTAL_COMPACT_HASH_CHECK_ENABLED", action = ArgAction::Set, num_args = 0..=1, default_value_t = false, default_missing_value = "true", require_equals = true)]
    experimental_compact_hash_check_enabled: bool,
}

impl CorruptionFlags {
    /// Parses the flags.
    pub fn parse(&self) -> Result<CorruptionChecks> {
        let second = Duration::from_secs(1);
        let every = parse_duration("corrupt-check-time", &self.corrupt_check_time, second)?;
        let compacted = parse_duration(
            "compact-hash-check-time",
            &self.compact_hash_check_time,
            second,
        )?;
        // As etcd, which accepts 0 for the other interval only.
        if compacted.is_zero() {
            bail!(
                "--compact-hash-check-time must be >0 (set to {}): give a time like 1m",
                self.compact_hash_check_time
            );
        }
        let on = |gate: &str, flag: bool| Ok::<_, anyhow::Error>(flag || self.gate(gate)?);
        let compare_compacted = on(
            "CompactHashCheck",
            self.experimental_compact_hash_check_enabled,
        )?;
        Ok(CorruptionChecks {
            initial: on(
                "InitialCorruptCheck",
                self.experimental_initial_corrupt_check,
            )?,
            every: (!every.is_zero()).then_some(every),
            compacted_every: compare_compacted.then_some(compacted),
        })
    }

    /// Returns whether a feature is enabled. Its own setting takes precedence over that of all
    /// features.
    fn gate(&self, feature: &str) -> Result<bool> {
        let (mut all, mut this) = (false, None);
        for given in self
            .feature_gates
            .split(',')
            .map(str::trim)
            .filter(|given| !given.is_empty())
        {
            let Some((name, value)) = given.split_once('=') else {
                bail!(
                    "--feature-gates: missing bool value for {given}: give {given}=true or {given}=false"
                );
            };
            let (name, value) = (name.trim(), value.trim());
            let Ok(on) = value.parse::<bool>() else {
                bail!("--feature-gates: invalid value of {name}={value}: give true or false");
            };
            match name {
                _ if !GATES.contains(&name) => {
                    bail!(
                        "--feature-gates: unrecognized feature gate: {name}: there are {}",
                        GATES.join(", ")
                    )
                }
                // The gates that have an effect here are alpha in etcd 3.6, so AllBeta changes
                // nothing.
                "AllAlpha" => all = on,
                _ if name == feature => this = Some(on),
                _ => {}
            }
        }
        Ok(this.unwrap_or(all))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::flags::Flags;
    use clap::Parser;

    fn checks(words: &[&str]) -> Result<CorruptionChecks> {
        let words = std::iter::once("kvstore").chain(words.iter().copied());
        Flags::try_parse_from(words)?.serve.corruption.parse()
    }

    #[test]
    fn members_are_compared_as_the_flags_say() {
        let none = CorruptionChecks::default();
        assert_eq!(checks(&[]).unwrap(), none);
        let minute = Some(Duration::from_secs(60));
        assert_eq!(
            checks(&["--experimental-corrupt-check-time=1m"]).unwrap(),
            CorruptionChecks {
                every: minute,
                ..none
            }
        );
        assert_eq!(
            checks(&["--corrupt-check-time=60s"]).unwrap(),
            CorruptionChecks {
                every: minute,
                ..none
            }
        );
        let initial = CorruptionChecks {
            initial: true,
            ..none
        };
        assert_eq!(
            checks(&["--experimental-initial-corrupt-check"]).unwrap(),
            initial
        );
        assert_eq!(
            checks(&["--feature-gates=LeaseCheckpoint=true,InitialCorruptCheck=true"]).unwrap(),
            initial
        );
        assert_eq!(
            checks(&["--feature-gates=InitialCorruptCheck=true,AllAlpha=false"]).unwrap(),
            initial
        );
        assert_eq!(
            checks(&["--feature-gates=AllAlpha=true,CompactHashCheck=false"]).unwrap(),
            initial
        );
        assert_eq!(
            checks(&["--feature-gates=FastLeaseKeepAlive=true"]).unwrap(),
            none
        );
        assert_eq!(
            checks(&["--feature-gates=FastLeaseKeepAlive=false"]).unwrap(),
            none
        );
        let compacted = CorruptionChecks {
            compacted_every: minute,
            ..none
        };
        assert_eq!(
            checks(&["--experimental-compact-hash-check-enabled"]).unwrap(),
            compacted
        );
        assert_eq!(
            checks(&["--feature-gates=CompactHashCheck=true"]).unwrap(),
            compacted
        );
        for (wrong, expect) in [
            ("--feature-gates=Nonsense=true", "unrecognized feature gate"),
            ("--feature-gates=CompactHashCheck", "missing bool value"),
            ("--feature-gates=CompactHashCheck=maybe", "true or false"),
            ("--compact-hash-check-time=0", "must be >0"),
            ("--corrupt-check-time=soon", "invalid duration"),
        ] {
            let message = checks(&[wrong]).unwrap_err().to_string();
            assert!(message.contains(expect), "{wrong}: {message}");
        }
    }
}
