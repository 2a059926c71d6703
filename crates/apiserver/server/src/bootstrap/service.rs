//! The Service `kubernetes` in `default`, which has the first address of the range.

use super::{create_missing, find_resource};
use crate::options::ServerOptions;
use crate::server::Server;
use api_meta::ApiError;
use apiserver_registry::first_address;
use serde_json::{Value, json};

/// Creates the Service.
pub async fn ensure_service(
    server: &Server,
    options: &ServerOptions,
    port: u16,
) -> Result<(), ApiError> {
    let Some(cidr) = options.service_cluster_ip_range.first() else {
        return Ok(());
    };
    // Server certificates name the range's first address, so it must not depend on the allocator.
    create_missing(
        server,
        find_resource("", "services")?,
        kubernetes_service(&first_address(cidr).to_string(), port),
    )
    .await
}

fn kubernetes_service(address: &str, port: u16) -> Value {
    json!({"metadata": {"name": "kubernetes", "namespace": "default", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"type": "ClusterIP", "clusterIP": address, "sessionAffinity": "None",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}]}})
}
