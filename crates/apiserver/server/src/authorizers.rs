//! Wires the authorizers: the connections of webhooks, and the file that is followed.

use crate::authz_flags::Authorizers;
use crate::bootstrap::identity::Identity;
use crate::options::ServerOptions;
use crate::webhooks::build_resolver;
use apiserver_authz::{Authz, AuthzSetup, WebhookConnections};
use apiserver_config::ConfigMetrics;
use apiserver_request::Objects;
use base_task::Tasks;
use std::sync::Arc;
use std::time::Duration;

/// Interval in which a changed file is noticed.
const RELOAD_INTERVAL: Duration = Duration::from_secs(10);

/// Builds the authorizer of the server, and follows the file.
///
/// # Errors
/// The server of a webhook or the policies of ABAC can't be used.
pub fn build_authz(
    options: &ServerOptions,
    authorizers: Authorizers,
    objects: &Arc<dyn Objects>,
    tasks: &Tasks,
) -> anyhow::Result<Arc<Authz>> {
    let connections = WebhookConnections {
        tasks: tasks.clone(),
        resolver: build_resolver(options, objects),
    };
    let metrics = || ConfigMetrics::new("authorization", Identity::of_host().name());
    let metrics = authorizers.file.is_some().then(|| Arc::new(metrics()));
    let authz = Authz::new(AuthzSetup {
        authorizers: &authorizers.specs,
        objects,
        connections: Arc::new(connections),
        policy_file: options.authz.policy_file(),
        config_metrics: metrics,
    })?;
    if let Some(file) = authorizers.file {
        let shutdown = tasks.shutdown().clone();
        let follow = authz.clone().follow_config(file, RELOAD_INTERVAL, shutdown);
        tasks.spawn_critical("authorization configuration", follow);
    }
    Ok(authz)
}
