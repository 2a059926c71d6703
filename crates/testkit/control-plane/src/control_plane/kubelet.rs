//! Kubelets on the simulated runtime.

use super::{ControlPlane, read_port};
use anyhow::Context;
use clap::Parser;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use tokio::sync::oneshot;

impl ControlPlane {
    /// Starts a kubelet with certificates of the cluster's set. The node must be one of
    /// [`super::Options::nodes`].
    ///
    /// # Errors
    /// The kubelet rejected its flags, ended, or did not start to serve within 60 s.
    pub async fn start_kubelet(&self, node: &str, flags: &[&str]) -> anyhow::Result<SocketAddr> {
        let pki = &self.certificates.pki;
        let serving = format!("kubelet-serving-{node}");
        let config = json!({
            "tlsCertFile": pki.crt(&serving), "tlsPrivateKeyFile": pki.key(&serving),
        });
        let kubeconfig = self.kubeconfig(&format!("kubelet-{node}"));
        self.run_kubelet(node, &kubeconfig, config, flags).await
    }

    /// Starts a kubelet that requests its certificates from the cluster, with the kubeconfig at
    /// [`Self::joining_kubeconfig`] or a flag `--bootstrap-kubeconfig`.
    ///
    /// # Errors
    /// The kubelet rejected its flags, ended, or did not start to serve within 60 s.
    pub async fn start_joining_kubelet(
        &self,
        node: &str,
        flags: &[&str],
    ) -> anyhow::Result<SocketAddr> {
        let config = json!({ "rotateCertificates": true, "serverTLSBootstrap": true });
        let kubeconfig = self.joining_kubeconfig(node);
        self.run_kubelet(node, &kubeconfig, config, flags).await
    }

    /// Returns the path of the kubeconfig of a node whose kubelet requests its certificates.
    pub fn joining_kubeconfig(&self, node: &str) -> PathBuf {
        self.folder().join(node).join("kubelet.kubeconfig")
    }

    /// Writes a kubeconfig with a bearer token.
    ///
    /// # Panics
    /// If the file can't be written.
    pub fn token_kubeconfig(&self, name: &str, token: &str) -> PathBuf {
        let path = self.folder().join(format!("{name}.kubeconfig"));
        let tree = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {
                "server": format!("https://{}", self.api),
                "certificate-authority": self.certificate("ca"),
            }}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        if let Err(error) = std::fs::write(&path, tree.to_string()) {
            panic!("{}: {error}", path.display());
        }
        path
    }

    async fn run_kubelet(
        &self,
        node: &str,
        kubeconfig: &Path,
        mut config: Value,
        flags: &[&str],
    ) -> anyhow::Result<SocketAddr> {
        let root = self.folder().join(node);
        let port_file = root.join("port");
        tokio::fs::create_dir_all(&root).await?;
        let common = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "address": "127.0.0.1", "port": 0, "healthzPort": 0,
            "authentication": {"anonymous": {"enabled": false}, "webhook": {"enabled": true},
                "x509": {"clientCAFile": self.certificate("ca")}},
            "authorization": {"mode": "Webhook"},
        });
        if let (Some(config), Value::Object(common)) = (config.as_object_mut(), common) {
            config.extend(common);
        }
        let file = root.join("kubelet.json");
        tokio::fs::write(&file, config.to_string()).await?;
        let mut words = vec![
            "kubelet".to_owned(),
            format!("--config={}", file.display()),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--hostname-override={node}"),
            format!("--root-dir={}", root.display()),
            format!("--port-file={}", port_file.display()),
            "--simulated".to_owned(),
        ];
        words.extend(flags.iter().map(|&flag| flag.to_owned()));
        let settings = node_kubelet::read_settings(&node_kubelet::Flags::try_parse_from(words)?)?;
        let runtime = testkit_cri::FakeRuntime::start(&settings.root_dir).await?;
        let stop = self.tasks.shutdown().clone();
        let (end, ended) = oneshot::channel();
        self.tasks.spawn_isolated("kubelet", async move {
            let endpoint = runtime.endpoint().to_owned();
            let done = node_kubelet::run(settings, &endpoint, stop).await;
            if let Err(Err(error)) = end.send(done) {
                eprintln!("kubelet: {error:#}");
            }
        });
        let port = tokio::select! {
            port = read_port(&port_file) => port.context("the kubelet")?,
            Ok(Err(error)) = ended => return Err(error),
        };
        Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }
}
