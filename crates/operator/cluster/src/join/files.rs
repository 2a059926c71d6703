//! The files of a machine that joined a cluster.

use std::path::Path;

use api_bootstrap::BootstrapToken;
use serde_json::{Map, Value, json};

use crate::config_file::{ConfigFile, write_configs};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::node::ClusterNode;
use crate::settings::Settings;
use crate::{cluster_files, configs, files};

/// Writes the CA of the cluster, the token, and the configuration of the cluster's kubelets.
pub(super) fn write_credentials(
    layout: &Layout,
    (server, ca): (&str, &str),
    token: &BootstrapToken,
    kubelet: &Map<String, Value>,
) -> Result<()> {
    files::create_dir(&layout.pki(), 0o711)?;
    files::write_if_changed(&layout.pki().join("ca.crt"), ca.as_bytes())?;
    let user = json!({ "token": token.expose() });
    let text = format_kubeconfig(server, layout, &user);
    files::write_private(&layout.bootstrap_kubeconfig(), text.as_bytes())?;
    // An input of the kubelet, which reads the token and the server at its start only. The
    // kubeconfig itself is none: its removal must not restart the kubelet.
    let digest = files::digest_hex(text.as_bytes());
    files::write_private(&layout.bootstrap_digest(), digest.as_bytes())?;
    let published = serde_json::to_string_pretty(kubelet).unwrap_or_default();
    files::write_if_changed(&layout.published_kubelet_config(), published.as_bytes()).map(drop)
}

/// Writes the configurations of the runtime and the kubelet.
pub(super) fn write_node_files(
    settings: &Settings,
    node: &ClusterNode,
    layout: &Layout,
) -> Result<()> {
    write_configs(&make_node_configs(settings, node, layout)?)?;
    cluster_files::create_directories(settings, layout)
}

/// Returns the configurations of the runtime and the kubelet.
pub(super) fn make_node_configs(
    settings: &Settings,
    node: &ClusterNode,
    layout: &Layout,
) -> Result<Vec<ConfigFile>> {
    let published = read_published(&layout.published_kubelet_config())?;
    let mut made = vec![ConfigFile {
        path: layout.config("kubelet.yaml"),
        content: configs::joined_kubelet_config(&published, settings, node, layout),
    }];
    made.extend(cluster_files::make_runtime_config(settings, layout));
    Ok(made)
}

/// Writes the configurations of kube-proxy.
pub(super) fn write_proxy_files(settings: &Settings, layout: &Layout) -> Result<()> {
    write_proxy_kubeconfig(settings, layout)?;
    write_configs(&cluster_files::make_proxy_config(settings, layout))
}

/// Writes the kubeconfig of kube-proxy, which uses the certificate that the kubelet renews.
pub(super) fn write_proxy_kubeconfig(settings: &Settings, layout: &Layout) -> Result<()> {
    let identity = layout.kubelet_identity();
    // The kubelet keeps certificate and key in one PEM file.
    let user = json!({ "client-certificate": identity, "client-key": identity });
    let text = format_kubeconfig(&settings.server_url(), layout, &user);
    files::write_if_changed(&layout.kubeconfig("proxy"), text.as_bytes()).map(drop)
}

fn read_published(path: &Path) -> Result<Map<String, Value>> {
    let text = std::fs::read(path).map_err(Error::io(path))?;
    serde_json::from_slice(&text).map_err(|cause| Error::Settings {
        path: path.to_owned(),
        cause,
    })
}

/// Returns a kubeconfig, as JSON: no value can break out of its place.
fn format_kubeconfig(server: &str, layout: &Layout, user: &Value) -> String {
    let ca = layout.pki().join("ca.crt");
    let tree = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "ironclad",
            "cluster": { "server": server, "certificate-authority": ca },
        }],
        "users": [{ "name": "node", "user": user }],
        "contexts": [{
            "name": "node@ironclad",
            "context": { "cluster": "ironclad", "user": "node" },
        }],
        "current-context": "node@ironclad",
    });
    serde_json::to_string_pretty(&tree).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn token_is_in_one_private_file() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        let token: BootstrapToken = "abcdef.0123456789abcdef".parse().unwrap();
        write_credentials(
            &layout,
            ("https://192.0.2.1:6443", "CA"),
            &token,
            &Map::new(),
        )
        .unwrap();
        let path = layout.bootstrap_kubeconfig();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        let config = client::Config::from_kubeconfig(&path).unwrap();
        assert_eq!(config.server, "https://192.0.2.1:6443");
        assert!(config.ca.is_some() && config.token.is_some());
        let settings = Settings::example_joined();
        write_node_files(&settings, &settings.first_node(), &layout).unwrap();
        write_proxy_files(&settings, &layout).unwrap();
        let with_token: Vec<_> = ["config", "pki"]
            .iter()
            .flat_map(|folder| std::fs::read_dir(dir.path().join(folder)).unwrap())
            .map(|entry| entry.unwrap().path())
            .filter(|path| {
                std::fs::read_to_string(path)
                    .unwrap()
                    .contains(token.secret())
            })
            .collect();
        assert_eq!(with_token, [path]);
    }

    #[test]
    fn kubelet_is_restarted_for_another_token_or_server_and_not_without_the_token() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        let settings = Settings {
            data_dir: dir.path().into(),
            ..Settings::example_joined()
        };
        let write = |server: &str, secret: &str| {
            let token = format!("abcdef.{secret}").parse().unwrap();
            write_credentials(
                &layout,
                (&format!("https://{server}"), "CA"),
                &token,
                &Map::new(),
            )
            .unwrap();
        };
        let stamp = || {
            let mut plan = crate::plan::make_plan(&settings, &layout);
            plan.set_stamps();
            let kubelet = plan.processes.iter().find(|p| p.name == "kubelet");
            kubelet.unwrap().stamp.clone()
        };
        let (a, b) = ("0123456789abcdef", "0123456789abcdeg");
        write("192.0.2.1:6443", a);
        let first = stamp();
        write("192.0.2.1:6443", a);
        assert_eq!(stamp(), first, "the same token again");
        files::remove_file(&layout.bootstrap_kubeconfig()).unwrap();
        assert_eq!(stamp(), first, "without the token");
        write("192.0.2.1:6443", b);
        let second = stamp();
        assert_ne!(second, first, "another token");
        write("192.0.2.9:6443", b);
        assert_ne!(stamp(), second, "another server");
    }
}
