//! Gateways with addresses of their own.

use super::*;
use crate::infrastructure::AllowedAnnotations;
use crate::listener_ports::ListenerPortRange;
use crate::placement::Slot;
use crate::port_range::PortRange;

#[path = "own_port_tests.rs"]
mod ports;

/// Services of the gateway's namespace, which the changes of each result are applied to.
#[derive(Default)]
struct Cluster {
    services: HashMap<String, Arc<Service>>,
    range: Option<PortRange>,
    other_ports: Vec<ListenerPortRange>,
    annotations: AllowedAnnotations,
}

impl Cluster {
    /// Returns the gateway's Service with ports for this number of Gateways.
    fn start(gateways: u16) -> Self {
        let mut cluster = Self {
            other_ports: vec!["1-65535".parse().unwrap()],
            range: format!("20000-{}", 20_000 + 2 * gateways - 1).parse().ok(),
            ..Self::default()
        };
        cluster.set_model(json!({"type": "LoadBalancer", "selector": {"app": "gw"},
            "externalTrafficPolicy": "Local", "loadBalancerSourceRanges": ["198.51.100.0/24"],
            "ports": [{"name": "http", "port": 80, "targetPort": "http"}]}));
        cluster
    }

    fn set_model(&mut self, spec: Value) {
        let service = json!({"metadata": {"namespace": "gw", "name": "lb", "annotations": {
            "external-dns.alpha.kubernetes.io/hostname": "*.example.com", "example.com/internal": "yes"}},
            "spec": spec});
        self.insert(serde_json::from_value(service).unwrap());
    }

    fn insert(&mut self, service: Service) {
        self.services.insert(service.key(), Arc::new(service));
    }

    fn read_services(&self) -> GatewayServices {
        let ports = (self.range, self.other_ports.as_slice());
        GatewayServices::read(Some("gw/lb"), &self.annotations, ports, |key| {
            self.services.get(key).cloned()
        })
    }

    fn compile_objects(&self, objects: Objects) -> Compiled {
        let services = self.read_services();
        let (owners, certificates) = (HostOwners::default(), Certificates::new());
        compile_with_services(objects, &owners, &certificates, &services).0
    }

    /// Applies the changes; new Services get an address.
    fn apply_changes(&mut self, compiled: &Compiled) {
        for change in &compiled.services {
            match change {
                ServiceChange::Create(service) => {
                    assert!(!self.services.contains_key(&service.key()));
                    let slot = self.services.len();
                    let mut service = (**service).clone();
                    let status =
                        json!({"loadBalancer": {"ingress": [{"ip": format!("192.0.2.10{slot}")}]}});
                    service.status = serde_json::from_value(status).unwrap();
                    self.insert(service);
                }
                ServiceChange::Update(service) => self.insert((**service).clone()),
                ServiceChange::Delete { service, .. } => {
                    self.services.remove(&service.key());
                }
            }
        }
    }

    /// Compiles the objects, and again with the Services that the first result wants.
    fn settle(&mut self, objects: impl Fn() -> Objects) -> Compiled {
        let first = self.compile_objects(objects());
        self.apply_changes(&first);
        let second = self.compile_objects(objects());
        assert_eq!(second.services, [], "changes must end");
        second
    }
}

fn complete(gateways: Vec<Value>, routes: Vec<GatewayObject<HttpRouteSpec>>) -> Objects {
    let gateways = gateways.into_iter().map(|object| {
        GatewayObject::decode(&serde_json::from_value::<DynamicObject>(object).unwrap())
    });
    Objects {
        gateways: gateways.collect(),
        routes,
        are_complete: true,
        ..Objects::default()
    }
}

/// Returns a Gateway of HTTP, whose UID is its key.
fn named_gateway(namespace: &str, name: &str, created: u8, host: &str) -> Value {
    let mut metadata = metadata(namespace, name, created);
    metadata["uid"] = format!("{namespace}-{name}").into();
    json!({"metadata": metadata, "spec": {"gatewayClassName": "own", "listeners": [
        {"name": "http", "port": 80, "protocol": "HTTP", "hostname": host,
            "allowedRoutes": {"namespaces": {"from": "All"}}}]}})
}

fn find_own<'a>(compiled: &'a Compiled, gateway: &str) -> Option<&'a OwnTable> {
    let mut own = compiled.own_tables.iter();
    own.find(|own| own.gateway == gateway)
}

