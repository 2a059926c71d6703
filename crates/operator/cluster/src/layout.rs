//! Paths of one cluster: persistent data in the data directory, volatile state under `/run`.

use std::path::{Path, PathBuf};

use crate::settings::{Settings, instance_name};

/// Name of the lock of commands in the data directory, where it is without root.
pub(crate) const COMMAND_LOCK: &str = "command.lock";

/// Paths of one cluster.
#[derive(Debug, Clone)]
pub struct Layout {
    data: PathBuf,
    run: PathBuf,
    pki: PathBuf,
}

impl Layout {
    /// Returns the layout of an existing cluster.
    #[must_use]
    pub fn for_settings(settings: &Settings) -> Self {
        Self::new(&settings.data_dir, rustix::process::geteuid().is_root())
    }

    /// Returns the layout for `data`. Without root, `/run` is not writable and the data directory
    /// replaces it.
    #[must_use]
    pub fn new(data: &Path, root: bool) -> Self {
        let run = match (root, instance_name(data).as_str()) {
            (false, _) => data.join("run"),
            (true, "") => PathBuf::from("/run/ironclad"),
            (true, word) => PathBuf::from(format!("/run/ironclad-{word}")),
        };
        Self {
            data: data.to_owned(),
            run,
            pki: data.join("pki"),
        }
    }

    /// Returns the layout of one node: the first node has the cluster's own folders, every further
    /// one folders below them. The certificates are the cluster's.
    #[must_use]
    pub fn for_node(&self, number: u8) -> Self {
        if number == 1 {
            return self.clone();
        }
        let folder = |of: &Path| of.join("nodes").join(number.to_string());
        Self {
            data: folder(&self.data),
            run: folder(&self.run),
            pki: self.pki.clone(),
        }
    }

