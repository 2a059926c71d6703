//! Flags, with upstream's names and meanings. A configuration file given with `--config` overrides
//! them, except flags of leader election that the command line sets.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use base_duration::parse_unsigned;
use base_telemetry::LogOptions;
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Args, Command, FromArgMatches, Parser};
use component::{AccessFlags, LeaderElectionFlags, ServingFlags};

/// The command line.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "kube-scheduler",
    version,
    about = "Decides which node each pod runs on",
    mut_arg("leader_elect", |arg| arg.help("Schedule only while holding the Lease")),
    mut_arg("leader_elect_resource_name", |arg| arg.default_value("kube-scheduler")),
    mut_arg("secure_port", |arg| arg.default_value("10259"))
)]
pub struct Flags {
    /// KubeSchedulerConfiguration file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Kubeconfig with the API server and this process's credentials
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Access to the own server
    #[command(flatten)]
    pub access: AccessFlags,
    /// Leader election
    #[command(flatten)]
    pub election: ElectionFlags,
    /// The own server
    #[command(flatten)]
    pub serving: ServingFlags,
    /// Maximum time without another attempt for an unschedulable pod
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_unsigned)]
    pub pod_max_in_unschedulable_pods_duration: Duration,
    /// Serve HTTP/1.1 only
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub disable_http2_serving: bool,
    /// Logging
    #[command(flatten)]
    pub logs: LogOptions,
}

/// Flags of leader election, with the names of those that the command line sets.
#[derive(Clone, Debug)]
pub struct ElectionFlags {
    /// The flags.
    pub values: LeaderElectionFlags,
    explicit: HashSet<String>,
}

impl ElectionFlags {
    /// Returns whether the command line sets the flag; `name` is that of its field.
    pub fn is_explicit(&self, name: &str) -> bool {
        self.explicit.contains(name)
    }
}

impl Args for ElectionFlags {
    fn augment_args(command: Command) -> Command {
        LeaderElectionFlags::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        LeaderElectionFlags::augment_args_for_update(command)
    }
}

impl FromArgMatches for ElectionFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Self::from_arg_matches_mut(&mut matches.clone())
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, clap::Error> {
        // Before the values are taken: that removes their sources, too.
        let explicit = list_explicit(matches);
        let values = LeaderElectionFlags::from_arg_matches_mut(matches)?;
        Ok(Self { values, explicit })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.explicit.extend(list_explicit(matches));
        self.values.update_from_arg_matches(matches)
    }
}

fn list_explicit(matches: &ArgMatches) -> HashSet<String> {
    matches
        .ids()
        .filter(|id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine))
        .map(ToString::to_string)
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::UPSTREAM_FLAGS;
    use std::ffi::OsString;

    /// Command lines of installers.
    const INSTALLERS: [&[&str]; 3] = [
        &[
            "--authentication-kubeconfig=/etc/kubernetes/scheduler.conf",
            "--authorization-kubeconfig=/etc/kubernetes/scheduler.conf",
            "--bind-address=127.0.0.1",
            "--feature-gates=RotateKubeletServerCertificate=true",
            "--kubeconfig=/etc/kubernetes/scheduler.conf",
            "--leader-elect=true",
        ],
        &[
            "--authentication-kubeconfig=/s.kubeconfig",
            "--authorization-kubeconfig=/s.kubeconfig",
            "--bind-address=127.0.0.1",
            "--kubeconfig=/s.kubeconfig",
            "--leader-elect=false",
            "--profiling=false",
            "--secure-port=10259",
            "--tls-cert-file=/s.crt",
            "--tls-private-key-file=/s.key",
            "--v=1",
            "--vmodule=",
        ],
        &[
            "--authentication-kubeconfig=/var/lib/kube-scheduler/kubeconfig",
            "--authorization-kubeconfig=/var/lib/kube-scheduler/kubeconfig",
            "--config=/var/lib/kube-scheduler/config.yaml",
            "--feature-gates=InPlacePodVerticalScaling=true",
            "--leader-elect=true",
            "--tls-cert-file=/server.crt",
            "--tls-private-key-file=/server.key",
            "--tls-min-version=VersionTLS12",
            "--v=2",
        ],
    ];

    #[test]
    fn command_lines_of_installers_are_accepted() {
        for flags in INSTALLERS {
            let line = ["kube-scheduler"].iter().chain(flags).map(OsString::from);
            let accepted = base_cli::accept_upstream_flags(line, UPSTREAM_FLAGS);
            assert!(accepted.refusals.is_empty(), "{:?}", accepted.refusals);
            base_cli::parse_arguments::<Flags>(&accepted.arguments).unwrap();
        }
    }

    #[test]
    fn settings_that_would_weaken_or_redirect_are_refused() {
        for flag in [
            "--master=https://other:6443",
            "--tls-curve-preferences=29",
            "--write-config-to=x",
        ] {
            let accepted =
                base_cli::accept_upstream_flags([OsString::from(flag)].into_iter(), UPSTREAM_FLAGS);
            assert_eq!(accepted.refusals.len(), 1, "{flag}");
        }
    }
}
