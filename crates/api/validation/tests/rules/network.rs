//! Services, endpoints and the group `networking.k8s.io`.

use super::{Name, build, create, merge, update};
use serde_json::{Value, json};

const SERVICE: Name = ("", "Service");
const INGRESS: Name = ("networking.k8s.io", "Ingress");
const INGRESS_CLASS: Name = ("networking.k8s.io", "IngressClass");
const NETWORK_POLICY: Name = ("networking.k8s.io", "NetworkPolicy");
const ENDPOINT_SLICE: Name = ("discovery.k8s.io", "EndpointSlice");

fn service(change: Value) -> Value {
    let mut spec = json!({"ports": [{"port": 80}]});
    merge(&mut spec, change);
    json!({"spec": spec})
}

fn ingress(path: Value) -> Value {
    let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
    let mut full = json!({"path": "/", "pathType": "Prefix", "backend": backend});
    merge(&mut full, path);
    json!({"spec": {"rules": [{"http": {"paths": [full]}}]}})
}

fn slice(endpoint: Value, ports: Value) -> Value {
    json!({"addressType": "IPv4", "endpoints": [endpoint], "ports": ports})
}

#[test]
fn service_needs_a_port_unless_it_is_headless() {
    create(
        SERVICE,
        service(json!({"ports": []})),
        &["spec.ports: Required value"],
    );
    create(
        SERVICE,
        service(json!({"ports": [], "clusterIP": "None"})),
        &[],
    );
}

#[test]
fn several_ports_need_names() {
    create(
        SERVICE,
        service(json!({"ports": [{"port": 80}, {"port": 81, "name": "b"}]})),
        &["spec.ports[0].name: Required value"],
    );
}

#[test]
fn ports_of_a_service_are_unique_by_number_and_protocol() {
    let port = |name: &str, protocol: &str| json!({"name": name, "port": 53, "protocol": protocol});
    create(
        SERVICE,
        service(json!({"ports": [port("a", "TCP"), port("b", "UDP")]})),
        &[],
    );
    create(
        SERVICE,
        service(json!({"ports": [port("a", "TCP"), port("b", "TCP")]})),
        &["spec.ports[1]: Duplicate value: "],
    );
}

#[test]
fn port_number_is_in_range() {
    create(
        SERVICE,
        service(json!({"ports": [{"port": 70000, "targetPort": 80}]})),
        &["spec.ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive"],
    );
}

#[test]
fn node_port_needs_a_type_that_has_one() {
    create(
        SERVICE,
        service(json!({"ports": [{"port": 80, "nodePort": 30000}]})),
        &["spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"],
    );
}

#[test]
fn type_of_a_service_is_known() {
    create(
        SERVICE,
        service(json!({"type": "Magic"})),
        &[
            "spec.type: Unsupported value: \"Magic\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\"",
        ],
    );
}

#[test]
fn external_name_is_required_and_a_dns_name() {
    create(
        SERVICE,
        json!({"spec": {"type": "ExternalName"}}),
        &["spec.externalName: Required value"],
    );
    create(
        SERVICE,
        json!({"spec": {"type": "ExternalName", "externalName": "a_b"}}),
        &["spec.externalName: Invalid value: \"a_b\": a lowercase RFC 1123 subdomain must"],
    );
    create(
        SERVICE,
        json!({"spec": {"type": "ExternalName", "externalName": "a.example."}}),
        &[],
    );
}

#[test]
fn node_port_service_is_not_headless() {
    create(
        SERVICE,
        service(json!({"type": "NodePort", "clusterIP": "None"})),
        &[
            "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for NodePort services",
        ],
    );
}

#[test]
fn affinity_timeout_is_at_most_a_day() {
    let config = json!({"clientIP": {"timeoutSeconds": 86401}});
    create(
        SERVICE,
        service(json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": config})),
        &[
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 86401: must be greater than 0 and less than 86400",
        ],
    );
}

#[test]
fn traffic_policy_is_for_services_reached_from_outside() {
    create(
        SERVICE,
        service(json!({"externalTrafficPolicy": "Local"})),
        &[
            "spec.externalTrafficPolicy: Invalid value: \"Local\": may only be set for externally-accessible services",
        ],
    );
    create(
        SERVICE,
        service(json!({"type": "NodePort", "externalTrafficPolicy": "Far"})),
        &[
            "spec.externalTrafficPolicy: Unsupported value: \"Far\": supported values: \"Cluster\", \"Local\"",
        ],
    );
}

#[test]
fn source_ranges_and_class_are_for_load_balancers() {
    create(
        SERVICE,
        service(json!({"loadBalancerSourceRanges": ["10.0.0.0/8"], "loadBalancerClass": "a/b"})),
        &[
            "spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
            "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
        ],
    );
}

#[test]
fn external_addresses_are_reachable() {
    create(
        SERVICE,
        service(json!({"externalIPs": ["127.0.0.1", "x"]})),
        &[
            "spec.externalIPs[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
            "spec.externalIPs[1]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ],
    );
}

#[test]
fn cluster_ip_does_not_change() {
    let old = build(
        SERVICE,
        service(json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]})),
    );
    update(
        SERVICE,
        &old,
        json!({"spec": {"clusterIP": "10.0.0.2", "clusterIPs": ["10.0.0.2"]}}),
        &["spec.clusterIPs[0]: Invalid value: [\"10.0.0.2\"]: may not change once set"],
    );
}

