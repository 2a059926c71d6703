//! Flags of leader election.

use std::time::Duration;

use base_duration::parse_unsigned;
use clap::{ArgAction, Args};
use client::election::LeaderConfig;

use crate::host_name::host_name;

/// Flags of leader election. A component sets its own default of `leader_elect_resource_name`.
#[derive(Clone, Debug, Args)]
pub struct LeaderElectionFlags {
    /// Run only while holding the Lease
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = ArgAction::Set)]
    pub leader_elect: bool,
    /// Duration of the Lease: how long others wait for a renewal
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = parse_unsigned)]
    pub leader_elect_lease_duration: Duration,
    /// Time for which a leader that cannot renew keeps leading
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_unsigned)]
    pub leader_elect_renew_deadline: Duration,
    /// Interval between attempts to acquire the Lease
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_unsigned)]
    pub leader_elect_retry_period: Duration,
    /// Name of the Lease
    #[arg(long, value_name = "NAME", default_value = "")]
    pub leader_elect_resource_name: String,
    /// Namespace of the Lease
    #[arg(long, value_name = "NAME", default_value = "kube-system")]
    pub leader_elect_resource_namespace: String,
}

/// Durations with which a Lease could have two holders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "leader election: the lease duration must exceed the renew deadline, and that the retry period"
)]
pub struct InvalidLease;

impl LeaderElectionFlags {
    /// Returns the election with a new identity of this process; None without leader election.
    ///
    /// # Errors
    /// The durations do not fit each other.
    pub fn leader_config(&self) -> Result<Option<LeaderConfig>, InvalidLease> {
        if !self.leader_elect {
            return Ok(None);
        }
        // A leader must step down before others may take its lease, and must try to renew at least
        // once before that.
        if self.leader_elect_lease_duration <= self.leader_elect_renew_deadline
            || self.leader_elect_renew_deadline <= self.leader_elect_retry_period
        {
            return Err(InvalidLease);
        }
        Ok(Some(LeaderConfig {
            namespace: self.leader_elect_resource_namespace.clone(),
            name: self.leader_elect_resource_name.clone(),
            // The host name alone is not unique: two instances of a component may run on one host,
            // and a restarted one must not take its former self for the holder.
            identity: format!("{}_{}", host_name(), uuid::Uuid::new_v4()),
            lease_duration: self.leader_elect_lease_duration,
            renew_deadline: self.leader_elect_renew_deadline,
            retry_period: self.leader_elect_retry_period,
        }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    #[command(mut_arg("leader_elect_resource_name", |arg| arg.default_value("one")))]
    struct Flags {
        #[command(flatten)]
        election: LeaderElectionFlags,
    }

    fn config(flags: &[&str]) -> Result<Option<LeaderConfig>, InvalidLease> {
        let words = ["x"].iter().chain(flags);
        Flags::try_parse_from(words)
            .unwrap()
            .election
            .leader_config()
    }

    #[test]
    fn defaults_are_those_of_upstream_with_the_name_of_the_component() {
        let defaults = config(&[]).unwrap().unwrap();
        let expect = LeaderConfig::new("one", defaults.identity.clone());
        assert_eq!(format!("{defaults:?}"), format!("{expect:?}"));
        let other = config(&[]).unwrap().unwrap();
        assert_ne!(
            defaults.identity, other.identity,
            "each process has its own"
        );
    }

    #[test]
    fn lease_that_could_have_two_holders_is_rejected() {
        for (flags, valid) in [
            (&["--leader-elect-lease-duration=10s"][..], false),
            (&["--leader-elect-retry-period=10s"], false),
            (&["--leader-elect-renew-deadline=14s"], true),
        ] {
            assert_eq!(config(flags).is_ok(), valid, "{flags:?}");
        }
        let off = ["--leader-elect=false", "--leader-elect-retry-period=1h"];
        assert!(config(&off).unwrap().is_none());
    }
}
