#![allow(clippy::unwrap_used)]
use super::*;
use client::DynamicObject;
use http::{HeaderMap, Method};
use serde::de::DeserializeOwned;

use crate::backend::BackendSet;
use crate::table::Scheme;

#[path = "own_address_tests.rs"]
mod own_addresses;

fn metadata(namespace: &str, name: &str, created: u8) -> Value {
    json!({"namespace": namespace, "name": name, "generation": 1, "resourceVersion": "1",
        "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z")})
}

fn ingress(namespace: &str, name: &str, created: u8, host: &str, secret: &str) -> Arc<Ingress> {
    let backend = json!({"service": {"name": name, "port": {"number": 80}}});
    let object = json!({"metadata": metadata(namespace, name, created), "spec": {
        "ingressClassName": "own", "tls": [{"secretName": secret}],
        "rules": [{"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}]}});
    Arc::new(serde_json::from_value(object).unwrap())
}

fn decode<S: DeserializeOwned>(metadata: Value, spec: Value) -> GatewayObject<S> {
    let object = json!({"metadata": metadata, "spec": spec});
    GatewayObject::decode(&serde_json::from_value::<DynamicObject>(object).unwrap())
}

fn gateway(namespace: &str, name: &str, created: u8, host: &str) -> GatewayObject<GatewaySpec> {
    let listener = json!({"name": "http", "port": 80, "protocol": "HTTP", "hostname": host,
        "allowedRoutes": {"namespaces": {"from": "All"}}});
    let spec = json!({"gatewayClassName": "own", "listeners": [listener]});
    decode(metadata(namespace, name, created), spec)
}

fn route(
    namespace: &str,
    name: &str,
    created: u8,
    parent: &str,
    host: &str,
) -> GatewayObject<HttpRouteSpec> {
    let (parent_namespace, parent) = parent.split_once('/').unwrap();
    let spec = json!({"parentRefs": [{"name": parent, "namespace": parent_namespace}], "hostnames": if host.is_empty() { vec![] } else { vec![host] },
        "rules": [{"backendRefs": [{"name": name, "port": 80}]}]});
    decode(metadata(namespace, name, created), spec)
}

fn compile_all(
    objects: Objects,
    owners: &HostOwners,
    certificates: &Certificates,
) -> (Compiled, BackendSet) {
    let objects = Objects {
        are_complete: true,
        ..objects
    };
    compile_with_services(objects, owners, certificates, &GatewayServices::default())
}

fn compile_with_services(
    objects: Objects,
    owners: &HostOwners,
    certificates: &Certificates,
    services: &GatewayServices,
) -> (Compiled, BackendSet) {
    let class = json!({"metadata": {"name": "own"}, "spec": {"controller": "me"}});
    let gateway_class = decode(json!({"name": "own"}), json!({"controllerName": "me"}));
    let objects = Objects {
        ingress_classes: vec![Arc::new(serde_json::from_value(class).unwrap())],
        gateway_classes: [objects.gateway_classes, vec![gateway_class]].concat(),
        ..objects
    };
    let service: Service =
        serde_json::from_value(json!({"spec": {"ports": [{"port": 80}]}})).unwrap();
    let service = Arc::new(service);
    let context = Context {
        controller: "me",
        ports: Ports {
            http: 80,
            https: 443,
        },
        addresses: &[Address::Ip("192.0.2.1".into())],
        services,
        certificates,
        find_service: &|_| Some(service.clone()),
        owners,
        now: "2026-01-01T00:00:00Z",
    };
    let mut backends = NextBackends::default();
    let compiled = compile(objects, &context, &mut backends);
    (compiled, backends.finish())
}

/// Returns the name of the object whose rule a host has.
fn find_owner(compiled: &Compiled, host: &str) -> Option<String> {
    let uri = "/".parse().unwrap();
    let found = compiled
        .table
        .find_rule(Scheme::Http, host, &Method::GET, &uri, &HeaderMap::new());
    found.map(|rule| rule.age.key.clone())
}

fn reason_of(compiled: &Compiled, kind: StatusKind, name: &str) -> String {
    let change = compiled
        .statuses
        .iter()
        .find(|change| change.kind == kind && change.name == name);
    let status = &change.unwrap().status;
    let conditions = match kind {
        StatusKind::HttpRoute => &status["parents"][0]["conditions"],
        _ => &status["listeners"][0]["conditions"],
    };
    conditions[0]["reason"].as_str().unwrap().to_owned()
}

fn check_owner(case: &str, objects: Objects, host: &str, owner: &str) {
    let (compiled, _) = compile_all(objects, &HostOwners::default(), &Certificates::new());
    assert_eq!(
        find_owner(&compiled, host).as_deref(),
        Some(owner),
        "{case}"
    );
}

#[test]
fn ingresses_and_gateways_do_not_take_hosts_of_each_other() {
    let old_ingress = || vec![ingress("a", "i", 1, "x.com", "s")];
    let listener = Objects {
        ingresses: old_ingress(),
        gateways: vec![gateway("b", "g", 2, "x.com")],
        routes: vec![route("b", "r", 3, "b/g", "x.com")],
        ..Objects::default()
    };
    check_owner("listener", listener, "x.com", "a/i");
    let attached = Objects {
        ingresses: old_ingress(),
        gateways: vec![gateway("b", "g", 0, "")],
        routes: vec![route("b", "r", 3, "b/g", "x.com")],
        ..Objects::default()
    };
    check_owner("route", attached, "x.com", "a/i");
    let below_wildcard = Objects {
        ingresses: vec![ingress("b", "i", 2, "y.x.com", "s")],
        gateways: vec![gateway("a", "g", 1, "*.x.com")],
        routes: vec![route("a", "r", 3, "a/g", "y.x.com")],
        ..Objects::default()
    };
    check_owner("wildcard", below_wildcard, "y.x.com", "a/r");
}

#[test]
fn gateways_share_hosts_inside_of_a_namespace_only() {
    let below_wildcard = Objects {
        gateways: vec![
            gateway("a", "g", 1, "*.x.com"),
            gateway("b", "g", 2, "y.x.com"),
        ],
        routes: vec![
            route("b", "r", 2, "b/g", "y.x.com"),
            route("a", "r", 3, "a/g", ""),
        ],
        ..Objects::default()
    };
    check_owner("wildcard", below_wildcard, "y.x.com", "a/r");
    let by_routes = Objects {
        gateways: vec![gateway("a", "g", 1, ""), gateway("b", "g", 2, "")],
        routes: vec![
            route("b", "r", 3, "b/g", "y.x.com"),
            route("a", "r", 4, "a/g", "y.x.com"),
        ],
        ..Objects::default()
    };
    check_owner("listeners for all hosts", by_routes, "y.x.com", "b/r");
    let one_gateway = Objects {
        gateways: vec![gateway("a", "g", 1, "")],
        routes: vec![
            route("c", "r", 4, "a/g", "y.x.com"),
            route("b", "r", 3, "a/g", "y.x.com"),
        ],
        ..Objects::default()
    };
    check_owner("one Gateway", one_gateway, "y.x.com", "b/r");
}

#[test]
fn refused_hosts_have_a_reason_in_the_status() {
    let objects = Objects {
        ingresses: vec![
            ingress("a", "i", 1, "x.com", "s"),
            ingress("b", "late", 3, "x.com", "s"),
        ],
        gateways: vec![
            gateway("b", "taken", 2, "x.com"),
            gateway("b", "all", 2, ""),
        ],
        routes: vec![
            route("b", "taken", 3, "b/all", "x.com"),
            route("b", "free", 3, "b/all", "y.com"),
        ],
        ..Objects::default()
    };
    let (compiled, _) = compile_all(objects, &HostOwners::default(), &Certificates::new());
    assert_eq!(
        reason_of(&compiled, StatusKind::Gateway, "taken"),
        "HostnameConflict"
    );
    assert_eq!(reason_of(&compiled, StatusKind::Gateway, "all"), "Accepted");
    assert_eq!(
        reason_of(&compiled, StatusKind::HttpRoute, "taken"),
        "HostnameConflict"
    );
    assert_eq!(
        reason_of(&compiled, StatusKind::HttpRoute, "free"),
        "Accepted"
    );
    let refused: Vec<&str> = compiled
        .refused
        .iter()
        .map(|refused| refused.ingress.name())
        .collect();
    assert_eq!(refused, ["late"]);
    assert_eq!(compiled.refused[0].problems[0].reason, "HostConflict");
    let written: Vec<&str> = compiled
        .statuses
        .iter()
        .filter(|change| change.kind == StatusKind::Ingress)
        .map(|change| change.name.as_str())
        .collect();
    assert_eq!(
        written,
        ["i"],
        "an Ingress of which nothing is served has no address"
    );
}

#[test]
fn certificate_for_a_host_is_that_of_its_owner() {
    let key = |namespace: &str| SecretKey {
        namespace: namespace.into(),
        name: "s".into(),
    };
    let certificate = || {
        Ok(Arc::new(
            base_tls::self_signed_key(vec!["x.com".into()]).unwrap(),
        ))
    };
    let certificates = Certificates::from([(key("a"), certificate()), (key("b"), certificate())]);
    let objects = Objects {
        ingresses: vec![
            ingress("b", "i", 2, "x.com", "s"),
            ingress("a", "i", 1, "x.com", "s"),
        ],
        ..Objects::default()
    };
    let (compiled, _) = compile_all(objects, &HostOwners::default(), &certificates);
    assert_eq!(
        compiled.secrets,
        [key("a")],
        "a refused host needs no Secret"
    );
    let found = compiled.table.find_certificate("x.com").unwrap();
    assert!(Arc::ptr_eq(
        &found,
        certificates[&key("a")].as_ref().unwrap()
    ));
}

#[test]
fn wildcard_of_another_namespace_gets_no_older_host_of_a_listener_for_all_hosts() {
    let key = |namespace: &str| SecretKey {
        namespace: namespace.into(),
        name: "s".into(),
    };
    let certificate = || {
        let names = vec!["*.x.com".into()];
        Ok(Arc::new(base_tls::self_signed_key(names).unwrap()))
    };
    let certificates = Certificates::from([(key("a"), certificate()), (key("b"), certificate())]);
    let owner = |secure: bool| {
        let mut listener = json!({"name": "l", "port": 80, "protocol": "HTTP"});
        if secure {
            listener = json!({"name": "l", "port": 443, "protocol": "HTTPS",
                "tls": {"certificateRefs": [{"name": "s"}]}});
        }
        decode(
            metadata("a", if secure { "tls" } else { "plain" }, 1),
            json!({"gatewayClassName": "own", "listeners": [listener]}),
        )
    };
    for (case, host) in [("one label", "*.x.com"), ("all hosts", "")] {
        let objects = Objects {
            ingresses: vec![ingress("b", "i", 5, host, "s")],
            gateways: vec![owner(false), owner(true)],
            routes: vec![
                route("a", "shop", 2, "a/plain", "shop.x.com"),
                route("a", "secure", 2, "a/tls", "shop.x.com"),
            ],
            ..Objects::default()
        };
        let (compiled, _) = compile_all(objects, &HostOwners::default(), &certificates);
        for (host, route, namespace) in [("shop.x.com", "a/shop", "a"), ("y.x.com", "b/i", "b")] {
            assert_eq!(
                find_owner(&compiled, host).as_deref(),
                Some(route),
                "{case}"
            );
            let found = compiled.table.find_certificate(host).unwrap();
            let own = certificates[&key(namespace)].as_ref().unwrap();
            assert!(Arc::ptr_eq(&found, own), "{case}: certificate of {host}");
        }
    }
}

#[test]
fn listener_of_another_namespace_gets_no_older_host_below_it() {
    let objects = Objects {
        gateways: vec![gateway("a", "g", 1, ""), gateway("b", "g", 3, "*.x.com")],
        routes: vec![
            route("a", "r", 2, "a/g", "shop.x.com"),
            route("b", "r", 4, "b/g", ""),
        ],
        ..Objects::default()
    };
    check_owner("listener", objects, "shop.x.com", "a/r");
}

#[test]
fn route_with_too_many_rules_for_its_hosts_is_refused_and_costs_no_other() {
    let matches: Vec<Value> = (0..64)
        .map(|n| json!({"path": {"value": format!("/{n}")}}))
        .collect();
    let hostnames: Vec<String> = (0..16).map(|n| format!("h{n}.com")).collect();
    let rules = vec![json!({"matches": matches}); 16];
    // Repeated parents are one.
    let parents = vec![json!({"name": "g", "namespace": "a"}); 32];
    let spec = json!({"parentRefs": parents, "hostnames": hostnames, "rules": rules});
    let objects = Objects {
        gateways: vec![gateway("a", "g", 1, "")],
        routes: vec![
            decode(metadata("b", "large", 2), spec),
            route("b", "small", 3, "a/g", "h1.com"),
        ],
        ..Objects::default()
    };
    let (compiled, _) = compile_all(objects, &HostOwners::default(), &Certificates::new());
    let small = find_owner(&compiled, "h1.com");
    assert_eq!(small.as_deref(), Some("b/small"), "both have one Gateway");
    let reason = |name| reason_of(&compiled, StatusKind::HttpRoute, name);
    assert_eq!(
        (reason("large"), reason("small")),
        ("TooManyRules".into(), "Accepted".into())
    );
    assert_eq!(compiled.table.rule_count(), 1);
}

#[test]
fn condition_names_a_host_without_room_for_all_rules_of_the_route() {
    let matches: Vec<Value> = (0..64)
        .map(|n| json!({"path": {"value": format!("/{n}")}}))
        .collect();
    let large = |n: u8| {
        let rules = vec![json!({"matches": matches}); 16];
        let parents = [json!({"name": "g", "namespace": "a"})];
        let spec = json!({"parentRefs": parents, "hostnames": ["x.com"], "rules": rules});
        decode(metadata("b", &format!("r{n}"), n), spec)
    };
    let objects = Objects {
        gateways: vec![gateway("a", "g", 1, "")],
        routes: (2..7).map(large).collect(),
        ..Objects::default()
    };
    let (compiled, _) = compile_all(objects, &HostOwners::default(), &Certificates::new());
    for n in 2..7 {
        let name = format!("r{n}");
        let mut changes = compiled.statuses.iter();
        let change = changes.find(|change| change.name == name).unwrap();
        let condition = &change.status["parents"][0]["conditions"][0];
        let message = condition["message"].as_str().unwrap();
        assert_eq!(message.contains("x.com"), n == 6, "{name}: {message}");
    }
}

/// Rules of others may use up the limits, and must not win hosts by that.
#[test]
fn owner_keeps_its_host_while_its_rules_are_beyond_a_limit() {
    let filling = (0..6).map(|n| {
        let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
        let path = json!({"path": "/", "pathType": "Prefix", "backend": backend});
        let rule = json!({"host": format!("f{n}.com"), "http": {"paths": vec![path; 2000]}});
        let spec = json!({"ingressClassName": "own", "rules": [rule]});
        let object = json!({"metadata": metadata("a", &format!("f{n}"), 1), "spec": spec});
        Arc::new(serde_json::from_value(object).unwrap())
    });
    let late = [
        ingress("a", "late", 2, "x.com", "s"),
        ingress("b", "i", 3, "x.com", "s"),
    ];
    let matches: Vec<Value> = (0..64)
        .map(|n| json!({"path": {"value": format!("/{n}")}}))
        .collect();
    let hostnames: Vec<String> = (0..16).map(|n| format!("h{n}.com")).collect();
    let rules = vec![json!({"matches": matches}); 16];
    let parents = [json!({"name": "g"})];
    let spec = json!({"parentRefs": parents, "hostnames": hostnames, "rules": rules});
    let objects = Objects {
        ingresses: filling
            .chain(late)
            .chain([ingress("b", "j", 5, "h1.com", "s")])
            .collect(),
        gateways: vec![gateway("c", "g", 1, "")],
        routes: vec![decode(metadata("c", "large", 2), spec)],
        ..Objects::default()
    };
    let (compiled, _) = compile_all(objects, &HostOwners::default(), &Certificates::new());
    for (host, owner) in [("x.com", "a"), ("h1.com", "c")] {
        assert_eq!(find_owner(&compiled, host), None, "{host}");
        let host = HostPattern::parse_ingress(host).unwrap();
        let found = compiled.owners.find_other_owner(&host, "");
        assert_eq!(found, Some(owner), "{host}");
    }
}

#[test]
fn owner_keeps_its_host_while_its_route_is_refused() {
    let broken = json!({"parentRefs": [{"name": "g", "namespace": "a"}], "hostnames": ["x.com"],
        "rules": [{"filters": [{"type": "Unknown"}]}]});
    let objects = Objects {
        ingresses: vec![ingress("b", "i", 5, "x.com", "s")],
        gateways: vec![gateway("a", "g", 1, "")],
        routes: vec![decode(metadata("a", "r", 2), broken)],
        ..Objects::default()
    };
    let (compiled, _) = compile_all(objects, &HostOwners::default(), &Certificates::new());
    assert_eq!(find_owner(&compiled, "x.com"), None);
    assert_eq!(compiled.refused.len(), 1);
}

#[test]
fn secrets_of_one_namespace_are_limited() {
    let many = (0..50).map(|n| {
        ingress(
            "a",
            &format!("i{n}"),
            1,
            &format!("h{n}.com"),
            &format!("s{n}"),
        )
    });
    let objects = Objects {
        ingresses: many.chain([ingress("b", "i", 2, "b.com", "s")]).collect(),
        ..Objects::default()
    };
    let (compiled, _) = compile_all(objects, &HostOwners::default(), &Certificates::new());
    let count = |namespace: &str| {
        compiled
            .secrets
            .iter()
            .filter(|key| key.namespace == namespace)
            .count()
    };
    assert_eq!((count("a"), count("b")), (MAX_SECRETS_OF_NAMESPACE, 1));
}

#[test]
fn secrets_of_older_objects_come_first_for_both_kinds() {
    let listener = |n: u8| {
        let listeners = [json!({"name": "l", "port": 443, "protocol": "HTTPS",
            "tls": {"certificateRefs": [{"name": format!("g{n}")}]}})];
        let spec = json!({"gatewayClassName": "own", "listeners": listeners});
        decode(metadata("a", &format!("g{n}"), 5), spec)
    };
    let objects = Objects {
        ingresses: vec![ingress("a", "i", 1, "x.com", "old")],
        gateways: (0..40).map(listener).collect(),
        ..Objects::default()
    };
    let (compiled, _) = compile_all(objects, &HostOwners::default(), &Certificates::new());
    assert_eq!(compiled.secrets.len(), MAX_SECRETS_OF_NAMESPACE);
    assert_eq!(compiled.secrets[0].name, "old");
}

#[test]
fn status_that_is_stored_already_is_not_written_again() {
    let objects = || Objects {
        gateways: vec![gateway("a", "g", 1, "")],
        routes: vec![route("a", "r", 1, "a/g", "x.com")],
        ..Objects::default()
    };
    let (first, _) = compile_all(objects(), &HostOwners::default(), &Certificates::new());
    let stored = |kind| {
        first
            .statuses
            .iter()
            .find(|change| change.kind == kind)
            .unwrap()
            .status
            .clone()
    };
    let mut again = objects();
    again.gateways[0].status = stored(StatusKind::Gateway);
    again.routes[0].status = stored(StatusKind::HttpRoute);
    let foreign = json!({"controllerName": "other", "parentRef": {"name": "g"}, "conditions": []});
    let parents = again.routes[0].status["parents"].as_array_mut().unwrap();
    parents.insert(0, foreign);
    let (second, _) = compile_all(again, &HostOwners::default(), &Certificates::new());
    let kinds: Vec<StatusKind> = second.statuses.iter().map(|change| change.kind).collect();
    assert_eq!(kinds, [StatusKind::GatewayClass]);
    assert_eq!(
        stored(StatusKind::Gateway)["listeners"][0]["attachedRoutes"],
        1
    );
    assert_eq!(
        first
            .statuses
            .iter()
            .filter(|c| c.namespace.is_empty())
            .count(),
        1
    );
}

#[test]
fn status_of_a_route_without_a_parent_loses_the_entry_of_this_controller_only() {
    let entry = |controller: &str| json!({"controllerName": controller, "parentRef": {"name": "g"}, "conditions": []});
    let mut left = route("a", "r", 1, "a/gone", "x.com");
    left.status = json!({"parents": [entry("me"), entry("other")]});
    let mut foreign = route("a", "f", 1, "a/gone", "x.com");
    foreign.status = json!({"parents": [entry("other")]});
    let objects = Objects {
        routes: vec![left, foreign],
        ..Objects::default()
    };
    let (compiled, _) = compile_all(objects, &HostOwners::default(), &Certificates::new());
    let of_routes = compiled.statuses.iter();
    let of_routes = of_routes.filter(|change| change.kind == StatusKind::HttpRoute);
    let written: Vec<(&str, &Value)> = of_routes
        .map(|change| (change.name.as_str(), &change.status["parents"]))
        .collect();
    assert_eq!(written, [("r", &json!([entry("other")]))]);
}

fn policy(namespace: &str, service: &str) -> TlsPolicies {
    let target = json!({"group": "", "kind": "Service", "name": service});
    TlsPolicies::of_objects(&[decode(
        metadata(namespace, "p", 1),
        json!({"targetRefs": [target], "validation": {"hostname": "a.com"}}),
    )])
}

#[test]
fn service_that_needs_tls_is_no_backend() {
    let objects = || Objects {
        ingresses: vec![ingress("n", "i", 1, "i.com", "s")],
        gateways: vec![gateway("n", "g", 1, "g.com")],
        routes: vec![route("n", "r", 2, "n/g", "g.com")],
        ..Objects::default()
    };
    for (policies, has_backend) in [
        (TlsPolicies::default(), [true, true]),
        (policy("n", "i"), [false, true]),
        (policy("n", "r"), [true, false]),
        (policy("other", "r"), [true, true]),
    ] {
        let case = format!("{policies:?}");
        let objects = Objects {
            tls_policies: policies,
            ..objects()
        };
        let (compiled, _) = compile_all(objects, &HostOwners::default(), &Certificates::new());
        let found = ["i.com", "g.com"].map(|host| {
            let (uri, headers) = ("/".parse().unwrap(), HeaderMap::new());
            let rule = compiled
                .table
                .find_rule(Scheme::Http, host, &Method::GET, &uri, &headers);
            rule.unwrap().action.backends[0].backend.is_some()
        });
        assert_eq!(found, has_backend, "{case}");
        assert_eq!(compiled.refused.is_empty(), has_backend[0], "{case}");
        let route = compiled.statuses.iter().find(|change| change.name == "r");
        let resolved = &route.unwrap().status["parents"][0]["conditions"][1];
        let reason = if has_backend[1] {
            "ResolvedRefs"
        } else {
            "UnsupportedProtocol"
        };
        assert_eq!(resolved["reason"], reason, "{case}");
    }
}

/// Each field is one that the API server accepts with the definitions of the Gateway API project,
/// or one of a later release.
#[test]
fn field_that_is_not_supported_refuses_its_object() {
    let base = json!({"parentRefs": [{"name": "g"}], "rules": [{}]});
    for (path, value, field) in [
        ("/useDefaultGateways", json!("All"), "useDefaultGateways"),
        ("/rules/0/retry", json!({"attempts": 3}), "retry"),
        (
            "/rules/0/sessionPersistence",
            json!({}),
            "sessionPersistence",
        ),
        ("/rules/0/timeouts", json!({"idle": "1s"}), "idle"),
        ("/rules/0/matches", json!([{"body": "x"}]), "body"),
        (
            "/rules/0/backendRefs",
            json!([{"name": "s", "port": 80, "zone": "a"}]),
            "zone",
        ),
        (
            "/rules/0/filters",
            json!([{"type": "CORS", "cors": {}}]),
            "CORS",
        ),
        (
            "/rules/0/filters",
            json!([{"type": "ExternalAuth"}]),
            "ExternalAuth",
        ),
    ] {
        let mut spec = base.clone();
        let (parent, name) = path.rsplit_once('/').unwrap();
        spec.pointer_mut(parent).unwrap()[name] = value;
        let objects = Objects {
            gateways: vec![gateway("n", "g", 1, "")],
            routes: vec![decode(metadata("n", "r", 2), spec.clone())],
            ..Objects::default()
        };
        let (compiled, _) = compile_all(objects, &HostOwners::default(), &Certificates::new());
        let route = compiled.statuses.iter().find(|change| change.name == "r");
        let accepted = &route.unwrap().status["parents"][0]["conditions"][0];
        assert_eq!(accepted["reason"], "UnsupportedValue", "{spec}");
        let message = accepted["message"].as_str().unwrap();
        assert!(message.contains(field), "{spec}: {message}");
    }
}

#[test]
fn field_of_a_gateway_is_refused_or_its_message_names_it() {
    let listener = |more: Value| {
        let mut listener = json!({"name": "l", "port": 443, "protocol": "HTTPS",
            "tls": {"certificateRefs": [{"name": "s"}]}});
        for (name, value) in more.as_object().unwrap() {
            listener[name] = value.clone();
        }
        json!({"gatewayClassName": "own", "listeners": [listener]})
    };
    let gateway = |more: Value| {
        let mut spec = json!({"gatewayClassName": "own", "listeners": [
            {"name": "l", "port": 80, "protocol": "HTTP"}]});
        for (name, value) in more.as_object().unwrap() {
            spec[name] = value.clone();
        }
        spec
    };
    for (spec, place, reason, text) in [
        (gateway(json!({})), "/conditions/0", "Accepted", ""),
        (
            gateway(json!({"allowedListeners": {"namespaces": {"from": "None"}}})),
            "/conditions/0",
            "Accepted",
            "",
        ),
        (
            gateway(json!({"allowedListeners": {"namespaces": {"from": "All"}}})),
            "/conditions/0",
            "Accepted",
            "allowedListeners",
        ),
        (
            gateway(json!({"infrastructure": {"labels": {"a": "b"}}})),
            "/conditions/0",
            "Accepted",
            "infrastructure",
        ),
        (
            gateway(json!({"infrastructure": {"x": 1}})),
            "/conditions/0",
            "Invalid",
            "infrastructure: x",
        ),
        (
            gateway(json!({"addresses": [{"type": "IPAddress"}]})),
            "/conditions/0",
            "Accepted",
            "",
        ),
        (
            gateway(json!({"addresses": [{"type": "IPAddress", "value": "192.0.2.1"}]})),
            "/conditions/0",
            "UnsupportedAddress",
            "spec.addresses",
        ),
        (
            gateway(json!({"tls": {"frontend": {}}})),
            "/conditions/0",
            "Invalid",
            "spec.tls",
        ),
        (
            gateway(json!({"defaultScope": "All"})),
            "/conditions/0",
            "Invalid",
            "defaultScope",
        ),
        (
            listener(json!({"tls": {"options": {"example.com/min": "1.3"}}})),
            "/listeners/0/conditions/0",
            "UnsupportedValue",
            "options",
        ),
        (
            listener(json!({"tls": {"frontendValidation": {}}})),
            "/listeners/0/conditions/0",
            "UnsupportedValue",
            "frontendValidation",
        ),
        (
            listener(json!({"x": 1})),
            "/listeners/0/conditions/0",
            "UnsupportedValue",
            "a listener: x",
        ),
        (
            listener(json!({"allowedRoutes": {"x": 1}})),
            "/listeners/0/conditions/0",
            "UnsupportedValue",
            "allowedRoutes: x",
        ),
    ] {
        let objects = Objects {
            gateways: vec![decode(metadata("n", "g", 1), spec.clone())],
            ..Objects::default()
        };
        let (compiled, _) = compile_all(objects, &HostOwners::default(), &Certificates::new());
        let change = compiled
            .statuses
            .iter()
            .find(|change| change.kind == StatusKind::Gateway);
        let condition = change.unwrap().status.pointer(place).unwrap().clone();
        assert_eq!(condition["reason"], reason, "{spec}");
        let message = condition["message"].as_str().unwrap();
        assert!(
            message.contains(text) && message.is_empty() == text.is_empty(),
            "{spec}: {message}"
        );
    }
}

#[test]
fn listener_of_another_protocol_supports_no_kinds() {
    let spec = json!({"gatewayClassName": "own", "listeners": [
        {"name": "udp", "port": 53, "protocol": "UDP"}]});
    let objects = Objects {
        gateways: vec![decode(metadata("n", "g", 1), spec)],
        ..Objects::default()
    };
    let (compiled, _) = compile_all(objects, &HostOwners::default(), &Certificates::new());
    assert_eq!(
        reason_of(&compiled, StatusKind::Gateway, "g"),
        "UnsupportedProtocol"
    );
    let gateway = compiled
        .statuses
        .iter()
        .find(|change| change.kind == StatusKind::Gateway);
    assert_eq!(
        gateway.unwrap().status["listeners"][0]["supportedKinds"],
        json!([])
    );
}
