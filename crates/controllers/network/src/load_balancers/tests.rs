#![allow(clippy::unwrap_used)]
use super::*;
use controllers_runtime::{EventType, describe_actions};
use serde_json::{Value, json};

const NOW: &str = "2026-01-01T00:00:00Z";
const POOL: &str = "192.0.2.1-192.0.2.2,2001:db8::1";

fn service(spec: &Value, status: &Value) -> Service {
    let mut merged = json!({"type": "LoadBalancer", "ipFamilies": ["IPv4"]});
    for (key, value) in spec.as_object().unwrap() {
        merged[key] = value.clone();
    }
    let object = json!({
        "metadata": {"name": "s", "namespace": "n", "uid": "u", "resourceVersion": "7"},
        "spec": merged, "status": status,
    });
    serde_json::from_value(object).unwrap()
}

fn ingress(address: &str) -> Value {
    json!({"loadBalancer": {"ingress": [{"ip": address, "ipMode": "VIP"}]}})
}

fn ingress_of_pool(address: &str, recorded: &str) -> Value {
    let mut status = ingress(address);
    status["conditions"] = json!([{"type": status::CONDITION, "status": "True",
        "reason": "Allocated", "message": recorded, "lastTransitionTime": NOW}]);
    status
}

fn reconcile(service: &Service, others: &[&str]) -> Vec<Action> {
    let mut ledger = Ledger::new(POOL.parse().unwrap());
    for (n, address) in others.iter().enumerate() {
        ledger.observe(&format!("n/{n}"), 0, vec![address.parse().unwrap()]);
    }
    let event = Event::Applied {
        old: None,
        new: Arc::new(service.clone()),
    };
    record_event(&mut ledger, &event);
    let later = "2026-01-02T00:00:00Z".parse().unwrap();
    reconcile_service(service, &mut ledger, &|_| false, later).0
}

fn body(service: &Service, others: &[&str]) -> Value {
    let actions = reconcile(service, others);
    assert_eq!(describe_actions(&actions), ["status Service s"]);
    actions[0].as_write().unwrap().body["status"].clone()
}

#[test]
fn new_service_gets_an_address_and_a_condition() {
    for spec in [json!({}), json!({"loadBalancerClass": LOAD_BALANCER_CLASS})] {
        let new = service(&spec, &json!({}));
        let status = body(&new, &["192.0.2.1"]);
        assert_eq!(
            status["loadBalancer"]["ingress"],
            json!([{"ip": "192.0.2.2", "ipMode": "VIP"}])
        );
        let condition = &status["conditions"][0];
        assert_eq!(condition["status"], "True");
        assert_eq!(condition["message"], "192.0.2.2");
        let actions = reconcile(&new, &[]);
        let write = actions[0].as_write().unwrap();
        assert_eq!(write.body["metadata"]["resourceVersion"], "7");
        let note = write.notes.success.clone().unwrap();
        assert_eq!(note.reason, "AddressAllocated");
    }
}

#[test]
fn problem_is_reported_once_with_its_remedy() {
    let new = service(&json!({"ipFamilies": ["IPv4", "IPv6"]}), &json!({}));
    let taken = ["192.0.2.1", "192.0.2.2"];
    let status = body(&new, &taken);
    let condition = &status["conditions"][0];
    assert_eq!(condition["status"], "False");
    assert_eq!(condition["reason"], "PoolExhausted");
    let message = condition["message"].as_str().unwrap();
    assert!(
        message.starts_with("2001:db8::1; all addresses"),
        "{message}"
    );
    let actions = reconcile(&new, &taken);
    let note = actions[0].as_write().unwrap().notes.success.clone();
    assert_eq!(note.unwrap().kind, EventType::Warning);
    let reported = service(&json!({"ipFamilies": ["IPv4", "IPv6"]}), &status);
    assert_eq!(reconcile(&reported, &taken), []);
    // The time of the change stays while the condition is false.
    let wish = service(&json!({"loadBalancerIP": "10.0.0.1"}), &status);
    let again = body(&wish, &taken);
    assert_eq!(again["conditions"][0]["reason"], "AddressOutsidePool");
    assert_eq!(again["loadBalancer"]["ingress"], json!([]));
    assert_eq!(
        again["conditions"][0]["lastTransitionTime"],
        condition["lastTransitionTime"]
    );
}

#[test]
fn services_of_other_load_balancers_are_not_touched() {
    let other = json!({"loadBalancerClass": "example.com/other"});
    let host = json!({"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}]}});
    for (spec, status) in [
        (other.clone(), json!({})),
        (other, ingress("192.0.2.1")),
        (json!({}), ingress("198.51.100.1")),
        (json!({}), host),
        (json!({"type": "ClusterIP"}), json!({})),
        (json!({"type": "NodePort"}), json!({})),
    ] {
        let actions = reconcile(&service(&spec, &status), &[]);
        assert_eq!(actions, [], "{spec} {status}");
    }
}

#[test]
fn addresses_of_a_former_pool_are_replaced() {
    let old = ingress_of_pool("198.51.100.1", "198.51.100.1");
    let status = body(&service(&json!({}), &old), &[]);
    assert_eq!(status["loadBalancer"]["ingress"][0]["ip"], "192.0.2.1");
}

#[test]
fn service_that_leaves_the_pool_loses_its_condition() {
    let removed = json!([{"type": status::CONDITION, "$patch": "delete"}]);
    let cleared = json!({"conditions": ingress_of_pool("192.0.2.1", "192.0.2.1")["conditions"]});
    for (spec, status) in [
        (json!({"type": "ClusterIP"}), cleared),
        // Another load balancer has replaced the address.
        (json!({}), ingress_of_pool("198.51.100.1", "192.0.2.1")),
    ] {
        let status = body(&service(&spec, &status), &[]);
        assert_eq!(status, json!({"conditions": removed}), "{spec}");
    }
}

#[test]
fn service_in_deletion_keeps_its_address_and_gets_none() {
    for status in [json!({}), ingress_of_pool("192.0.2.1", "192.0.2.1")] {
        let mut ending = service(&json!({}), &status);
        let deleted = controllers_runtime::time::api_time(NOW.parse().unwrap());
        ending.metadata.deletion_timestamp = Some(deleted);
        assert_eq!(reconcile(&ending, &[]), [], "{status}");
    }
}

#[test]
fn addresses_of_nodes_are_indexed() {
    let node = json!({"status": {"addresses": [
        {"type": "InternalIP", "address": "192.0.2.9"},
        {"type": "InternalIP", "address": "2001:DB8::9"},
        {"type": "Hostname", "address": "n1"},
    ]}});
    let node = serde_json::from_value(node).unwrap();
    assert_eq!(list_node_addresses(&node), ["192.0.2.9", "2001:db8::9"]);
}

#[test]
fn change_of_a_nodes_addresses_wakes_the_services_that_wait() {
    let node = |addresses: Value| {
        let node = json!({"status": {"addresses": addresses}});
        Arc::new(serde_json::from_value::<Node>(node).unwrap())
    };
    let one = node(json!([{"type": "InternalIP", "address": "192.0.2.9"}]));
    let none = node(json!([]));
    for (old, new, expect) in [
        (None, &one, false),
        (Some(one.clone()), &one, false),
        (Some(one.clone()), &none, true),
    ] {
        let new = new.clone();
        assert_eq!(changes_addresses(&Event::Applied { old, new }), expect);
    }
    assert!(changes_addresses(&Event::Deleted(one)));
}
