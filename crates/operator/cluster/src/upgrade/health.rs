//! Waits until a replaced component is healthy.

use std::path::Path;
use std::time::Duration;

use client::{Client, Config, Request};
use k8s_openapi::api::core::v1::Node;

use crate::connect::{USER_AGENT, connect_admin_at, local_api_url};
use crate::error::{Error, Result};
use crate::files::read_last_line;
use crate::layout::Layout;
use crate::plan::Process;
use crate::process::{Record, choose_extra_grace};
use crate::settings::Settings;
use crate::supervisor::is_ready;
use crate::up::wait::{has_names, is_node_ready_of};

/// Interval between two checks.
const PAUSE: Duration = Duration::from_millis(100);
/// Time during which a healthy component must not end: a program may open its port before it fails.
const SETTLE: Duration = Duration::from_secs(2);
/// Timeout of a request to the API server.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Health checks of the components of one machine.
pub(super) struct HealthChecks<'a> {
    settings: &'a Settings,
    layout: &'a Layout,
    client: Client,
    timeout: Duration,
}

impl<'a> HealthChecks<'a> {
    /// Returns checks of the processes of this machine.
    pub(super) fn new(
        settings: &'a Settings,
        layout: &'a Layout,
        timeout: Duration,
    ) -> Result<Self> {
        let client = match settings.membership {
            // The API server of this machine, and not another one that the proxy has chosen.
            None => connect_admin_at(&local_api_url(settings), layout),
            Some(_) => connect_kubelet(&layout.kubeconfig("kubelet"))?,
        };
        Ok(Self {
            settings,
            layout,
            client,
            timeout,
        })
    }

    /// Waits until the process of this entry runs and is healthy, and is so still after [`SETTLE`].
    ///
    /// # Errors
    /// The timeout, with the log to read and its last line.
    pub(super) async fn wait_for(&self, process: &Process) -> Result<()> {
        let healthy = async {
            loop {
                if let Some(pid) = self.check(process).await {
                    tokio::time::sleep(SETTLE).await;
                    if self.check(process).await == Some(pid) {
                        return;
                    }
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        // The former process may still handle requests.
        let limit = self.timeout + choose_extra_grace(&process.name);
        let ended = tokio::time::timeout(limit, healthy).await;
        ended.map_err(|_| self.describe_failure(process))
    }

    /// Returns the id of the process if it runs and is healthy.
    pub(super) async fn check(&self, process: &Process) -> Option<i32> {
        let record = Record::load(&self.layout.record(&process.name))?;
        let is_current = record.stamp == process.stamp && record.is_alive();
        if !is_current || !is_ready(&process.ready).await {
            return None;
        }
        let is_healthy = match process.program_name() {
            // The API server's check includes the store.
            Some("kvstore" | "kube-apiserver") => self.is_api_ready().await,
            Some("kubelet") => self.is_node_ready(&process.node, &record).await,
            // Its port is open before it has the names of the cluster.
            Some("cluster-dns") => has_names(&process.ready).await,
            _ => true,
        };
        is_healthy.then_some(record.pid)
    }

    async fn is_api_ready(&self) -> bool {
        let mut request = Request::get("/readyz");
        request.timeout = Some(REQUEST_TIMEOUT);
        self.client.bytes(request).await.is_ok()
    }

    async fn is_node_ready(&self, name: &str, kubelet: &Record) -> bool {
        let nodes = self.client.api::<Node>();
        let found = tokio::time::timeout(REQUEST_TIMEOUT, nodes.get(name)).await;
        matches!(found, Ok(Ok(node)) if is_node_ready_of(self.settings, &node, kubelet))
    }

    /// Returns the error of a component that is not healthy.
    pub(super) fn describe_failure(&self, process: &Process) -> Error {
        let log = self.layout.log(&process.name);
        let last = read_last_line(&log);
        Error::Refused(format!(
            "{} was not healthy within {} s; see {}{}",
            process.name,
            self.timeout.as_secs(),
            log.display(),
            last.map_or_else(String::new, |line| format!(", which ends with: {line}"))
        ))
    }
}

fn connect_kubelet(path: &Path) -> Result<Client> {
    let config = Config::from_kubeconfig(path).map_err(|cause| Error::Api {
        what: path.display().to_string(),
        cause,
    })?;
    Ok(Client::new(config.user_agent(USER_AGENT)))
}
