//! KubeSchedulerConfiguration v1.
//!
//! Fields are upstream's; an unknown one is an error that names it. Fields that are not implemented
//! are listed in [`crate::UPSTREAM_FIELDS`] with their treatment.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use base_cli::{FalseMeans, judge_fields};
use serde::Deserialize;
use serde_json::Value;

use crate::queue::QueueDelays;
use crate::unsupported::UPSTREAM_FIELDS;

const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";

/// The configuration file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Configuration {
    api_version: String,
    kind: String,
    /// Leader election.
    pub leader_election: LeaderElection,
    /// Connection to the API server.
    pub client_connection: ClientConnection,
    /// Percentage of nodes to find before scoring.
    pub percentage_of_nodes_to_score: Option<u32>,
    /// Initial back-off of a pod in seconds.
    pub pod_initial_backoff_seconds: Option<u64>,
    /// Maximum back-off of a pod in seconds.
    pub pod_max_backoff_seconds: Option<u64>,
    /// Profiles: scheduler names and their plugins.
    pub profiles: Vec<ProfileConfig>,
    extenders: Vec<Value>,
}

/// Leader election. Durations are in Go's notation.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LeaderElection {
    /// Run only while holding the Lease.
    pub leader_elect: Option<bool>,
    /// Duration of the Lease.
    pub lease_duration: Option<String>,
    /// Time for which a leader that can't renew its Lease keeps leading.
    pub renew_deadline: Option<String>,
    /// Interval between attempts to acquire the Lease.
    pub retry_period: Option<String>,
    /// Name of the Lease.
    pub resource_name: Option<String>,
    /// Namespace of the Lease.
    pub resource_namespace: Option<String>,
}

/// Connection to the API server.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ClientConnection {
    /// Kubeconfig.
    pub kubeconfig: Option<PathBuf>,
}

/// A profile.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ProfileConfig {
    /// `spec.schedulerName` of its pods.
    pub scheduler_name: Option<String>,
    /// Percentage of nodes to find before scoring.
    pub percentage_of_nodes_to_score: Option<u32>,
    /// Plugins by extension point.
    pub plugins: Plugins,
    /// Arguments of plugins.
    pub plugin_config: Vec<PluginConfig>,
}

/// Plugins by extension point.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[allow(missing_docs)]
pub struct Plugins {
    pub pre_enqueue: PluginSet,
    pub queue_sort: PluginSet,
    pub pre_filter: PluginSet,
    pub filter: PluginSet,
    pub post_filter: PluginSet,
    pub pre_score: PluginSet,
    pub score: PluginSet,
    pub reserve: PluginSet,
    pub permit: PluginSet,
    pub pre_bind: PluginSet,
    pub bind: PluginSet,
    pub post_bind: PluginSet,
    pub multi_point: PluginSet,
    placement_generate: PluginSet,
    placement_score: PluginSet,
}

/// Plugins enabled and disabled at an extension point.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PluginSet {
    /// Enabled plugins.
    pub enabled: Vec<PluginName>,
    /// Disabled plugins; `*` for all defaults.
    pub disabled: Vec<PluginName>,
}

/// A plugin.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PluginName {
    /// Name.
    pub name: String,
    /// Weight of the plugin's scores; 0 for the default.
    pub weight: i64,
}

/// Arguments of a plugin.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PluginConfig {
    /// Name.
    pub name: String,
    /// Arguments.
    pub args: Value,
}

impl Configuration {
    /// Loads a configuration file.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("can't read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{} is no usable configuration", path.display()))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut tree: Value = serde_yaml::from_str(text)?;
        // Before the typed parse, which knows only the fields that are implemented and would reject
        // the others without a reason.
        let judged = judge_fields(&mut tree, UPSTREAM_FIELDS, FalseMeans::Unset);
        judged
            .warnings
            .iter()
            .for_each(|warning| tracing::warn!("{warning}"));
        if !judged.refusals.is_empty() {
            bail!("{}", judged.refusals.join("; "));
        }
        // Parsed from text, not from the tree: only the text parser names the field of an invalid
        // value.
        let config: Self = serde_yaml::from_str(&serde_yaml::to_string(&tree)?)?;
        if config.kind != "KubeSchedulerConfiguration" || config.api_version != API_VERSION {
            bail!(
                "kind {:?} of {:?} is not known; KubeSchedulerConfiguration of {API_VERSION} is",
                config.kind,
                config.api_version
            );
        }
        if !config.extenders.is_empty() {
            bail!("extenders are not supported; remove the field");
        }
        let (first, longest) = (
            config.pod_initial_backoff_seconds,
            config.pod_max_backoff_seconds,
        );
        // A back-off of 0 would retry a failing pod in a tight loop.
        if first == Some(0) || longest.unwrap_or(10) < first.unwrap_or(1) {
            bail!("podInitialBackoffSeconds must be above 0 and not above podMaxBackoffSeconds");
        }
        if config
            .percentage_of_nodes_to_score
            .is_some_and(|share| share > 100)
        {
            bail!("percentageOfNodesToScore is more than 100");
        }
        Ok(config)
    }

    /// Returns the queue's delays; `unschedulable` is the maximum time without an attempt.
    pub fn queue_delays(&self, unschedulable: Duration) -> QueueDelays {
        let first = self.pod_initial_backoff_seconds.unwrap_or(1);
        let longest = self.pod_max_backoff_seconds.unwrap_or(10);
        let (first_backoff, longest_backoff) = (
            Duration::from_secs(first),
            Duration::from_secs(longest.max(first)),
        );
        QueueDelays {
            first_backoff,
            longest_backoff,
            unschedulable,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    const HEAD: &str =
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

    #[test]
    fn configuration_file_is_parsed_and_unknown_fields_are_errors() {
        let text = format!(
            "{HEAD}profiles:\n- schedulerName: a\n  plugins:\n    score:\n      disabled: [{{name: '*'}}]\n\
             podMaxBackoffSeconds: 3\nleaderElection: {{leaderElect: false}}\n"
        );
        let config = Configuration::parse(&text).unwrap();
        assert_eq!(
            config.queue_delays(Duration::ZERO).longest_backoff,
            Duration::from_secs(3)
        );
        assert_eq!(config.profiles[0].plugins.score.disabled[0].name, "*");
        let problem = Configuration::parse(&format!("{HEAD}nonsense: 1\n")).unwrap_err();
        assert!(problem.to_string().contains("nonsense"), "{problem}");
        assert!(Configuration::parse("kind: Pod\napiVersion: v1\n").is_err());
    }

    #[test]
    fn fields_without_effect_are_accepted_and_extenders_refused() {
        let accepted = "parallelism: 16\nclientConnection: {qps: 50, burst: 100, contentType: x, acceptContentTypes: ''}\n\
            enableProfiling: true\nenableContentionProfiling: true\ndelayCacheUntilActive: false\n\
            leaderElection: {resourceLock: leases}\n";
        Configuration::parse(&format!("{HEAD}{accepted}")).unwrap();
        for (text, want) in [
            (
                "extenders: [{urlPrefix: 'http://x', filterVerb: filter}]\n",
                "extenders[].filterVerb",
            ),
            (
                "leaderElection: {resourceLock: endpoints}\n",
                "resourceLock",
            ),
            ("podInitialBackoffSeconds: 20\n", "podInitialBackoffSeconds"),
        ] {
            let problem = Configuration::parse(&format!("{HEAD}{text}"))
                .unwrap_err()
                .to_string();
            assert!(problem.contains(want), "{problem}");
        }
    }
}