/// Returns the object whose rule a host has at a Gateway's own address.
fn find_own_rule(compiled: &Compiled, gateway: &str, host: &str) -> Option<String> {
    let uri = "/".parse().unwrap();
    let table = &find_own(compiled, gateway)?.table;
    let found = table.find_rule(Scheme::Http, host, &Method::GET, &uri, &HeaderMap::new());
    found.map(|rule| rule.age.key.clone())
}

/// Returns the reason of the condition `Programmed`, and the addresses.
fn read_status(compiled: &Compiled, name: &str) -> (String, Vec<String>) {
    let mut statuses = compiled.statuses.iter();
    let change = statuses.find(|change| change.kind == StatusKind::Gateway && change.name == name);
    let status = &change.unwrap().status;
    let reason = status["conditions"][1]["reason"].as_str().unwrap();
    let addresses = status["addresses"].as_array().unwrap().iter();
    let values = addresses.map(|address| address["value"].as_str().unwrap().to_owned());
    (reason.to_owned(), values.collect())
}

fn slots(compiled: &Compiled) -> Vec<(&str, Slot)> {
    let own = compiled.own_tables.iter();
    own.map(|own| (own.gateway.as_str(), own.slot)).collect()
}

#[test]
fn gateways_with_the_same_listener_have_different_addresses() {
    let objects = || {
        let gateways = vec![
            named_gateway("a", "new", 2, ""),
            named_gateway("a", "old", 1, ""),
            named_gateway("a", "other", 3, "other.com"),
        ];
        let shared = json!({"parentRefs": [{"name": "old"}, {"name": "new"}], "hostnames": ["x.com"],
            "rules": [{"backendRefs": [{"name": "s", "port": 80}]}]});
        let routes = vec![
            route("a", "of-old", 3, "a/old", ""),
            route("a", "of-new", 3, "a/new", ""),
            decode(metadata("a", "both", 4), shared),
            route("a", "of-other", 5, "a/other", ""),
        ];
        complete(gateways, routes)
    };
    let mut cluster = Cluster::start(2);
    let before = cluster.compile_objects(objects());
    assert_eq!(
        read_status(&before, "new"),
        ("AddressNotAssigned".into(), vec![])
    );
    assert!(before.own_tables.is_empty());
    let after = cluster.settle(objects);
    assert_eq!(slots(&after), [("a-new", 0)]);
    for (host, at_shared, at_own) in [
        ("any.com", "a/of-old", Some("a/of-new")),
        ("x.com", "a/both", Some("a/both")),
        // Listeners with different hostnames share an address.
        ("other.com", "a/of-other", Some("a/of-new")),
    ] {
        assert_eq!(
            find_owner(&after, host).as_deref(),
            Some(at_shared),
            "{host}"
        );
        let own = find_own_rule(&after, "a-new", host);
        assert_eq!(own.as_deref(), at_own, "{host}");
    }
    for (name, address) in [
        ("old", "192.0.2.1"),
        ("other", "192.0.2.1"),
        ("new", "192.0.2.101"),
    ] {
        let want = ("Programmed".to_owned(), vec![address.to_owned()]);
        assert_eq!(read_status(&after, name), want, "{name}");
    }
}

