//! Gateways with addresses of their own, each with a Service.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::gateway_api::{backend, gateway, path, route, start_with};
use crate::setting::{ADDRESS, Setting, condition};

const OWN: &str = "/api/v1/namespaces/ironclad-gateway/services/ironclad-gateway-0";

/// Starts a gateway with ports for two Gateways. They are fixed, and therefore at an address of the
/// loopback network that no other process uses.
async fn start_with_ports() -> Setting {
    let [_, a, b, c] = std::process::id().to_be_bytes();
    let flags = [
        format!("--http-listen=127.{}.{b}.{c}:0", 64 + a % 64),
        "--publish-service=ironclad-gateway/ironclad-gateway".to_owned(),
        "--gateway-ports=20000-20003".to_owned(),
        "--gateway-listener-port=8080".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    start_with(&flags, &["a"]).await
}

/// Creates a Gateway for all hosts, and a route to a server with its name.
async fn add_gateway(setting: &Setting, name: &str) {
    let listeners = json!([{"name": "http", "port": 80, "protocol": "HTTP"}]);
    setting.create(gateway("a", name, listeners)).await;
    setting.add_backend("a", name).await;
    let rules = json!([{"backendRefs": [backend(name)]}]);
    let object = route("a", name, json!({"name": name}), &[], rules);
    setting.create(object).await;
}

async fn wait_for_programmed(setting: &Setting, name: &str, want: (&str, &str)) -> Value {
    setting
        .wait_for_object(
            &path("a", "gateways", name),
            &format!("{want:?}"),
            |found| condition(&found["status"]["conditions"], "Programmed") == want,
        )
        .await
}

/// Returns the name of the server behind a port of the Gateway's Service, which receives a line.
async fn curl_port(setting: &Setting, service: &Value, line: &str) -> String {
    let target = service["spec"]["ports"][0]["targetPort"].as_u64().unwrap();
    let address = SocketAddr::new(setting.http.ip(), u16::try_from(target).unwrap());
    let url = format!("http://{address}/");
    let response = setting
        .wait_for(&[&url, "--header", "Host: any.example.com"], |response| {
            response.has_line(line)
        })
        .await;
    response.server().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_with_the_listener_of_another_has_a_service_of_its_own() {
    let setting = start_with_ports().await;
    let admin = setting.plane.admin();
    add_gateway(&setting, "first").await;
    wait_for_programmed(&setting, "first", ("True", "Programmed")).await;
    // The next second, so that it is younger.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    add_gateway(&setting, "second").await;
    wait_for_programmed(&setting, "second", ("False", "AddressNotAssigned")).await;
    let service = setting
        .wait_for_object(OWN, "created", |found| found["kind"] == "Service")
        .await;
    assert_eq!(service["spec"]["type"], "LoadBalancer");
    assert_eq!(
        service["spec"]["selector"],
        json!({"app": "ironclad-gateway"})
    );
    let name = &service["metadata"]["labels"]["gateway.networking.k8s.io/gateway-name"];
    assert_eq!(*name, "second");
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.81"}]}}});
    let written = admin.merge_patch(&format!("{OWN}/status"), &status).await;
    written.expect_success();
    let found = wait_for_programmed(&setting, "second", ("True", "Programmed")).await;
    assert_eq!(
        found["status"]["addresses"],
        json!([{"type": "IPAddress", "value": "192.0.2.81"}])
    );
    let first = wait_for_programmed(&setting, "first", ("True", "Programmed")).await;
    assert_eq!(first["status"]["addresses"][0]["value"], ADDRESS);
    // A Service with the fields that the API server sets is not written again.
    let stored = admin.get(OWN).await.json();
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert_eq!(admin.get(OWN).await.json(), stored);
    // One host and port, at two addresses.
    let line = "x-forwarded-port: 80";
    assert_eq!(curl_port(&setting, &service, line).await, "second");
    setting
        .wait_for_server("http://any.example.com/", "first")
        .await;
    // The Service follows the Gateway: another port, a further one, and then the end of both.
    let listeners = json!([{"name": "http", "port": 8080, "protocol": "HTTP"}]);
    let gateway = path("a", "gateways", "second");
    let patch = json!({"spec": {"listeners": listeners}});
    admin.merge_patch(&gateway, &patch).await.expect_success();
    let service = setting
        .wait_for_object(OWN, "the other port", |found| {
            found["spec"]["ports"][0]["port"] == 8080
        })
        .await;
    let line = "x-forwarded-port: 8080";
    assert_eq!(curl_port(&setting, &service, line).await, "second");
    let listeners = json!([{"name": "http", "port": 80, "protocol": "HTTP"},
        {"name": "https", "port": 443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "x"}]}}]);
    let patch = json!({"spec": {"listeners": listeners}});
    admin.merge_patch(&gateway, &patch).await.expect_success();
    setting
        .wait_for_object(OWN, "two ports", |found| {
            found["spec"]["ports"]
                .as_array()
                .is_some_and(|ports| ports.len() == 2)
        })
        .await;
    admin.delete(&gateway).await.expect_success();
    integration_tests::wait_for("the Service is deleted", async || {
        admin.get(OWN).await.status == 404
    })
    .await;
}