    /// Returns the data directory.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.data
    }
    /// Returns the directory of sockets, process records and mounts.
    #[must_use]
    pub fn run(&self) -> &Path {
        &self.run
    }
    /// Returns the directory of certificates.
    #[must_use]
    pub fn pki(&self) -> PathBuf {
        self.pki.clone()
    }
    /// Returns the path of a configuration file.
    #[must_use]
    pub fn config(&self, name: &str) -> PathBuf {
        self.data.join("config").join(name)
    }
    /// Returns the path of a component's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self, name: &str) -> PathBuf {
        self.config(&format!("{name}.kubeconfig"))
    }
    /// Returns the path of the administrator's kubeconfig.
    #[must_use]
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.data.join("admin.kubeconfig")
    }
    /// Returns the directory of log files.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.data.join("logs")
    }
    /// Returns the path of a component's log.
    #[must_use]
    pub fn log(&self, name: &str) -> PathBuf {
        self.logs().join(format!("{name}.log"))
    }
    /// Returns the path of the API server's audit log. Its folder is one that only the owner reads.
    #[must_use]
    pub fn audit_log(&self) -> PathBuf {
        self.logs().join("audit").join("audit.log")
    }
    /// Returns the path of a process record.
    #[must_use]
    pub fn record(&self, name: &str) -> PathBuf {
        self.run.join(format!("{name}.json"))
    }
    /// Returns the directory in which a restore is prepared.
    #[must_use]
    pub fn restore(&self) -> PathBuf {
        self.data.join("restore-in-progress")
    }
    /// Returns the path of the plan.
    #[must_use]
    pub fn plan(&self) -> PathBuf {
        self.data.join("plan.json")
    }
    /// Returns the path of the lock of commands. Beside the directory of volatile state, which
    /// `down` removes while it holds the lock.
    #[must_use]
    pub fn command_lock(&self) -> PathBuf {
        match self.run.starts_with(&self.data) {
            true => self.data.join(COMMAND_LOCK),
            false => self.run.with_extension("lock"),
        }
    }
    /// Returns the path of the state of an upgrade that has begun.
    #[must_use]
    pub fn upgrade(&self) -> PathBuf {
        self.data.join("upgrade.json")
    }
    /// Returns the path of the file that exists once the rights of joining nodes were granted.
    #[must_use]
    pub fn bootstrap_marker(&self) -> PathBuf {
        self.config("bootstrap-rights-granted")
    }
    /// Returns the path of the file that exists once the rights that joined nodes need were
    /// granted.
    #[must_use]
    pub fn join_marker(&self) -> PathBuf {
        self.config("join-rights-granted")
    }
    /// Returns the directory of the store.
    #[must_use]
    pub fn store(&self) -> PathBuf {
        self.data.join("store")
    }
    /// Returns the path of the file that exists once the store has had data.
    #[must_use]
    pub fn store_marker(&self) -> PathBuf {
        self.config("store-has-data")
    }
    /// Returns the path of the kubeconfig with which a joining machine requests its certificate.
    #[must_use]
    pub fn bootstrap_kubeconfig(&self) -> PathBuf {
        self.kubeconfig("bootstrap")
    }
    /// Returns the path of the list of API servers that the proxy has learned.
    #[must_use]
    pub fn api_servers(&self) -> PathBuf {
        self.config("api-servers.json")
    }
    /// Returns the path of the list of API servers with the names of their machines, for the
    /// administrator's kubeconfig.
    #[must_use]
    pub fn named_servers(&self) -> PathBuf {
        self.config("named-api-servers.json")
    }
    /// Returns the path of the digest of the last bootstrap kubeconfig.
    #[must_use]
    pub fn bootstrap_digest(&self) -> PathBuf {
        self.config("bootstrap.digest")
    }
    /// Returns the path of the kubelet's client certificate and key on a machine that joined a
    /// cluster.
    #[must_use]
    pub fn kubelet_identity(&self) -> PathBuf {
        self.pki.join("kubelet-client-current.pem")
    }
    /// Returns the path of the configuration that the cluster publishes for kubelets.
    #[must_use]
    pub fn published_kubelet_config(&self) -> PathBuf {
        self.config("kubelet-published.json")
    }
    /// Returns the socket of the cluster's own containerd.
    #[must_use]
    pub fn containerd_socket(&self) -> PathBuf {
        self.run.join("containerd.sock")
    }
    /// Returns the path of a node's pinned namespaces, without the extensions.
    #[must_use]
    pub fn namespaces(&self, number: u8) -> PathBuf {
        self.run.join("namespaces").join(number.to_string())
    }
    /// Returns the directory of the CNI configuration.
    #[must_use]
    pub fn cni_conf(&self) -> PathBuf {
        self.data.join("cni").join("net.d")
    }
    /// Returns the configuration of the pod network.
    #[must_use]
    pub fn cni_config(&self) -> PathBuf {
        // The runtime takes the first file by name; a list of plugins needs this ending.
        self.cni_conf().join("10-ironclad.conflist")
    }
    /// Returns the directory of the cluster's own plugins.
    #[must_use]
    pub fn cni_bin(&self) -> PathBuf {
        self.data.join("cni").join("bin")
    }
    /// Returns the directory of addresses allocated by host-local.
    #[must_use]
    pub fn cni_state(&self) -> PathBuf {
        self.data.join("cni").join("networks")
    }
    /// Returns the directory of images to import, as OCI archives.
    #[must_use]
    pub fn images(&self) -> PathBuf {
        self.data.join("images")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn run_directory_is_volatile_for_root_and_distinct_for_each_cluster() {
        let run = |data: &str, root| Layout::new(Path::new(data), root).run().to_owned();
        assert_eq!(run("/var/lib/ironclad", true), Path::new("/run/ironclad"));
        assert_eq!(
            run("/var/lib/ironclad", false),
            Path::new("/var/lib/ironclad/run")
        );
        let (a, b) = (run("/a", true), run("/b", true));
        assert!(a.starts_with("/run") && b.starts_with("/run") && a != b);
    }

    #[test]
    fn nodes_share_certificates_and_nothing_else() {
        let cluster = Layout::new(Path::new("/data"), true);
        let layouts = [1, 2].map(|number| cluster.for_node(number));
        assert_eq!(layouts[0].data(), cluster.data());
        assert_eq!(layouts[0].pki(), layouts[1].pki());
        assert_eq!(layouts[1].data(), Path::new("/data/nodes/2"));
        assert_ne!(
            layouts[0].containerd_socket(),
            layouts[1].containerd_socket()
        );
    }
}
