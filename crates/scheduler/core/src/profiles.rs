//! Builds profiles from the configuration: plugins, order and weights.
//!
//! All plugins are enabled by default. `multiPoint` enables or disables a plugin at all its
//! extension points, the named points override it; an enabled plugin runs at every point that it
//! implements.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use client::Client;
use scheduler_framework::{Cluster, ExtensionPoints, Profile};
use scheduler_plugins::{
    DefaultBinder, DynamicResourceBinder, VolumeBinder, default_plugins, plugin_registry,
};
use serde_json::Value;

use crate::config::{Configuration, PluginSet, Plugins, ProfileConfig};
use crate::unsupported::MISSING_PLUGINS;

pub(crate) const DEFAULT_NAME: &str = "default-scheduler";

fn plugin_sets(plugins: &Plugins) -> [(&'static str, &PluginSet); 12] {
    [
        ("pre_enqueue", &plugins.pre_enqueue),
        ("queue_sort", &plugins.queue_sort),
        ("pre_filter", &plugins.pre_filter),
        ("filter", &plugins.filter),
        ("post_filter", &plugins.post_filter),
        ("pre_score", &plugins.pre_score),
        ("score", &plugins.score),
        ("reserve", &plugins.reserve),
        ("permit", &plugins.permit),
        ("pre_bind", &plugins.pre_bind),
        ("bind", &plugins.bind),
        ("post_bind", &plugins.post_bind),
    ]
}

fn is_listed(set: &PluginSet, name: &str) -> bool {
    set.enabled.iter().any(|plugin| plugin.name == name)
}

fn is_disabled(set: &PluginSet, name: &str) -> bool {
    set.disabled
        .iter()
        // Disabling all and enabling some is the usual form of a custom profile, so an enabled name
        // wins over `*`.
        .any(|plugin| plugin.name == name || plugin.name == "*")
        && !is_listed(set, name)
}

/// Returns whether a plugin is enabled at a point.
fn is_enabled(plugins: &Plugins, point: &str, name: &str) -> bool {
    let all = !is_disabled(&plugins.multi_point, name);
    match plugin_sets(plugins)
        .iter()
        .find(|(known, _)| *known == point)
    {
        // A specific extension point overrides `multiPoint`, whatever that says.
        Some((_, set)) if is_listed(set, name) => true,
        Some((_, set)) => all && !is_disabled(set, name),
        None => all,
    }
}

fn check_names(plugins: &Plugins, known: &HashSet<&str>) -> anyhow::Result<()> {
    let all = plugin_sets(plugins);
    let every = all
        .iter()
        .map(|(_, set)| *set)
        .chain([&plugins.multi_point]);
    for set in every {
        if let Some(plugin) = set
            .enabled
            .iter()
            .find(|plugin| !known.contains(plugin.name.as_str()))
        {
            if let Some(consequence) = missing_plugin_consequence(&plugin.name) {
                bail!(
                    "plugin {:?} is enabled but not implemented: {consequence}",
                    plugin.name
                );
            }
            bail!(
                "plugin {:?} is not known{}",
                plugin.name,
                suggest_name(&plugin.name, known)
            );
        }
        // Upstream's plugins that are missing here may be disabled: configurations of the stock
        // scheduler stay valid.
        let unknown = |name: &str| {
            name != "*" && !known.contains(name) && missing_plugin_consequence(name).is_none()
        };
        if let Some(plugin) = set.disabled.iter().find(|plugin| unknown(&plugin.name)) {
            bail!(
                "plugin {:?} is not known{}",
                plugin.name,
                suggest_name(&plugin.name, known)
            );
        }
    }
    Ok(())
}

/// Returns the consequence of a missing plugin of upstream; None if it is implemented.
fn missing_plugin_consequence(name: &str) -> Option<&'static str> {
    MISSING_PLUGINS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, consequence)| *consequence)
}

/// Rejects a plugin that is enabled at a point which it does not implement: it would never run.
fn check_points(plugins: &Plugins, points: &ExtensionPoints) -> anyhow::Result<()> {
    for (point, set) in plugin_sets(plugins) {
        if let Some(plugin) = set
            .enabled
            .iter()
            .find(|plugin| !points.has_plugin(point, &plugin.name))
        {
            bail!("plugin {:?} does not extend {point}", plugin.name);
        }
    }
    Ok(())
}

fn suggest_name(name: &str, known: &HashSet<&str>) -> String {
    let near = base_cli::nearest_word(name, known.iter().copied());
    near.map(|near| format!("; the nearest known one is {near:?}"))
        .unwrap_or_default()
}

/// Returns the arguments of `pluginConfig`, by plugin.
fn read_plugin_args<'a>(
    config: &'a ProfileConfig,
    known: &HashSet<&str>,
) -> anyhow::Result<HashMap<&'a str, &'a Value>> {
    let mut args: HashMap<&str, &Value> = HashMap::new();
    for entry in &config.plugin_config {
        if let Some(consequence) = missing_plugin_consequence(&entry.name) {
            tracing::warn!(
                plugin = entry.name,
                "pluginConfig has no effect: {consequence}"
            );
        } else if !known.contains(entry.name.as_str()) {
            bail!(
                "pluginConfig names plugin {:?}, which is not known{}",
                entry.name,
                suggest_name(&entry.name, known)
            );
        }
        args.insert(&entry.name, &entry.args);
    }
    Ok(args)
}

