//! Where everything of one cluster lies: data under the data folder, what dies with a reboot under `/run`.

use std::path::{Path, PathBuf};

use crate::settings::{Settings, instance};

/// Paths of one cluster.
#[derive(Debug, Clone)]
pub struct Layout {
    data: PathBuf,
    run: PathBuf,
}

impl Layout {
    /// The layout of a cluster that exists.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        Self::new(&settings.data_dir, rustix::process::geteuid().is_root())
    }

    /// The layout below `data`. Without root, `/run` is not ours and the data folder takes its place.
    #[must_use]
    pub fn new(data: &Path, root: bool) -> Self {
        let run = match (root, instance(data).as_str()) {
            (false, _) => data.join("run"),
            (true, "") => PathBuf::from("/run/ironclad"),
            (true, word) => PathBuf::from(format!("/run/ironclad-{word}")),
        };
        Self { data: data.to_owned(), run }
    }

    /// The data folder.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.data
    }
    /// The folder for sockets, process records and mounts.
    #[must_use]
    pub fn run(&self) -> &Path {
        &self.run
    }
    /// Certificates.
    #[must_use]
    pub fn pki(&self) -> PathBuf {
        self.data.join("pki")
    }
    /// A configuration file.
    #[must_use]
    pub fn config(&self, name: &str) -> PathBuf {
        self.data.join("config").join(name)
    }
    /// A component's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self, name: &str) -> PathBuf {
        self.config(&format!("{name}.kubeconfig"))
    }
    /// The administrator's kubeconfig.
    #[must_use]
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.data.join("admin.kubeconfig")
    }
    /// The folder of log files.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.data.join("logs")
    }
    /// A component's log.
    #[must_use]
    pub fn log(&self, name: &str) -> PathBuf {
        self.logs().join(format!("{name}.log"))
    }
    /// The record of a running process.
    #[must_use]
    pub fn record(&self, name: &str) -> PathBuf {
        self.run.join(format!("{name}.json"))
    }
    /// The list of processes to keep running.
    #[must_use]
    pub fn plan(&self) -> PathBuf {
        self.data.join("plan.json")
    }
    /// The socket of the cluster's own containerd.
    #[must_use]
    pub fn containerd_socket(&self) -> PathBuf {
        self.run.join("containerd.sock")
    }
    /// The CNI plugins' configuration.
    #[must_use]
    pub fn cni_conf(&self) -> PathBuf {
        self.data.join("cni").join("net.d")
    }
    /// The addresses that host-local handed out.
    #[must_use]
    pub fn cni_state(&self) -> PathBuf {
        self.data.join("cni").join("networks")
    }
    /// Images to import, as OCI archives.
    #[must_use]
    pub fn images(&self) -> PathBuf {
        self.data.join("images")
    }
}
