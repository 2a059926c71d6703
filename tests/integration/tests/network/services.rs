//! kube-proxy with the rights that the API server gives it.

use serde_json::{Value, json};
use testkit_network::run_script;

use crate::network_policies::{Setting, wait_until};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

impl Setting {
    pub(crate) fn create(&self, path: &str, object: &Value) -> Value {
        let admin = self.plane.admin();
        let created = self.runtime.block_on(admin.post(path, object));
        created.expect_success().json()
    }
}

#[test]
fn services_of_the_api_are_reached_also_after_a_flush_of_the_rules() {
    let Some(setting) = Setting::start() else {
        return;
    };
    let node = json!({ "metadata": { "name": "n1" }, "status": { "addresses": [
        { "type": "InternalIP", "address": "10.244.0.1" }] } });
    setting.create("/api/v1/nodes", &node);
    // The label is that of slices; a Service with an address is served in spite of it.
    let service = json!({
        "metadata": { "name": "web", "labels": { "service.kubernetes.io/headless": "" } },
        "spec": { "type": "NodePort", "ports": [{ "port": 80, "nodePort": 30080, "targetPort": 8080 }] },
    });
    let made = setting.create(SERVICES, &service);
    let address = made["spec"]["clusterIP"].as_str().unwrap();
    let slice = json!({
        "metadata": { "name": "web-1", "labels": { "kubernetes.io/service-name": "web" } },
        "addressType": "IPv4", "ports": [{ "name": "", "port": 8080, "protocol": "TCP" }],
        "endpoints": [{ "addresses": ["10.244.0.3"], "nodeName": "n1", "conditions": { "ready": true } }],
    });
    setting.create(SLICES, &slice);
    let proxy = setting.start_proxy(&[]);
    let (front, node_port) = (format!("{address}:80"), "10.244.0.1:30080");
    setting.wait_for("a", &front, true);
    setting.wait_for("a", node_port, true);
    let table = || run_script("nft list table ip kube-proxy").unwrap_or_default();
    // The ranges of the ServiceCIDR objects.
    wait_until("ranges", || {
        table().contains("drop\n\t}\n\n\tchain loopback-guard")
    });

    run_script("nft flush ruleset").unwrap();
    setting.wait_for("a", &front, true);
    let admin = setting.plane.admin();
    let path = format!("{SERVICES}/web");
    let deleted = admin.delete(&path);
    setting.runtime.block_on(deleted).expect_success();
    setting.wait_for("a", &front, false);
    wait_until("no rules", || {
        !table().contains(&format!("{address} . tcp"))
    });
    setting.stop(proxy);
}