#[test]
fn ip_families_are_known_and_unique() {
    create(
        SERVICE,
        service(json!({"ipFamilies": ["IPv4", "IPv4"]})),
        &["spec.ipFamilies[1]: Duplicate value: \"IPv4\""],
    );
    create(
        SERVICE,
        service(json!({"ipFamilies": ["IPv5"]})),
        &["spec.ipFamilies[0]: Unsupported value: \"IPv5\": supported values: \"IPv4\", \"IPv6\""],
    );
}

#[test]
fn ingress_has_a_backend_or_rules() {
    create(INGRESS, json!({"spec": {}}), &["spec: Invalid value: "]);
}

#[test]
fn ingress_path_has_a_type_and_is_absolute() {
    create(
        INGRESS,
        ingress(json!({"pathType": null})),
        &["spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified"],
    );
    create(
        INGRESS,
        ingress(json!({"path": "a"})),
        &["spec.rules[0].http.paths[0].path: Invalid value: \"a\": must be an absolute path"],
    );
    create(
        INGRESS,
        ingress(json!({"path": "/a//b"})),
        &["spec.rules[0].http.paths[0].path: Invalid value: \"/a//b\": must not contain '//'"],
    );
}

#[test]
fn ingress_backend_names_a_port() {
    create(
        INGRESS,
        ingress(json!({"backend": {"service": {"port": null}}})),
        &["spec.rules[0].http.paths[0].backend: Required value: port name or number is required"],
    );
    create(
        INGRESS,
        ingress(json!({"backend": {"service": {"port": {"name": "a"}}}})),
        &[
            "spec.rules[0].http.paths[0].backend: Invalid value: \"\": cannot set both port name & port number",
        ],
    );
}

#[test]
fn ingress_host_is_a_name() {
    let rule = |host: &str| {
        let mut object = ingress(json!({}));
        object["spec"]["rules"][0]["host"] = host.into();
        object
    };
    create(INGRESS, rule("*.example.com"), &[]);
    create(
        INGRESS,
        rule("10.0.0.1"),
        &["spec.rules[0].host: Invalid value: \"10.0.0.1\": must be a DNS name, not an IP address"],
    );
    create(
        INGRESS,
        rule("a.*.com"),
        &["spec.rules[0].host: Invalid value: \"a.*.com\": a wildcard DNS-1123 subdomain must"],
    );
}

#[test]
fn controller_of_an_ingress_class_is_prefixed_and_fixed() {
    create(
        INGRESS_CLASS,
        json!({"spec": {"controller": "nginx"}}),
        &[
            "spec.controller: Invalid value: \"nginx\": must be a domain-prefixed path (such as \"acme.io/foo\")",
        ],
    );
    let old = build(INGRESS_CLASS, json!({"spec": {"controller": "a.io/b"}}));
    update(
        INGRESS_CLASS,
        &old,
        json!({"spec": {"controller": "a.io/c"}}),
        &["spec.controller: Invalid value: \"a.io/c\": field is immutable"],
    );
}

#[test]
fn network_policy_peer_is_a_block_or_selectors() {
    let peer = |peer: Value| json!({"spec": {"podSelector": {}, "ingress": [{"from": [peer]}]}});
    create(
        NETWORK_POLICY,
        peer(json!({})),
        &["spec.ingress[0].from[0]: Required value: must specify a peer"],
    );
    create(
        NETWORK_POLICY,
        peer(json!({"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}})),
        &["spec.ingress[0].from[0]: Forbidden: may not specify both ipBlock and another peer"],
    );
}

#[test]
fn excepted_block_is_inside_its_block() {
    let block = json!({"cidr": "10.0.0.0/16", "except": ["10.1.0.0/24"]});
    create(
        NETWORK_POLICY,
        json!({"spec": {"podSelector": {}, "egress": [{"to": [{"ipBlock": block}]}]}}),
        &[
            "spec.egress[0].to[0].ipBlock.except[0]: Invalid value: \"10.1.0.0/24\": must be a strict subset of `cidr`",
        ],
    );
}

#[test]
fn end_port_follows_the_port() {
    let ports = json!([{"port": 90, "endPort": 80}]);
    create(
        NETWORK_POLICY,
        json!({"spec": {"podSelector": {}, "ingress": [{"ports": ports}]}}),
        &[
            "spec.ingress[0].ports[0].endPort: Invalid value: 90: must be greater than or equal to `port`",
        ],
    );
}

#[test]
fn endpoint_has_addresses_of_the_slices_type() {
    create(
        ENDPOINT_SLICE,
        slice(json!({"addresses": []}), json!([])),
        &["endpoints[0].addresses: Required value: must contain at least 1 address"],
    );
    create(
        ENDPOINT_SLICE,
        slice(json!({"addresses": ["fd00::1"]}), json!([])),
        &["endpoints[0].addresses: Invalid value: \"fd00::1\": must be an IPv4 address"],
    );
}

#[test]
fn ports_of_a_slice_have_unique_names() {
    create(
        ENDPOINT_SLICE,
        slice(
            json!({"addresses": ["10.0.0.1"]}),
            json!([{"port": 1}, {"port": 2}]),
        ),
        &["ports[1].name: Duplicate value: \"\""],
    );
}

#[test]
fn address_type_does_not_change() {
    let old = build(
        ENDPOINT_SLICE,
        slice(json!({"addresses": ["10.0.0.1"]}), json!([])),
    );
    update(
        ENDPOINT_SLICE,
        &old,
        json!({"addressType": "IPv6", "endpoints": []}),
        &["addressType: Invalid value: \"IPv6\": field is immutable"],
    );
}
