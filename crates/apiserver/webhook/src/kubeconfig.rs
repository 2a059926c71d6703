//! The server that a kubeconfig names, for callbacks that a flag configures.

use crate::endpoint::Endpoint;
use crate::file::ConfigError;
use api_codec::yaml;
use api_meta::tree::{flag, get, list, text};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::path::Path;

/// Reads the server of the current context.
///
/// # Errors
/// A file that can't be read or used, or a server that is not verified.
pub fn read_kubeconfig_endpoint(path: &Path) -> Result<Endpoint, ConfigError> {
    let wrong = |why: String| ConfigError::Invalid {
        path: path.into(),
        why,
    };
    let read = |path: &Path| {
        std::fs::read(path).map_err(|source| ConfigError::Read {
            path: path.into(),
            source,
        })
    };
    let (tree, _) = yaml::parse(&read(path)?).map_err(|e| wrong(e.to_string()))?;
    let cluster = find_cluster(&tree).map_err(wrong)?;
    for field in ["insecure-skip-tls-verify", "tls-server-name", "proxy-url"] {
        if flag(cluster, field) || !text(cluster, field).is_empty() {
            return Err(wrong(format!(
                "the field {field:?} of a cluster is not supported"
            )));
        }
    }
    let mut config = json!({"url": text(cluster, "server")});
    match (
        text(cluster, "certificate-authority-data"),
        text(cluster, "certificate-authority"),
    ) {
        ("", "") => {}
        ("", file) => {
            // As in clientcmd, relative to the folder of the kubeconfig.
            let file = path.parent().unwrap_or(Path::new("/")).join(file);
            config["caBundle"] = STANDARD.encode(read(&file)?).into();
        }
        (data, _) => config["caBundle"] = data.into(),
    }
    Endpoint::parse(&config).map_err(wrong)
}

fn find_cluster(tree: &Value) -> Result<&Value, String> {
    let find = |entries: &str, name: &str| {
        list(tree, entries)
            .iter()
            .find(|entry| text(entry, "name") == name)
    };
    let current = text(tree, "current-context");
    let context = find("contexts", current)
        .ok_or_else(|| format!("there is no context {current:?}, the current-context"))?;
    let name = text(get(context, "context"), "cluster");
    let cluster = find("clusters", name).ok_or_else(|| format!("there is no cluster {name:?}"))?;
    Ok(get(cluster, "cluster"))
}