fn build_profile(
    config: &ProfileConfig,
    percentage: Option<u32>,
    client: &Client,
    cluster: &Arc<dyn Cluster>,
) -> anyhow::Result<Profile> {
    let weights: HashMap<&str, i64> = default_plugins().into_iter().collect();
    let known: HashSet<&str> = weights.keys().copied().collect();
    check_names(&config.plugins, &known)?;
    let args = read_plugin_args(config, &known)?;
    let mut points = ExtensionPoints::default();
    for entry in plugin_registry() {
        let args = args.get(entry.name).copied().unwrap_or(&Value::Null);
        (entry.make)(args, cluster, &mut points)
            .map_err(|problem| anyhow!("arguments of plugin {:?}: {problem}", entry.name))?;
    }
    // These need a client, so they are not in the registry.
    points.add_plugin(VolumeBinder::with_client(client.clone(), cluster.clone()));
    let devices = args
        .get("DynamicResources")
        .copied()
        .unwrap_or(&Value::Null);
    let devices = DynamicResourceBinder::with_client(client.clone(), cluster.clone(), devices);
    points.add_plugin(
        devices
            .map_err(|problem| anyhow!("arguments of plugin \"DynamicResources\": {problem}"))?,
    );
    points.add_plugin(DefaultBinder::with_client(client.clone()));
    // Before plugins are removed, since a disabled plugin is no mistake.
    check_points(&config.plugins, &points)?;
    points.retain_plugins(|point, name| is_enabled(&config.plugins, point, name));
    for (name, weight) in &weights {
        let given = |set: &PluginSet| {
            let plugin = set
                .enabled
                .iter()
                .find(|plugin| plugin.name == *name && plugin.weight > 0);
            plugin.map(|plugin| plugin.weight)
        };
        // The weight at the extension point wins over that of `multiPoint`; 0 means that none was
        // given.
        let chosen = given(&config.plugins.score).or_else(|| given(&config.plugins.multi_point));
        points.set_weight(name, chosen.unwrap_or(*weight));
    }
    // All profiles share one queue, which can have only one order.
    if points.queue_sort.len() != 1 || points.bind.is_empty() {
        bail!("a profile needs one queueSort plugin and a bind plugin");
    }
    Ok(Profile {
        name: config
            .scheduler_name
            .clone()
            .unwrap_or_else(|| DEFAULT_NAME.to_owned()),
        points,
        percentage_of_nodes_to_score: config
            .percentage_of_nodes_to_score
            .or(percentage)
            .unwrap_or(0),
    })
}

/// Builds the profiles of a configuration; the default one if it has none.
pub(crate) fn build_profiles(
    config: &Configuration,
    client: &Client,
    cluster: &Arc<dyn Cluster>,
) -> anyhow::Result<Vec<Profile>> {
    let fallback = [ProfileConfig::default()];
    let given = if config.profiles.is_empty() {
        &fallback[..]
    } else {
        &config.profiles
    };
    let mut names = HashSet::new();
    let mut made = Vec::new();
    for profile in given {
        let name = profile.scheduler_name.as_deref().unwrap_or(DEFAULT_NAME);
        if !names.insert(name) {
            bail!("there are two profiles named {name:?}");
        }
        let percentage = config.percentage_of_nodes_to_score;
        made.push(
            build_profile(profile, percentage, client, cluster)
                .with_context(|| format!("profile {name:?}"))?,
        );
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::cluster::ClusterView;
    use client::Config;

    fn from(text: &str) -> anyhow::Result<Vec<Profile>> {
        let config: Configuration = serde_yaml::from_str(text).unwrap();
        let cluster: Arc<dyn Cluster> = Arc::new(ClusterView::default());
        build_profiles(
            &config,
            &Client::new(Config::builder("http://localhost")),
            &cluster,
        )
    }

    #[test]
    fn profile_enables_disables_and_weighs_plugins() {
        let made = from(
            "profiles: [{plugins: {score: {disabled: [{name: '*'}], enabled: [{name: ImageLocality, weight: 7}]}}}]",
        );
        let score = &made.unwrap()[0].points.score;
        assert_eq!(
            score
                .iter()
                .map(|entry| (entry.name, entry.weight))
                .collect::<Vec<_>>(),
            [("ImageLocality", 7)]
        );
        let made =
            from("profiles: [{plugins: {multiPoint: {disabled: [{name: DefaultPreemption}]}}}]")
                .unwrap();
        let names = made[0].points.post_filter.iter().map(|entry| entry.name);
        assert_eq!(names.collect::<Vec<_>>(), ["DynamicResources"]);
        assert!(from("{}").unwrap()[0].points.filter.len() > 8);
        // A plugin that is not implemented may be disabled.
        from("profiles: [{plugins: {multiPoint: {disabled: [{name: VolumeRestrictions}]}}}]")
            .unwrap();
    }

    #[test]
    fn error_names_the_faulty_plugin_or_argument() {
        for (text, want) in [
            (
                "profiles: [{plugins: {score: {enabled: [{name: Nope}]}}}]",
                "Nope",
            ),
            (
                "profiles: [{plugins: {queueSort: {disabled: [{name: '*'}]}}}]",
                "queueSort",
            ),
            (
                "profiles: [{plugins: {filter: {enabled: [{name: VolumeZone}]}}}]",
                "zone labels",
            ),
            (
                "profiles: [{plugins: {filter: {enabled: [{name: ImageLocality}]}}}]",
                "does not extend filter",
            ),
            ("profiles: [{}, {}]", "two profiles"),
            (
                "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: X}}}]}]",
                "\"X\"",
            ),
        ] {
            let problem = format!("{:#}", from(text).err().unwrap());
            assert!(problem.contains(want), "{problem}");
        }
    }
}
