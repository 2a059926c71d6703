//! The writer of the endpoints of the Service `kubernetes`.

use super::{TestServer, soon, start_server};
use crate::bootstrap::run_bootstrap;
use crate::bootstrap_steps::Step;
use crate::options::ServerOptions;
use clap::Parser;
use std::time::Duration;

const SERVICE: &str = "/api/v1/namespaces/default/services/kubernetes";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints/kubernetes";
const SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
const LEASES: &str = "/registry/masterleases/";

fn parse_options(flags: &[&str]) -> Result<ServerOptions, clap::Error> {
    let fixed = [
        "x",
        "--etcd-servers=http://x",
        "--tls-cert-file=x",
        "--tls-private-key-file=x",
        "--advertise-address=192.0.2.1",
    ];
    ServerOptions::try_parse_from(fixed.iter().chain(flags))
}

/// Starts a server with the flag `--endpoint-reconciler-type`, and waits for the Service
/// `kubernetes`.
async fn start_with(reconciler: &str) -> TestServer {
    let server = start_server(&[]).await;
    let options = parse_options(&[&format!("--endpoint-reconciler-type={reconciler}")]).unwrap();
    tokio::spawn(run_bootstrap(server.server.clone(), options, 6443));
    soon(async {
        while !server.server.bootstrapped.is_done(Step::Service) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        while server.get(SERVICE).await.code != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    server
}

async fn count_leases(server: &TestServer) -> usize {
    let page = server.server.store.list_range(LEASES, LEASES, 10, 0).await;
    page.unwrap().items.len()
}

#[tokio::test]
async fn server_with_leases_writes_its_address() {
    for reconciler in ["lease", "", "master-count"] {
        let server = start_with(reconciler).await;
        soon(async {
            while server.get(ENDPOINTS).await.code != 200 || server.get(SLICE).await.code != 200 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        let endpoints = server.get(ENDPOINTS).await.json();
        let address = &endpoints["subsets"][0]["addresses"][0]["ip"];
        assert_eq!(address, "192.0.2.1", "{reconciler}");
        assert_eq!(count_leases(&server).await, 1, "{reconciler}");
    }
}

#[tokio::test]
async fn server_without_reconciler_writes_no_address() {
    let server = start_with("none").await;
    for path in [ENDPOINTS, SLICE] {
        assert_eq!(server.get(path).await.code, 404, "{path}");
    }
    assert_eq!(count_leases(&server).await, 0);
}

#[test]
fn unknown_reconciler_is_refused() {
    for wrong in ["Lease", "leases", "configmap", " none"] {
        let parsed = parse_options(&[&format!("--endpoint-reconciler-type={wrong}")]);
        assert!(parsed.is_err(), "{wrong}");
    }
}
