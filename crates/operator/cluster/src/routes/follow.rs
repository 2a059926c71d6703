//! Keeps the routes equal to the Node objects: level-triggered, on every change of a node, and each
//! minute, because an administrator or a restarted network service may remove routes.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use base_task::CancellationToken;
use client::{Client, Config, Informer, ListParams, Store};
use k8s_openapi::api::core::v1::Node;
use tokio::sync::Notify;

use super::table::apply_routes;
use super::{Machine, plan_routes};
use crate::connect::USER_AGENT;
use crate::layout::Layout;
use crate::settings::Settings;

/// Interval at which the routes are compared without a change.
const REPAIR_INTERVAL: Duration = Duration::from_secs(60);
/// Pause for the files of the identity, which `join` writes.
const RETRY: Duration = Duration::from_secs(2);

/// Follows the nodes until it is dropped. It reads them with the identity of kube-proxy.
pub(crate) async fn follow_nodes(settings: Settings, layout: Layout) {
    let path = layout.kubeconfig("proxy");
    let config = loop {
        match Config::from_kubeconfig(&path) {
            Ok(config) => break config,
            Err(error) => tracing::debug!(%error, "the routes to other nodes wait"),
        }
        tokio::time::sleep(RETRY).await;
    };
    let client = Client::new(config.user_agent(USER_AGENT));
    let changed = Arc::new(Notify::new());
    let notify = changed.clone();
    let informer = Informer::new(client.api::<Node>(), ListParams::new())
        // A list of images is longer than the rest of a Node.
        .transform(|node: &mut Node| {
            if let Some(status) = &mut node.status {
                status.images = None;
            }
        })
        .on_event(move |_| notify.notify_one());
    let (nodes, run) = informer.start(CancellationToken::new());
    tokio::select! {
        () = run => {}
        () = keep_routes(&settings, &nodes, &changed) => {}
    }
}

async fn keep_routes(settings: &Settings, nodes: &Store<Node>, changed: &Notify) {
    let machine = Machine::for_settings(settings);
    let IpAddr::V4(source) = settings.first_node().bridge_address() else {
        return;
    };
    let mut reported = BTreeSet::new();
    nodes.wait_until_synced().await;
    loop {
        let plan = plan_routes(&machine, &nodes.list());
        let applied = base_task::blocking(|| apply_routes(&plan.routes, source));
        let failures = applied.unwrap_or_else(|error| vec![error.to_string()]);
        let rejected = plan.rejected.into_iter().map(Problem::Rejected);
        let failed = failures.into_iter().map(Problem::Failed);
        let own = check_own_range(settings, nodes).map(Problem::OwnRange);
        report_problems(&mut reported, rejected.chain(failed).chain(own).collect());
        tokio::select! {
            () = changed.notified() => {}
            () = tokio::time::sleep(REPAIR_INTERVAL) => {}
        }
    }
}

/// Returns a defect if the cluster has allocated another range to this machine's pods: its Node was
/// deleted, and registered again.
fn check_own_range(settings: &Settings, nodes: &Store<Node>) -> Option<String> {
    let used = settings.membership.as_ref()?.pods?.to_string();
    let node = nodes.get(&settings.node_name)?;
    let allocated = node.spec.as_ref()?.pod_cidr.clone()?;
    (allocated != used).then(|| {
        format!(
            "node {}: its pods have addresses of {used}, and the cluster has allocated {allocated}; run `ironclad join` again",
            settings.node_name
        )
    })
}

/// A problem with routes, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Problem {
    /// A node's object has values that are not used.
    Rejected(String),
    /// The kernel rejects a route.
    Failed(String),
    /// The range of this machine has changed.
    OwnRange(String),
}

impl Problem {
    fn log(&self) {
        match self {
            Self::Rejected(problem) => tracing::warn!(
                problem,
                "a range or an address of a node is not used for routes; examine its podCIDR, its addresses, \
                 which the node itself can write, and its gateway label"
            ),
            Self::Failed(problem) => tracing::warn!(
                problem,
                "a route can't be changed; all machines must be on one link"
            ),
            Self::OwnRange(problem) => tracing::warn!(
                problem,
                "pods of this machine can't be reached from other machines"
            ),
        }
    }
}

/// Logs each problem once, as long as it lasts.
fn report_problems(reported: &mut BTreeSet<Problem>, problems: BTreeSet<Problem>) {
    problems.difference(reported).for_each(Problem::log);
    *reported = problems;
}
