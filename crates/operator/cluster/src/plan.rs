//! The plan: a list of processes with their arguments, dependencies and readiness checks.
//!
//! Pure: it depends only on settings and paths, so that a table test can compare whole command
//! lines.

mod control_plane;
mod node;
mod process;

use serde::{Deserialize, Serialize};

use crate::config_file::ConfigFile;
use crate::control_plane::JoinedControlPlane;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::settings::{Runtime, Settings};
use control_plane::Builder;
pub(crate) use control_plane::{API_PROXY, DNS_USER, format_member_url};
use node::NodeBuilder;
use process::process_stamp;
pub use process::{Process, Ready};

/// All processes of a cluster, in starting order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Plan {
    /// The processes.
    pub processes: Vec<Process>,
}

/// Computes the plan.
#[must_use]
pub fn make_plan(settings: &Settings, layout: &Layout) -> Plan {
    let build = Builder { settings, layout };
    let nodes: Vec<_> = settings
        .nodes()
        .into_iter()
        .map(|node| NodeBuilder::new(&build, node))
        .collect();
    if settings.membership.is_some() {
        return make_joined_plan(&build, &nodes);
    }
    if settings.awaits_promotion() {
        // A learner does not serve the reads of an API server.
        let joined = settings.joined_control_plane();
        let members = joined.and_then(JoinedControlPlane::start_members);
        let processes = members.map(|_| build.store()).into_iter().collect();
        return Plan { processes };
    }
    // In starting order; `after` has the dependencies, and a test compares the two.
    let mut processes = vec![build.store(), build.api_server()];
    processes.extend(build.api_proxy());
    if settings.runtime == Runtime::Own {
        processes.extend(nodes.iter().map(NodeBuilder::containerd));
    }
    processes.push(build.controller_manager());
    processes.push(build.scheduler());
    for node in &nodes {
        if settings.runs_pods() {
            processes.push(node.proxy());
            processes.extend(node.network_agent());
            processes.extend(node.dns());
        }
        processes.push(node.kubelet());
    }
    processes.push(build.dns());
    Plan { processes }
}

/// Returns the plan of a machine that joined a cluster. kube-proxy has the credentials that the
/// kubelet requests, so it is in the plan once the node is registered.
fn make_joined_plan(build: &Builder<'_>, nodes: &[NodeBuilder<'_>]) -> Plan {
    let settings = build.settings;
    let mut processes = Vec::new();
    processes.extend(build.api_proxy());
    for node in nodes {
        if settings.runtime == Runtime::Own {
            processes.push(node.containerd());
        }
        if settings.has_pod_network() {
            processes.push(node.proxy());
            processes.extend(node.network_agent());
            processes.extend(node.dns());
        }
        processes.push(node.kubelet());
    }
    Plan { processes }
}

impl Plan {
    /// Loads the plan that the supervisor follows.
    pub(crate) fn load(layout: &Layout) -> Result<Self> {
        let path = layout.plan();
        let text = std::fs::read(&path).map_err(Error::io(&path))?;
        serde_json::from_slice(&text).map_err(|cause| Error::Settings { path, cause })
    }

    /// Returns the names of the nodes whose kubelet is in the plan.
    pub fn nodes_with_kubelet(&self) -> impl Iterator<Item = &str> {
        let kubelets = self.processes.iter().filter(|p| p.is_kubelet());
        kubelets.map(|process| process.node.as_str())
    }

    /// Removes the kubelets of all nodes but `nodes`.
    pub fn keep_kubelets(&mut self, nodes: &[String]) {
        self.processes
            .retain(|process| !process.is_kubelet() || nodes.contains(&process.node));
    }

    /// Sets each process's stamp from its current program and inputs.
    pub fn set_stamps(&mut self) {
        self.set_future_stamps(&[]);
    }

    /// Sets the stamps that the processes have once these files are written.
    pub(crate) fn set_future_stamps(&mut self, pending: &[ConfigFile]) {
        for process in &mut self.processes {
            process.stamp = process_stamp(process, pending);
        }
    }
}

#[cfg(test)]
mod tests;
