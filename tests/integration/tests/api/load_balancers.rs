//! Addresses of a pool for Services of type LoadBalancer.

use integration_tests::{Http2Client, find_condition, wait_for_value};
use serde_json::{Value, json};
use testkit_control_plane::{ControlPlane, Options};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const CONDITION: &str = "ironclad/AddressAllocated";

async fn create_service(admin: &Http2Client, name: &str) {
    let service = json!({"metadata": {"name": name},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    admin.post(SERVICES, &service).await.expect_status(201);
}

fn address(service: &Value) -> &Value {
    &service["status"]["loadBalancer"]["ingress"][0]["ip"]
}

/// Waits until the condition of a Service has the reason; returns the Service.
async fn wait_for_reason(admin: &Http2Client, name: &str, reason: &str) -> Value {
    let path = format!("{SERVICES}/{name}");
    wait_for_value(reason, async || {
        let service = admin.get(&path).await.json();
        (find_condition(&service, CONDITION)["reason"] == reason).then_some(service)
    })
    .await
}

#[tokio::test]
async fn services_share_a_pool_and_release_its_addresses() {
    let plane = ControlPlane::start_with(Options::default()).await;
    let pool = "--load-balancer-pool=192.0.2.100-192.0.2.101";
    plane.start_controllers_with("service-lb-controller", &[pool]);
    let admin = Http2Client::connect(&plane.admin()).await;
    for (name, expect) in [("a", "192.0.2.100"), ("b", "192.0.2.101")] {
        create_service(&admin, name).await;
        let service = wait_for_reason(&admin, name, "Allocated").await;
        assert_eq!(address(&service), expect);
    }
    create_service(&admin, "c").await;
    let waiting = wait_for_reason(&admin, "c", "PoolExhausted").await;
    assert!(address(&waiting).is_null());
    // Another type releases the address, and the condition is removed.
    let change = json!({"spec": {"type": "ClusterIP"}});
    let path = format!("{SERVICES}/a");
    admin.merge_patch(&path, &change).await.expect_status(200);
    let service = wait_for_reason(&admin, "c", "Allocated").await;
    assert_eq!(address(&service), "192.0.2.100");
    wait_for_value("no condition", async || {
        let service = admin.get(&path).await.json();
        find_condition(&service, CONDITION).is_null().then_some(())
    })
    .await;
    let events = admin.get("/api/v1/namespaces/default/events").await.json();
    let has_event = |name: &str, reason: &str| {
        let events = events["items"].as_array().into_iter().flatten();
        let mut reasons = events.filter(|event| event["involvedObject"]["name"] == name);
        reasons.any(|event| event["reason"] == reason)
    };
    assert!(
        has_event("a", "AddressAllocated") && has_event("c", "PoolExhausted"),
        "{events}"
    );
}
