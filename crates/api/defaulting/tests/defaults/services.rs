//! Defaults of Services and EndpointSlices.

use super::*;

#[test]
fn service_is_a_cluster_ip_without_affinity() {
    check(
        &service(json!({"ports": [{"port": 80}]})),
        &[
            ("/spec/type", json!("ClusterIP")),
            ("/spec/sessionAffinity", json!("None")),
            ("/spec/internalTrafficPolicy", json!("Cluster")),
            ("/spec/externalTrafficPolicy", Value::Null),
            (
                "/spec/ports/0",
                json!({"port": 80, "protocol": "TCP", "targetPort": 80}),
            ),
        ],
    );
}

#[test]
fn external_traffic_policy_is_set_for_services_that_are_reached_from_outside() {
    for (spec, policy) in [
        (json!({"type": "NodePort"}), json!("Cluster")),
        (json!({"type": "LoadBalancer"}), json!("Cluster")),
        (json!({"externalIPs": ["192.0.2.1"]}), json!("Cluster")),
        (json!({"type": "ClusterIP"}), Value::Null),
        (
            json!({"type": "ExternalName", "externalIPs": ["192.0.2.1"]}),
            Value::Null,
        ),
    ] {
        check(&service(spec), &[("/spec/externalTrafficPolicy", policy)]);
    }
}

#[test]
fn client_ip_affinity_lasts_three_hours() {
    let at = "/spec/sessionAffinityConfig/clientIP/timeoutSeconds";
    check(
        &service(json!({"sessionAffinity": "ClientIP"})),
        &[(at, json!(10_800))],
    );
}

#[test]
fn load_balancer_allocates_node_ports_and_its_addresses_are_virtual() {
    let status = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"hostname": "a"}]}});
    let balancer = default(
        "",
        "Service",
        json!({"spec": {"type": "LoadBalancer"}, "status": status}),
    );
    check(
        &balancer,
        &[
            ("/spec/allocateLoadBalancerNodePorts", json!(true)),
            ("/status/loadBalancer/ingress/0/ipMode", json!("VIP")),
            ("/status/loadBalancer/ingress/1/ipMode", Value::Null),
        ],
    );
    let other = default(
        "",
        "Service",
        json!({"spec": {"type": "ClusterIP"}, "status": status}),
    );
    check(
        &other,
        &[("/status/loadBalancer/ingress/0/ipMode", Value::Null)],
    );
}

#[test]
fn endpoint_slice_port_has_an_empty_name_and_tcp() {
    let slice = default(
        "discovery.k8s.io",
        "EndpointSlice",
        json!({"ports": [{"port": 1}]}),
    );
    check(
        &slice,
        &[(
            "/ports/0",
            json!({"name": "", "port": 1, "protocol": "TCP"}),
        )],
    );
}