#[test]
fn service_of_a_gateway_is_like_that_of_the_gateway_and_follows_it() {
    let objects = || {
        let mut new = named_gateway("a", "new", 2, "");
        new["spec"]["infrastructure"] = json!({"labels": {"team": "a", "ironclad/gateway-uid": "x"},
            "annotations": {"example.com/internal": "no"}});
        complete(vec![named_gateway("a", "old", 1, ""), new], Vec::new())
    };
    let mut cluster = Cluster::start(2);
    cluster.settle(objects);
    let read = |cluster: &Cluster| serde_json::to_value(&*cluster.services["gw/lb-0"]).unwrap();
    let service = read(&cluster);
    assert_eq!(
        service["metadata"]["annotations"],
        json!({"ironclad/gateway-infrastructure": r#"{"labels":["team"],"annotations":[]}"#})
    );
    assert_eq!(
        service["metadata"]["labels"],
        json!({"team": "a", "ironclad/gateway-uid": "a-new", "ironclad/gateway-namespace": "a",
            "gateway.networking.k8s.io/gateway-name": "new",
            "app.kubernetes.io/managed-by": "ironclad-gateway"})
    );
    assert_eq!(
        service["spec"],
        json!({"type": "LoadBalancer", "selector": {"app": "gw"},
            "externalTrafficPolicy": "Local", "loadBalancerSourceRanges": ["198.51.100.0/24"],
            "ports": [{"name": "http", "port": 80, "targetPort": 20000}]})
    );
    cluster.set_model(json!({"type": "LoadBalancer", "selector": {"app": "gw2"},
        "loadBalancerSourceRanges": ["203.0.113.0/24"]}));
    cluster.settle(objects);
    let service = read(&cluster);
    assert_eq!(service["spec"]["selector"], json!({"app": "gw2"}));
    let ranges = &service["spec"]["loadBalancerSourceRanges"];
    assert_eq!(*ranges, json!(["203.0.113.0/24"]));
    assert_eq!(
        service["status"]["loadBalancer"]["ingress"][0]["ip"],
        "192.0.2.101"
    );
}

#[test]
fn gateways_share_addresses_without_a_load_balancer_or_ports() {
    let objects = || {
        let gateways = vec![
            named_gateway("a", "old", 1, ""),
            named_gateway("a", "new", 2, ""),
        ];
        let routes = vec![route("a", "r", 3, "a/new", "x.com")];
        complete(gateways, routes)
    };
    let mut node_port = Cluster::start(2);
    node_port.set_model(json!({"type": "NodePort"}));
    let mut without_ports = Cluster::start(2);
    without_ports.range = None;
    let without_service = Cluster {
        services: HashMap::new(),
        ..Cluster::start(2)
    };
    for (case, mut cluster) in [
        ("NodePort", node_port),
        ("no ports", without_ports),
        ("no Service", without_service),
    ] {
        let compiled = cluster.settle(objects);
        assert!(compiled.own_tables.is_empty(), "{case}");
        assert_eq!(
            find_owner(&compiled, "x.com").as_deref(),
            Some("a/r"),
            "{case}"
        );
        assert_eq!(read_status(&compiled, "new").1, ["192.0.2.1"], "{case}");
    }
}

/// Others, as those of external-dns, may give the names of all tenants to the address of one.
#[test]
fn service_of_a_gateway_gets_only_annotations_that_a_flag_names() {
    let objects = || {
        let gateways = vec![
            named_gateway("a", "old", 1, ""),
            named_gateway("a", "new", 2, ""),
        ];
        complete(gateways, Vec::new())
    };
    let mut cluster = Cluster::start(1);
    cluster.annotations.of_model = vec!["example.com/internal".to_owned()];
    cluster.settle(objects);
    let annotations = cluster.services["gw/lb-0"].metadata.annotations.clone();
    let want = ("example.com/internal".to_owned(), "yes".to_owned());
    assert_eq!(annotations, Some([want].into()));
}

#[test]
fn service_follows_the_labels_and_allowed_annotations_of_the_infrastructure() {
    let objects = |labels: &Value, annotations: &Value| {
        let mut new = named_gateway("a", "new", 2, "");
        new["spec"]["infrastructure"] = json!({"labels": labels, "annotations": annotations});
        complete(vec![named_gateway("a", "old", 1, ""), new], Vec::new())
    };
    let mut cluster = Cluster::start(1);
    cluster.annotations.of_gateways = ["example.com/size", "example.com/zone"]
        .map(str::to_owned)
        .into();
    let mut follow = |labels: Value, annotations: Value| {
        let compiled = cluster.settle(|| objects(&labels, &annotations));
        // Entries of another writer.
        let mut service = (*cluster.services["gw/lb-0"]).clone();
        let metadata = &mut service.metadata;
        let entry = || ("other".to_owned(), "x".to_owned());
        metadata.labels.get_or_insert_default().extend([entry()]);
        metadata
            .annotations
            .get_or_insert_default()
            .extend([entry()]);
        cluster.insert(service);
        let service = serde_json::to_value(&*cluster.services["gw/lb-0"]).unwrap();
        let labels = service["metadata"]["labels"].as_object().unwrap();
        let of_tenant = ["team", "tier", "other", "ironclad/gateway-namespace"];
        let labels = of_tenant.map(|name| labels.get(name).cloned().unwrap_or_default());
        let mut annotations = service["metadata"]["annotations"].clone();
        annotations
            .as_object_mut()
            .unwrap()
            .remove("ironclad/gateway-infrastructure");
        let changed = compiled.statuses.iter().find(|found| found.name == "new");
        let message = changed.map(|found| found.status["conditions"][0]["message"].clone());
        (json!(labels), annotations, message.unwrap_or_default())
    };
    let unnamed = "without effect: infrastructure.annotations \
         external-dns.alpha.kubernetes.io/hostname, ironclad/gateway-infrastructure (the gateway's \
         --gateway-infrastructure-annotation does not name them)";
    let tenant = json!({"example.com/size": "big", "external-dns.alpha.kubernetes.io/hostname": "a",
        "ironclad/gateway-infrastructure": "{}"});
    assert_eq!(
        follow(json!({"team": "a", "tier": "1"}), tenant),
        (
            json!(["a", "1", "x", "a"]),
            json!({"example.com/size": "big", "other": "x"}),
            json!(unnamed)
        )
    );
    assert_eq!(
        follow(json!({"tier": "2"}), json!({"example.com/zone": "z"})),
        (
            json!([null, "2", "x", "a"]),
            json!({"example.com/zone": "z", "other": "x"}),
            json!("")
        )
    );
    assert_eq!(
        follow(json!({}), json!({})),
        (
            json!([null, null, "x", "a"]),
            json!({"other": "x"}),
            json!("")
        )
    );
}

#[test]
fn address_without_a_value_requests_one_of_the_gateways_own() {
    let objects = || {
        let mut second = named_gateway("b", "g", 2, "");
        second["spec"]["addresses"] = json!([{"type": "IPAddress"}]);
        let gateways = vec![named_gateway("a", "g", 1, ""), second];
        // Both have a route for all hosts, which only one of two namespaces can own.
        let routes = vec![route("a", "r", 3, "a/g", ""), route("b", "r", 4, "b/g", "")];
        complete(gateways, routes)
    };
    let compiled = Cluster::start(1).settle(objects);
    assert_eq!(find_owner(&compiled, "x.com").as_deref(), Some("a/r"));
    let own = find_own_rule(&compiled, "b-g", "x.com");
    assert_eq!(own.as_deref(), Some("b/r"));
    // Gateways of different namespaces share addresses otherwise, as their routes' hosts differ.
    let objects = || {
        let gateways = vec![
            named_gateway("a", "g", 1, ""),
            named_gateway("b", "g", 2, ""),
        ];
        complete(gateways, Vec::new())
    };
    assert!(Cluster::start(1).settle(objects).own_tables.is_empty());
}

/// As after an upgrade: before, all Gateways shared addresses.
#[test]
fn gateway_that_clients_know_is_shared_until_it_has_an_address() {
    let objects = |since: &str, is_requested: bool| {
        let mut new = named_gateway("a", "new", 2, "");
        new["status"] = json!({"addresses": [{"type": "IPAddress", "value": "192.0.2.1"}],
            "conditions": [{"type": "Programmed", "status": "True", "lastTransitionTime": since}]});
        if is_requested {
            new["spec"]["addresses"] = json!([{"type": "IPAddress"}]);
        }
        let gateways = vec![named_gateway("a", "old", 1, ""), new];
        let routes = vec![route("a", "r", 3, "a/new", "x.com")];
        complete(gateways, routes)
    };
    let (settled, recent) = ("2025-12-31T23:00:00Z", "2025-12-31T23:59:59Z");
    let mut cluster = Cluster::start(1);
    for (since, is_requested, owner) in [
        (settled, false, Some("a/r")),
        (settled, true, None),
        (recent, false, None),
    ] {
        let compiled = cluster.compile_objects(objects(since, is_requested));
        assert_eq!(find_owner(&compiled, "x.com").as_deref(), owner, "{since}");
        assert_eq!(compiled.services.len(), 1, "{since}");
    }
    // Its Service exists, without an address.
    let created = cluster.compile_objects(objects(settled, false));
    cluster.apply_changes(&created);
    let with_address = cluster.services["gw/lb-0"].clone();
    cluster.insert(Service {
        status: None,
        ..(*with_address).clone()
    });
    let compiled = cluster.compile_objects(objects(settled, false));
    assert_eq!(find_owner(&compiled, "x.com").as_deref(), Some("a/r"));
    assert_eq!(compiled.services, []);
    cluster.insert((*with_address).clone());
    let compiled = cluster.compile_objects(objects(settled, false));
    assert_eq!(find_owner(&compiled, "x.com"), None);
    let own = find_own_rule(&compiled, "a-new", "x.com");
    assert_eq!(own.as_deref(), Some("a/r"));
    // No room for a Service.
    let mut full = Cluster::start(1);
    let other = json!({"metadata": {"namespace": "gw", "name": "lb-0"}, "spec": {}});
    full.insert(serde_json::from_value(other).unwrap());
    let compiled = full.compile_objects(objects(settled, false));
    assert_eq!(find_owner(&compiled, "x.com").as_deref(), Some("a/r"));
}

#[test]
fn gateway_with_its_own_address_gets_no_host_of_another_namespace() {
    let objects = || {
        let mut own = named_gateway("b", "g", 2, "");
        own["spec"]["addresses"] = json!([{"type": "IPAddress"}]);
        let gateways = vec![named_gateway("a", "g", 1, "x.com"), own];
        let routes = vec![
            route("a", "r", 3, "a/g", "x.com"),
            route("b", "taken", 4, "b/g", "x.com"),
            route("b", "free", 4, "b/g", "y.com"),
        ];
        complete(gateways, routes)
    };
    let compiled = Cluster::start(1).settle(objects);
    assert_eq!(find_own_rule(&compiled, "b-g", "x.com"), None);
    let free = find_own_rule(&compiled, "b-g", "y.com");
    assert_eq!(free.as_deref(), Some("b/free"));
    let reason = reason_of(&compiled, StatusKind::HttpRoute, "taken");
    assert_eq!(reason, "HostnameConflict");
    // Its hosts are not served at the shared addresses.
    assert_eq!(find_owner(&compiled, "y.com"), None);
}

#[test]
fn gateways_beyond_a_limit_have_a_reason() {
    let crowd = |namespace: &'static str, count: u8| {
        (0..count).map(move |n| named_gateway(namespace, &format!("g{n}"), n, ""))
    };
    let limit = u8::try_from(crate::gateway_services::MAX_OF_NAMESPACE).unwrap();
    // The first one shares addresses, and the last one is beyond the limit of the namespace.
    let of_namespace = || complete(crowd("a", limit + 2).collect(), Vec::new());
    let compiled = Cluster::start(64).settle(of_namespace);
    assert_eq!(compiled.own_tables.len(), usize::from(limit));
    let last = format!("g{}", limit + 1);
    assert_eq!(
        read_status(&compiled, &last),
        ("NoResources".into(), vec![])
    );
    // Another namespace has its own limit, and the ports suffice for two.
    let of_ports = || complete(crowd("a", 2).chain(crowd("b", 3)).collect(), Vec::new());
    let compiled = Cluster::start(2).settle(of_ports);
    assert_eq!(slots(&compiled).len(), 2);
    assert_eq!(read_status(&compiled, "g2").0, "NoResources");
}

#[test]
fn gateway_keeps_its_service_until_it_is_deleted() {
    let old = || named_gateway("a", "old", 1, "");
    let new = || named_gateway("a", "new", 2, "");
    let mut refused = new();
    refused["spec"]["tls"] = json!({"frontend": {}});
    let mut unreadable = new();
    unreadable["spec"]["listeners"] = json!("x");
    let of_class = |name: &str| {
        let mut gateway = new();
        gateway["spec"]["gatewayClassName"] = name.into();
        let class = |name: &str, spec: Value| decode(json!({"name": name}), spec);
        let mut objects = complete(vec![old(), gateway], Vec::new());
        objects.gateway_classes = vec![
            class("other", json!({"controllerName": "you"})),
            class(
                "refused",
                json!({"controllerName": "me", "parametersRef": {}}),
            ),
            class("unreadable", json!({"controllerName": 1})),
        ];
        objects
    };
    let incomplete = Objects {
        are_complete: false,
        ..Objects::default()
    };
    let mut cluster = Cluster::start(2);
    cluster.settle(|| complete(vec![old(), new()], Vec::new()));
    for (case, objects) in [
        ("not in conflict", complete(vec![new()], Vec::new())),
        ("refused", complete(vec![old(), refused], Vec::new())),
        ("unreadable", complete(vec![old(), unreadable], Vec::new())),
        ("not listed yet", incomplete),
        ("class is missing", of_class("missing")),
        ("class is refused", of_class("refused")),
        ("class is unreadable", of_class("unreadable")),
    ] {
        let compiled = cluster.compile_objects(objects);
        assert_eq!(compiled.services, [], "{case}");
    }
    // A Gateway of the same name is another one.
    let mut again = new();
    again["metadata"]["uid"] = "other".into();
    for (case, objects) in [
        ("deleted", complete(vec![old()], Vec::new())),
        ("created again", complete(vec![old(), again], Vec::new())),
        ("of another class", of_class("other")),
    ] {
        let compiled = cluster.compile_objects(objects);
        let stored = cluster.services["gw/lb-0"].clone();
        // An informer may lack the Gateway, so that the writer reads.
        let deleted = ServiceChange::Delete {
            service: stored,
            has_gateway: false,
        };
        assert!(compiled.services.contains(&deleted), "{case}");
        assert!(compiled.own_tables.is_empty(), "{case}");
    }
    cluster.range = None;
    let compiled = cluster.compile_objects(complete(vec![old(), new()], Vec::new()));
    let deleted = ServiceChange::Delete {
        service: cluster.services["gw/lb-0"].clone(),
        has_gateway: true,
    };
    assert_eq!(compiled.services, [deleted], "the flag was removed");
}

#[test]
fn service_with_the_name_of_another_writer_is_not_touched() {
    let mut cluster = Cluster::start(2);
    let other = json!({"metadata": {"namespace": "gw", "name": "lb-0"}, "spec": {}});
    cluster.insert(serde_json::from_value(other).unwrap());
    let objects = || {
        let gateways = vec![
            named_gateway("a", "old", 1, ""),
            named_gateway("a", "new", 2, ""),
        ];
        complete(gateways, Vec::new())
    };
    assert_eq!(slots(&cluster.settle(objects)), [("a-new", 1)]);
}

#[test]
fn second_service_of_a_gateway_is_deleted() {
    let objects = || {
        let gateways = vec![
            named_gateway("a", "old", 1, ""),
            named_gateway("a", "new", 2, ""),
        ];
        complete(gateways, Vec::new())
    };
    let mut cluster = Cluster::start(2);
    cluster.settle(objects);
    let mut second = (*cluster.services["gw/lb-0"]).clone();
    second.metadata.name = Some("lb-1".to_owned());
    cluster.insert(second);
    let compiled = cluster.settle(objects);
    assert_eq!(slots(&compiled), [("a-new", 0)]);
    assert!(!cluster.services.contains_key("gw/lb-1"));
}

#[test]
fn certificate_at_an_own_address_is_that_of_its_gateway() {
    let tls = |name: &str, created: u8| {
        let mut gateway = named_gateway("a", name, created, "");
        gateway["spec"]["listeners"] = json!([{"name": "https", "port": 443, "protocol": "HTTPS",
            "tls": {"certificateRefs": [{"name": name}]}}]);
        gateway
    };
    let certificates: Certificates = ["old", "new"]
        .into_iter()
        .map(|name| {
            let key = SecretKey {
                namespace: "a".into(),
                name: name.into(),
            };
            let made = base_tls::self_signed_key(vec!["x.com".into()]).unwrap();
            (key, Ok(Arc::new(made)))
        })
        .collect();
    let mut cluster = Cluster::start(1);
    let objects = || complete(vec![tls("old", 1), tls("new", 2)], Vec::new());
    cluster.settle(objects);
    let services = cluster.read_services();
    let owners = HostOwners::default();
    let (compiled, _) = compile_with_services(objects(), &owners, &certificates, &services);
    let find = |name: &str| {
        let table = match name {
            "old" => &compiled.table,
            _ => &*find_own(&compiled, "a-new").unwrap().table,
        };
        let shown = table.find_certificate("any.com").unwrap();
        let mut all = certificates.iter();
        let key = all.find(|(_, known)| Arc::ptr_eq(known.as_ref().unwrap(), &shown));
        key.unwrap().0.name.clone()
    };
    assert_eq!((find("old"), find("new")), ("old".into(), "new".into()));
}

/// Returns a Gateway with listeners of these protocols and ports.
fn gateway_with_ports(listeners: &[(&str, u16)]) -> Value {
    let mut gateway = named_gateway("a", "g", 1, "");
    let listeners = listeners.iter().enumerate().map(|(n, (protocol, port))| {
        json!({"name": format!("l{n}"), "port": port, "protocol": protocol,
            "hostname": format!("l{n}.com"), "tls": (*protocol == "HTTPS").then(|| json!({
                "certificateRefs": [{"name": "c"}]}))})
    });
    gateway["spec"]["listeners"] = listeners.collect();
    gateway
}

#[test]
fn gateway_with_an_address_of_its_own_has_any_port_of_each_protocol() {
    const ONE: &str = "a Gateway has one port of protocol HTTP, here";
    for (listeners, ports, messages) in [
        (&[("HTTP", 80), ("HTTPS", 443)][..], None, ["", ""]),
        (
            &[("HTTP", 8080), ("HTTPS", 8443)],
            Some(json!([[8080, 20000], [8443, 20001]])),
            ["", ""],
        ),
        (
            &[("HTTPS", 8443), ("HTTP", 80)],
            Some(json!([[80, 20000], [8443, 20001]])),
            ["", ""],
        ),
        (
            &[("HTTPS", 80), ("TCP", 443)],
            Some(json!([[80, 20001]])),
            ["", "the protocol TCP is not supported"],
        ),
        // The shared addresses have this port.
        (&[("HTTP", 8080), ("HTTP", 80)], None, [ONE, ""]),
        (
            &[("HTTP", 8080), ("HTTP", 9090)],
            Some(json!([[8080, 20000]])),
            ["", ONE],
        ),
        (
            &[("HTTPS", 8080), ("HTTP", 8080)],
            Some(json!([[8080, 20000]])),
            ["the port has a listener of protocol HTTP", ""],
        ),
        (
            &[("TCP", 8080), ("HTTP", 9090)],
            Some(json!([[9090, 20000]])),
            ["the protocol TCP is not supported", ""],
        ),
    ] {
        let mut cluster = Cluster::start(1);
        let objects = || complete(vec![gateway_with_ports(listeners)], Vec::new());
        let compiled = cluster.settle(objects);
        let service = cluster.services.get("gw/lb-0");
        let found = service.map(|service| {
            let service = serde_json::to_value(&**service).unwrap();
            let ports = service["spec"]["ports"].as_array().unwrap().iter();
            ports
                .map(|port| json!([port["port"], port["targetPort"]]))
                .collect::<Value>()
        });
        assert_eq!(found, ports, "{listeners:?}");
        let status = &compiled.statuses.iter().find(|found| found.name == "g");
        let status = &status.unwrap().status;
        for (index, prefix) in messages.iter().enumerate() {
            let accepted = &status["listeners"][index]["conditions"][0];
            assert_eq!(accepted["type"], "Accepted");
            let message = accepted["message"].as_str().unwrap();
            assert!(message.starts_with(prefix), "{listeners:?}: {message}");
            assert_eq!(message.is_empty(), prefix.is_empty(), "{listeners:?}");
        }
        if let Some(own) = find_own(&compiled, "a-g") {
            let ports = (own.ports.http, own.ports.https);
            assert_ne!(ports, (80, 443), "{listeners:?}");
        }
    }
}

#[test]
fn other_ports_need_addresses_of_gateways_own() {
    let mut cluster = Cluster::start(1);
    cluster.range = None;
    let compiled =
        cluster.settle(|| complete(vec![gateway_with_ports(&[("HTTP", 8080)])], Vec::new()));
    let status = compiled.statuses.iter().find(|found| found.name == "g");
    let accepted = &status.unwrap().status["listeners"][0]["conditions"][0];
    assert_eq!(accepted["reason"], "PortUnavailable");
    assert_eq!(accepted["message"], "the port of protocol HTTP is 80");
}

#[test]
fn changed_port_of_a_gateway_is_that_of_its_service() {
    let mut cluster = Cluster::start(1);
    for port in [8080, 9090] {
        let compiled =
            cluster.settle(|| complete(vec![gateway_with_ports(&[("HTTP", port)])], Vec::new()));
        assert_eq!(find_own(&compiled, "a-g").unwrap().ports.http, port);
        let spec = cluster.services["gw/lb-0"].spec.clone().unwrap();
        let ports: Vec<i32> = spec.ports.unwrap().iter().map(|port| port.port).collect();
        assert_eq!(ports, [i32::from(port)]);
    }
}
