//! Runs the steps until all objects exist.

use super::endpoints::{self, OwnEndpoint};
use super::identity::{self, Identity};
use super::{cluster_authentication_trust, legacy_tokens, objects, rbac, service};
use crate::bootstrap_steps::Step;
use crate::endpoint_reconciler::EndpointReconciler;
use crate::options::ServerOptions;
use crate::server::Server;
use api_meta::ApiError;
use futures::FutureExt;
use futures::future::try_join_all;
use std::sync::Arc;
use std::time::Duration;

const RETRY: Duration = Duration::from_millis(500);

/// Creates the bootstrap objects, and retries until all exist.
pub async fn run_bootstrap(server: Arc<Server>, options: ServerOptions, port: u16) {
    server.caches.wait_ready().await;
    if options.endpoint_reconciler_type == EndpointReconciler::MasterCount {
        tracing::warn!(
            "--endpoint-reconciler-type=master-count keeps the endpoints of the Service kubernetes by leases: servers are not counted"
        );
    }
    let identity = Identity::of_host();
    loop {
        match bootstrap_all(&server, &options, port, &identity).await {
            Ok(()) => break,
            // The store may still elect its leader; without these objects the cluster would stay
            // unusable.
            Err(error) => {
                tracing::warn!(%error, "failed to create bootstrap objects; retrying")
            }
        }
        tokio::time::sleep(RETRY).await;
    }
    tracing::info!(address = server.external_address, "ready");
    if let Some(own) = own_endpoint(&options, port) {
        server.tasks.clone().spawn(
            // After the bootstrap, whose last step published the endpoints for the first time.
            "kubernetes-endpoints",
            endpoints::maintain_endpoints(server.clone(), own),
        );
    }
    server.tasks.clone().spawn(
        "identity-lease",
        identity::maintain_lease(server.clone(), identity),
    );
    server.tasks.clone().spawn(
        "identity-lease-collection",
        identity::collect_leases(server.clone()),
    );
    server.tasks.clone().spawn(
        "cluster-authentication-trust",
        cluster_authentication_trust::maintain_authentication_info(server.clone(), options),
    );
    server.tasks.clone().spawn(
        "legacy-token-tracking",
        legacy_tokens::maintain_tracking_start(server.clone()),
    );
    server.tasks.clone().spawn(
        "legacy-token-uses",
        legacy_tokens::label_used_secrets(server.clone()),
    );
    let registry = (server.registry.clone(), server.stopping.clone());
    server.tasks.clone().spawn("allocation-events", async move {
        let (registry, stop) = registry;
        registry.create_finding_events(&stop).await;
    });
    server.registry.keep_allocations(&server.stopping).await;
}

async fn bootstrap_all(
    server: &Server,
    options: &ServerOptions,
    port: u16,
    identity: &Identity,
) -> Result<(), ApiError> {
    let steps = &server.bootstrapped;
    // A stale cache would show system objects as missing.
    server.registry.wait_for_version("").await?;
    steps
        // Before the Service `kubernetes` is created, which allocates an address.
        .complete_step(Step::Allocations, server.registry.repair_allocations())
        .await?;
    steps
        // The other objects are in these namespaces.
        .complete_step(Step::Namespaces, objects::ensure_namespaces(server))
        .await?;
    // Each write waits for the disk, so independent ones run concurrently.
    let parts = [
        steps
            .complete_step(Step::Objects, objects::ensure_objects(server, options))
            .boxed(),
        steps
            .complete_step(Step::Rbac, rbac::ensure_rbac(server))
            .boxed(),
        steps
            .complete_step(Step::Service, ensure_own_service(server, options, port))
            .boxed(),
        steps
            .complete_step(Step::Identity, identity::claim_lease(server, identity))
            .boxed(),
    ];
    try_join_all(parts).await.map(|_| ())
}

/// Creates the Service `kubernetes`, and publishes this server in its endpoints.
async fn ensure_own_service(
    server: &Server,
    options: &ServerOptions,
    port: u16,
) -> Result<(), ApiError> {
    let mut parts = vec![service::ensure_service(server, options, port).boxed()];
    if let Some(own) = own_endpoint(options, port) {
        parts.push(endpoints::renew_lease(server, own).boxed());
    }
    try_join_all(parts).await.map(|_| ())
}

/// Returns what this server adds to the endpoints of the Service `kubernetes`, if anything.
fn own_endpoint(options: &ServerOptions, port: u16) -> Option<OwnEndpoint> {
    let writes = options.endpoint_reconciler_type.writes_endpoints();
    writes.then(|| OwnEndpoint {
        address: options.advertised_address(),
        port,
    })
}
