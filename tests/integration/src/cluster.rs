//! The cluster that concurrent tests share.

use crate::wait_for;
use std::sync::{Arc, Weak};
use testkit_control_plane::{ControlPlane, Options};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Mutex;

/// Nodes of a cluster with [`Components::All`]. Their kubelets use the simulated runtime.
pub const NODES: [&str; 2] = ["node-a", "node-b"];

/// Components beside kvstore and the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Components {
    /// None: objects stay as clients write them.
    ApiServer,
    /// The controller manager with all controllers, the scheduler, and a kubelet for each of
    /// [`NODES`].
    All,
}

/// A control plane on a runtime of its own, because the runtime of a test ends with the test.
pub struct Cluster {
    plane: ControlPlane,
    runtime: Option<Runtime>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Cluster {
    /// Returns the cluster of the tests that run now; starts it if there is none. It stops with the
    /// last of them, so that a test binary leaves no files behind.
    ///
    /// # Panics
    /// If a component does not become ready within 60 s.
    pub async fn shared(components: Components) -> Arc<Self> {
        static API_SERVER: Mutex<Weak<Cluster>> = Mutex::const_new(Weak::new());
        static ALL: Mutex<Weak<Cluster>> = Mutex::const_new(Weak::new());
        let slot = match components {
            Components::ApiServer => &API_SERVER,
            Components::All => &ALL,
        };
        let mut slot = slot.lock().await;
        if let Some(cluster) = slot.upgrade() {
            return cluster;
        }
        let cluster = Arc::new(Self::start(components).await);
        *slot = Arc::downgrade(&cluster);
        cluster
    }

    /// Returns the control plane.
    pub fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    async fn start(components: Components) -> Self {
        let started = tokio::task::spawn_blocking(move || {
            let runtime = Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap_or_else(|error| panic!("the cluster's runtime: {error}"));
            let plane = runtime.block_on(start_components(components));
            Self {
                plane,
                runtime: Some(runtime),
            }
        });
        started
            .await
            .unwrap_or_else(|error| panic!("the cluster did not start: {error}"))
    }
}

async fn start_components(components: Components) -> ControlPlane {
    if components == Components::ApiServer {
        return ControlPlane::start().await;
    }
    let options = Options {
        nodes: NODES.map(str::to_owned).to_vec(),
        api_server: vec!["--enable-bootstrap-token-auth=true".to_owned()],
        ..Options::default()
    };
    let plane = ControlPlane::start_with(options).await;
    plane.start_controllers("*,bootstrapsigner,tokencleaner,kubelet-serving-approver");
    plane.start_scheduler();
    let admin = plane.admin();
    for name in NODES {
        if let Err(error) = plane.start_kubelet(name, &[]).await {
            panic!("the kubelet of {name}: {error:#}");
        }
        let path = format!("/api/v1/nodes/{name}");
        wait_for(&format!("{name} is ready"), async || {
            let node = admin.get(&path).await.json();
            let conditions = node["status"]["conditions"].as_array();
            let ready = conditions.is_some_and(|conditions| {
                conditions
                    .iter()
                    .any(|c| c["type"] == "Ready" && c["status"] == "True")
            });
            ready && node["spec"].get("taints").is_none()
        })
        .await;
    }
    plane
}
