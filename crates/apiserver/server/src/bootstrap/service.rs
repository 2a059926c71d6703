//! The Service `kubernetes` in `default`: the first address of the range, and this server as its endpoint.

use super::{create_missing, present, row};
use crate::options::ServerOptions;
use crate::server::Server;
use api_kinds::Resource;
use api_meta::ApiError;
use apiserver_registry::{Mode, Update, Write, first_address};
use futures::FutureExt;
use futures::future::try_join_all;
use serde_json::{Value, json};

const NAMESPACE: &str = "default";
const NAME: &str = "kubernetes";

/// Makes the Service, its Endpoints and its EndpointSlice.
pub async fn ensure(server: &Server, options: &ServerOptions, port: u16) -> Result<(), ApiError> {
    let address = options.advertised().to_string();
    let subsets =
        json!([{"addresses": [{"ip": address}], "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}]);
    let endpoints = json!({"metadata": metadata(false), "subsets": subsets});
    let family = if options.advertised().is_ipv4() { "IPv4" } else { "IPv6" };
    let slice = json!({"metadata": metadata(true), "addressType": family,
        "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}]});
    let parts = [
        own_service(server, options, port).boxed(),
        replace(server, row("", "endpoints")?, endpoints, &["subsets"]).boxed(),
        replace(server, row("discovery.k8s.io", "endpointslices")?, slice, &["endpoints", "ports"]).boxed(),
    ];
    try_join_all(parts).await.map(|_| ())
}

async fn own_service(server: &Server, options: &ServerOptions, port: u16) -> Result<(), ApiError> {
    let Some(cidr) = options.service_cluster_ip_range.first() else { return Ok(()) };
    create_missing(server, row("", "services")?, service(&first_address(cidr).to_string(), port)).await
}

fn service(address: &str, port: u16) -> Value {
    json!({"metadata": {"name": NAME, "namespace": NAMESPACE, "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"type": "ClusterIP", "clusterIP": address, "sessionAffinity": "None",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}]}})
}

/// The slice belongs to the Service by label; neither is touched by the controllers that mirror Endpoints.
fn metadata(of_slice: bool) -> Value {
    let mut labels = json!({"endpointslice.kubernetes.io/skip-mirror": "true"});
    if of_slice {
        labels = json!({"kubernetes.io/service-name": NAME});
    }
    json!({"name": NAME, "namespace": NAMESPACE, "labels": labels})
}

async fn replace(
    server: &Server,
    row: &'static Resource,
    wanted: Value,
    fields: &'static [&'static str],
) -> Result<(), ApiError> {
    if present(server, row, NAMESPACE, NAME).is_none() {
        return create_missing(server, row, wanted).await;
    }
    let change = move |old: &Value| {
        let mut new = old.clone();
        for field in fields {
            new[*field] = wanted[*field].clone();
        }
        Ok(new)
    };
    let mut write = Write::internal(row, NAMESPACE, NAME);
    server.registry.update(&mut write, &Update { change: &change, replaces: false, mode: Mode::Full }).await.map(|_| ())
}
