//! Component status: read from the records, so that it needs neither the supervisor nor the API
//! server. Only the warnings need the store of this machine.

use std::path::Path;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::plan::make_plan;
use crate::process::Record;
use crate::settings::Settings;
use crate::store_members::{Warning, find_quorum_warning};
use crate::supervisor;
use crate::supervisor_record::running_supervisor;

/// The status of a component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Component {
    /// Name.
    pub name: String,
    /// Name of its node.
    pub node: String,
    /// The process is alive.
    pub running: bool,
    /// The readiness check passes.
    pub ready: bool,
    /// Process id, if running.
    pub pid: Option<i32>,
    /// Number of restarts after the process exited by itself.
    pub restarts: u32,
    /// Path of the log.
    pub log: String,
}

/// The status of a cluster on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Data directory.
    pub data_dir: String,
    /// Directory of sockets, process records and mounts; empty after a reboot.
    pub run_dir: String,
    /// URL of the API server.
    pub server: String,
    /// Path of the administrator's kubeconfig, or of the kubelet's on a machine that joined.
    pub kubeconfig: String,
    /// The machine is a worker of another cluster, or its join to a control plane is not complete.
    pub is_joined: bool,
    /// A supervisor keeps the components running.
    pub supervised: bool,
    /// Process id of the supervisor, if running.
    pub supervisor: Option<i32>,
    /// The components.
    pub components: Vec<Component>,
    /// Properties of the cluster that should be changed before a machine is lost. They do not make
    /// it unhealthy.
    pub warnings: Vec<Warning>,
}

impl Report {
    /// Returns whether all components are running and ready.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.supervised && self.components.iter().all(|component| component.ready)
    }
}

/// Reads the status of the cluster in `data_dir`.
pub async fn cluster_status(data_dir: &Path) -> Result<Report> {
    let settings = Settings::load(data_dir)?.ok_or_else(|| {
        Error::Refused(format!(
            "{} holds no cluster; start one with `ironclad up`",
            data_dir.display()
        ))
    })?;
    let layout = Layout::for_settings(&settings);
    let mut components = Vec::new();
    for process in make_plan(&settings, &layout).processes {
        let record = Record::load(&layout.record(&process.name));
        let running = record.as_ref().is_some_and(Record::is_alive);
        components.push(Component {
            // A port may be served by another program while the component is down.
            ready: running && supervisor::is_ready(&process.ready).await,
            running,
            pid: record.as_ref().filter(|_| running).map(|record| record.pid),
            restarts: record.map_or(0, |record| record.restarts),
            log: layout.log(&process.name).display().to_string(),
            name: process.name,
            node: process.node,
        });
    }
    let warnings = find_quorum_warning(&settings, &layout).await;
    let supervisor = running_supervisor(&layout).map(|record| record.pid);
    Ok(Report {
        data_dir: data_dir.display().to_string(),
        run_dir: layout.run().display().to_string(),
        server: settings.server_url(),
        kubeconfig: match &settings.membership {
            // An administrator's kubeconfig is on the machine of the cluster only.
            Some(_) => layout.kubeconfig("kubelet"),
            None => layout.admin_kubeconfig(),
        }
        .display()
        .to_string(),
        is_joined: settings.membership.is_some() || settings.awaits_promotion(),
        supervised: supervisor.is_some(),
        supervisor,
        components,
        warnings: warnings.into_iter().collect(),
    })
}
