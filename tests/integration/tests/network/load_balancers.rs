//! The address of a load balancer, from its allocation to a connection of a client on the link.

use std::net::Ipv4Addr;

use serde_json::{Value, json};
use testkit_network::Transport::Tcp;
use testkit_network::{OUTSIDE, run_script};

use crate::network_policies::{Setting, wait_until};

const SERVICE: &str = "/api/v1/namespaces/default/services/web";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const NODE: &str = "/api/v1/nodes/n1";
/// On the link of the host outside.
const POOL: &str = "--load-balancer-pool=192.0.2.100-192.0.2.110";
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

impl Setting {
    fn read(&self, path: &str) -> Value {
        let admin = self.plane.admin();
        self.runtime.block_on(admin.get(path)).json()
    }

    fn patch(&self, path: &str, patch: &Value) {
        let admin = self.plane.admin();
        let patched = admin.merge_patch(path, patch);
        self.runtime.block_on(patched).expect_success();
    }

    /// Creates the Node, and a Service with an endpoint there.
    fn create_balanced_service(&self) {
        let node = json!({ "metadata": { "name": "n1" }, "status": { "addresses": [
            { "type": "InternalIP", "address": "192.0.2.1" }] } });
        self.create("/api/v1/nodes", &node);
        let service = json!({ "metadata": { "name": "web" }, "spec": { "type": "LoadBalancer",
            "externalTrafficPolicy": "Local", "ports": [{ "port": 80, "targetPort": 8080 }] } });
        self.create("/api/v1/namespaces/default/services", &service);
        let slice = json!({
            "metadata": { "name": "web-1", "labels": { "kubernetes.io/service-name": "web" } },
            "addressType": "IPv4", "ports": [{ "name": "", "port": 8080, "protocol": "TCP" }],
            "endpoints": [{ "addresses": ["10.244.0.3"], "nodeName": "n1", "conditions": { "ready": true } }],
        });
        self.create(SLICES, &slice);
    }

    fn set_ready(&self, is_ready: bool) {
        let endpoint = json!({ "addresses": ["10.244.0.3"], "nodeName": "n1",
            "conditions": { "ready": is_ready } });
        self.patch(
            &format!("{SLICES}/web-1"),
            &json!({ "endpoints": [endpoint] }),
        );
    }

    /// Waits until the node answers ARP requests of the host outside for an address, or until it
    /// does not.
    #[track_caller]
    fn wait_for_answer(&self, address: Ipv4Addr, expect: bool) {
        let outside = self.network.name(OUTSIDE);
        wait_until(&format!("{address} is answered: {expect}"), || {
            let _ = run_script(&format!("ip -n {outside} neigh flush to {address}"));
            self.network
                .reaches(OUTSIDE, &format!("{address}:80"), Tcp, false);
            let found = run_script(&format!("ip -n {outside} neigh show {address}")).unwrap();
            found.contains("lladdr") == expect
        });
    }
}

#[test]
fn client_on_the_link_reaches_the_address_that_the_controller_allocated() {
    let Some(setting) = Setting::start() else {
        return;
    };
    setting.create_balanced_service();
    let inside = setting.runtime.enter();
    setting
        .plane
        .start_controllers_with("service-lb-controller", &[POOL]);
    drop(inside);
    let proxy = setting.start_proxy(&[POOL]);
    let address = Ipv4Addr::new(192, 0, 2, 100);
    let front = format!("{address}:80");
    setting.wait_for(OUTSIDE, &front, true);
    let service = setting.read(SERVICE);
    let given = &service["status"]["loadBalancer"]["ingress"];
    assert_eq!(*given, json!([{ "ip": address, "ipMode": "VIP" }]));
    // A server of the node that listens everywhere.
    setting.network.serve("node");
    setting.wait_for(OUTSIDE, "192.0.2.1:8081", true);
    setting.wait_for(OUTSIDE, &format!("{address}:8081"), false);

    // The only ready endpoint of a Service with the policy Local, then the label of the Node.
    setting.set_ready(false);
    setting.wait_for_answer(address, false);
    setting.set_ready(true);
    setting.wait_for_answer(address, true);
    setting.patch(NODE, &json!({ "metadata": { "labels": { EXCLUDED: "" } } }));
    setting.wait_for_answer(address, false);
    setting.patch(
        NODE,
        &json!({ "metadata": { "labels": { EXCLUDED: null } } }),
    );
    setting.wait_for_answer(address, true);
    setting.wait_for(OUTSIDE, &front, true);

    // A status with an address outside of the pool, by a client with the right to write it.
    let other = json!({ "status": { "loadBalancer": { "ingress": [
        { "ip": "192.0.2.50", "ipMode": "VIP" }] } } });
    setting.patch(&format!("{SERVICE}/status"), &other);
    setting.wait_for_answer(address, false);
    setting.wait_for_answer(Ipv4Addr::new(192, 0, 2, 50), false);
    setting.stop(proxy);
}
