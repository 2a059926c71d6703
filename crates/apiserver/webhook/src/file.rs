//! The file of `--admission-control-config-file`.

use api_meta::tree::{get, has, list, text};
use apiserver_config::{ConfigFileError, read_config};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Configuration of one webhook plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginConfig {
    /// `kubeConfigFile`: credentials for webhooks.
    pub kube_config: Option<PathBuf>,
}

/// Configurations of both webhook plugins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookConfig {
    /// `MutatingAdmissionWebhook`.
    pub mutating: PluginConfig,
    /// `ValidatingAdmissionWebhook`.
    pub validating: PluginConfig,
}

// The versions that upstream's decoder accepts.
const FILE_VERSIONS: [&str; 2] = ["apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"];

/// Reads an AdmissionConfiguration.
///
/// # Errors
/// A file that can't be read or used, or the configuration of another plugin: ignored, its rules
/// would not be enforced.
pub fn read_plugin_configs(path: &Path) -> Result<WebhookConfig, ConfigFileError> {
    let tree = read_config(path)?;
    let wrong = |why: String| ConfigFileError::content(path, why);
    if text(&tree, "kind") != "AdmissionConfiguration"
        || !FILE_VERSIONS.contains(&text(&tree, "apiVersion"))
    {
        return Err(wrong(
            "it is not an AdmissionConfiguration of apiserver.config.k8s.io/v1".into(),
        ));
    }
    check_fields(&tree, &["kind", "apiVersion", "plugins"]).map_err(wrong)?;
    let mut found = WebhookConfig::default();
    for plugin in list(&tree, "plugins") {
        check_fields(plugin, &["name", "path", "configuration"]).map_err(wrong)?;
        let target = match text(plugin, "name") {
            "MutatingAdmissionWebhook" => &mut found.mutating,
            "ValidatingAdmissionWebhook" => &mut found.validating,
            other => {
                return Err(wrong(format!(
                    "the plugin {other:?} takes no configuration"
                )));
            }
        };
        *target = read_plugin(plugin, path)?;
    }
    Ok(found)
}

fn read_plugin(plugin: &Value, path: &Path) -> Result<PluginConfig, ConfigFileError> {
    // As upstream: a nested configuration wins over a path.
    if has(plugin, "configuration") {
        return parse_plugin(get(plugin, "configuration"), path);
    }
    let nested = text(plugin, "path");
    if nested.is_empty() {
        return Ok(PluginConfig::default());
    }
    // Upstream takes the path relative to the folder of the outer file.
    let nested = path.parent().unwrap_or(Path::new("/")).join(nested);
    parse_plugin(&read_config(&nested)?, &nested)
}

fn parse_plugin(tree: &Value, path: &Path) -> Result<PluginConfig, ConfigFileError> {
    let wrong = |why: String| ConfigFileError::content(path, why);
    let known = matches!(
        (text(tree, "apiVersion"), text(tree, "kind")),
        (
            "apiserver.config.k8s.io/v1",
            "WebhookAdmissionConfiguration"
        ) | ("apiserver.config.k8s.io/v1alpha1", "WebhookAdmission")
    );
    if !known {
        return Err(wrong(
            "it is not a WebhookAdmissionConfiguration of apiserver.config.k8s.io/v1".into(),
        ));
    }
    check_fields(tree, &["kind", "apiVersion", "kubeConfigFile"]).map_err(wrong)?;
    let file = text(tree, "kubeConfigFile");
    // Upstream's rule, with its text.
    if !file.is_empty() && !Path::new(file).is_absolute() {
        return Err(wrong(format!(
            "kubeConfigFile: Invalid value: {file:?}: must be an absolute file path"
        )));
    }
    Ok(PluginConfig {
        kube_config: (!file.is_empty()).then(|| file.into()),
    })
}

/// Rejects unknown fields: a misspelt setting would have no effect.
fn check_fields(tree: &Value, known: &[&str]) -> Result<(), String> {
    let mut fields = tree.as_object().into_iter().flatten();
    match fields.find(|(name, _)| !known.contains(&name.as_str())) {
        Some((name, _)) => Err(format!("the field {name:?} is not known")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn read(plugins: Value) -> Result<WebhookConfig, ConfigFileError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admission.yaml");
        let tree = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins});
        std::fs::write(&path, tree.to_string()).unwrap();
        let nested = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration", "kubeConfigFile": "/nested"});
        std::fs::write(folder.path().join("nested.yaml"), nested.to_string()).unwrap();
        read_plugin_configs(&path)
    }

    fn inline(name: &str, file: &str) -> Value {
        json!({"name": name, "configuration": {"apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "WebhookAdmissionConfiguration", "kubeConfigFile": file}})
    }

    #[test]
    fn each_plugin_has_a_configuration_of_its_own() {
        let found = read(json!([
            inline("ValidatingAdmissionWebhook", "/etc/v"),
            {"name": "MutatingAdmissionWebhook", "path": "nested.yaml"}
        ]));
        let config = |file: &str| PluginConfig {
            kube_config: Some(file.into()),
        };
        let found = found.unwrap();
        assert_eq!(found.validating, config("/etc/v"));
        assert_eq!(found.mutating, config("/nested"));
    }

    #[test]
    fn configuration_without_effect_is_rejected() {
        for plugins in [
            json!([inline("PodSecurity", "/x")]),
            json!([inline("MutatingAdmissionWebhook", "relative")]),
            json!([{"name": "MutatingAdmissionWebhook", "configuration": {"kind": "Other"}}]),
            json!([{"name": "MutatingAdmissionWebhook", "file": "x"}]),
            json!([{"name": "MutatingAdmissionWebhook", "path": "absent.yaml"}]),
        ] {
            assert!(read(plugins.clone()).is_err(), "{plugins}");
        }
    }
}
