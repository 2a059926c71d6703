#![allow(clippy::unwrap_used, clippy::expect_used)]
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};
use std::sync::Arc;

use super::*;

#[derive(Default)]
pub(crate) struct Fake {
    services: Vec<Arc<Service>>,
    slices: Vec<Arc<EndpointSlice>>,
}

impl View for Fake {
    fn find_service(&self, namespace: &str, name: &str) -> Option<Arc<Service>> {
        self.services
            .iter()
            .find(|s| {
                s.metadata.name.as_deref() == Some(name)
                    && s.metadata.namespace.as_deref() == Some(namespace)
            })
            .cloned()
    }
    fn list_slices(&self, namespace: &str, name: &str) -> Vec<Arc<EndpointSlice>> {
        self.slices
            .iter()
            .filter(|s| {
                api_semantics::endpoints::service_name(s) == Some(name)
                    && s.metadata.namespace.as_deref() == Some(namespace)
            })
            .cloned()
            .collect()
    }
    fn has_namespace(&self, name: &str) -> bool {
        assert_ne!(name, "planted-panic");
        name == "ns"
    }
    fn namespace_of_pod(&self, address: IpAddr) -> Option<String> {
        let is_pod = address == IpAddr::from([10, 0, 0, 9]);
        is_pod.then(|| "other".to_owned())
    }
    fn has_node_address(&self, address: IpAddr) -> bool {
        address == IpAddr::from([127, 0, 0, 9])
    }
    fn has_synced(&self) -> bool {
        true
    }
    fn find_service_by_address(&self, address: IpAddr) -> Option<Arc<Service>> {
        let text = address.to_string();
        let has = |s: &&Arc<Service>| {
            s.spec
                .as_ref()
                .is_some_and(|spec| spec.cluster_ip.as_deref() == Some(&text))
        };
        self.services.iter().find(has).cloned()
    }
    fn list_slices_by_address(&self, address: IpAddr) -> Vec<Arc<EndpointSlice>> {
        let text = address.to_string();
        self.slices
            .iter()
            .filter(|s| {
                s.endpoints
                    .iter()
                    .flatten()
                    .any(|e| e.addresses.contains(&text))
            })
            .cloned()
            .collect()
    }
}

fn service(name: &str, spec: Value) -> Arc<Service> {
    Arc::new(
        serde_json::from_value(
            json!({ "metadata": { "name": name, "namespace": "ns" }, "spec": spec }),
        )
        .unwrap(),
    )
}

pub(crate) fn cluster() -> Fake {
    let slice = json!({
        "metadata": { "name": "s-1", "namespace": "ns", "labels": { "kubernetes.io/service-name": "s" } },
        "addressType": "IPv4", "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }],
        "endpoints": [
            { "addresses": ["10.244.0.5"], "hostname": "s-0", "conditions": { "ready": true } },
            { "addresses": ["10.244.0.6"], "conditions": { "ready": true } },
            { "addresses": ["10.244.0.7"], "conditions": { "ready": false } },
        ],
    });
    Fake {
        services: vec![
            service(
                "w",
                json!({ "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"], "ports": [
                { "name": "http", "port": 81 }, { "name": "alt", "port": 53, "protocol": "UDP" } ] }),
            ),
            service(
                "s",
                json!({ "clusterIP": "None", "clusterIPs": ["None"], "ports": [{ "name": "http", "port": 80 }] }),
            ),
            service(
                "e",
                json!({ "type": "ExternalName", "externalName": "w.ns.svc.cluster.local" }),
            ),
            service(
                "out",
                json!({ "type": "ExternalName", "externalName": "www.example.com" }),
            ),
        ],
        slices: vec![Arc::new(serde_json::from_value(slice).unwrap())],
    }
}

fn ask(name: &str, kind: RecordType) -> String {
    let domain = Name::from_ascii("cluster.local.").unwrap();
    match resolve_name(&cluster(), &domain, &Name::from_ascii(name).unwrap(), kind) {
        Answer::Records { answers, .. } => answers
            .iter()
            .map(|record| record.data.to_string())
            .collect::<Vec<_>>()
            .join(" | "),
        Answer::NoData => "NODATA".into(),
        Answer::NxDomain => "NXDOMAIN".into(),
        Answer::Alias { target, .. } => format!("ALIAS {target}"),
        Answer::Elsewhere => "ELSEWHERE".into(),
    }
}

#[test]
fn names_are_resolved_by_the_specification() {
    use RecordType::{A, AAAA, CNAME, PTR, SRV, TXT};
    for (name, kind, expect) in [
        ("w.ns.svc.cluster.local.", A, "10.96.0.7"),
        ("W.NS.svc.Cluster.Local.", A, "10.96.0.7"),
        ("w.ns.svc.cluster.local.", AAAA, "NODATA"),
        ("nobody.ns.svc.cluster.local.", A, "NXDOMAIN"),
        ("ns.svc.cluster.local.", A, "NODATA"),
        ("other.svc.cluster.local.", A, "NXDOMAIN"),
        ("cluster.local.", A, "NODATA"),
        ("www.example.com.", A, "ELSEWHERE"),
        ("s.ns.svc.cluster.local.", A, "10.244.0.5 | 10.244.0.6"),
        ("s-0.s.ns.svc.cluster.local.", A, "10.244.0.5"),
        ("10-244-0-6.s.ns.svc.cluster.local.", A, "10.244.0.6"),
        ("s-9.s.ns.svc.cluster.local.", A, "NXDOMAIN"),
        (
            "_http._tcp.w.ns.svc.cluster.local.",
            SRV,
            "0 100 81 w.ns.svc.cluster.local.",
        ),
        (
            "_alt._udp.w.ns.svc.cluster.local.",
            SRV,
            "0 100 53 w.ns.svc.cluster.local.",
        ),
        ("_alt._tcp.w.ns.svc.cluster.local.", SRV, "NXDOMAIN"),
        (
            "_http._tcp.s.ns.svc.cluster.local.",
            SRV,
            "0 50 8080 s-0.s.ns.svc.cluster.local. | 0 50 8080 10-244-0-6.s.ns.svc.cluster.local.",
        ),
        ("10-244-0-9.ns.pod.cluster.local.", A, "10.244.0.9"),
        ("10-244-0-9.other.pod.cluster.local.", A, "NXDOMAIN"),
        ("x.ns.pod.cluster.local.", A, "NXDOMAIN"),
        ("e.ns.svc.cluster.local.", CNAME, "w.ns.svc.cluster.local."),
        (
            "e.ns.svc.cluster.local.",
            A,
            "w.ns.svc.cluster.local. | 10.96.0.7",
        ),
        ("out.ns.svc.cluster.local.", A, "ALIAS www.example.com."),
        ("7.0.96.10.in-addr.arpa.", PTR, "w.ns.svc.cluster.local."),
        (
            "5.0.244.10.in-addr.arpa.",
            PTR,
            "s-0.s.ns.svc.cluster.local.",
        ),
        ("1.2.0.192.in-addr.arpa.", PTR, "ELSEWHERE"),
        // A wildcard is a name like others.
        ("*.ns.svc.cluster.local.", A, "NXDOMAIN"),
        ("*.svc.cluster.local.", A, "NXDOMAIN"),
        ("*.cluster.local.", A, "NXDOMAIN"),
        ("dns-version.cluster.local.", TXT, "1.1.0"),
    ] {
        assert_eq!(ask(name, kind), expect, "{name} {kind}");
    }
}

/// Resolves a name of these Services and slices.
fn resolve(services: Vec<Arc<Service>>, slices: &[Value], name: &str, kind: RecordType) -> String {
    let slices = slices
        .iter()
        .map(|slice| Arc::new(serde_json::from_value(slice.clone()).unwrap()));
    let view = Fake {
        services,
        slices: slices.collect(),
    };
    let domain = Name::from_ascii("cluster.local.").unwrap();
    match resolve_name(&view, &domain, &Name::from_ascii(name).unwrap(), kind) {
        Answer::Records { answers, .. } => answers
            .iter()
            .map(|record| record.data.to_string())
            .collect::<Vec<_>>()
            .join(" | "),
        other => format!("{other:?}"),
    }
}

#[test]
fn dual_stack_service_has_an_address_record_of_each_family() {
    let addresses = ["10.96.0.7", "fd00::7"];
    let spec = json!({ "clusterIP": addresses[0], "clusterIPs": addresses, "ports": [] });
    for (kind, expected) in [
        (RecordType::A, addresses[0]),
        (RecordType::AAAA, addresses[1]),
    ] {
        let services = vec![service("d", spec.clone())];
        assert_eq!(
            resolve(services, &[], "d.ns.svc.cluster.local.", kind),
            expected
        );
    }
}

fn slice_of(endpoints: Value) -> Value {
    json!({
        "metadata": { "name": "h-1", "namespace": "ns", "labels": { "kubernetes.io/service-name": "h" } },
        "addressType": "IPv4", "ports": [{ "name": "db", "port": 5432, "protocol": "TCP" }],
        "endpoints": endpoints,
    })
}

fn headless() -> Vec<Arc<Service>> {
    let ports = json!([{ "name": "db", "port": 5432 }]);
    vec![service(
        "h",
        json!({ "clusterIP": "None", "clusterIPs": ["None"], "ports": ports }),
    )]
}

#[test]
fn headless_service_without_ready_endpoints_does_not_exist() {
    let name = "h.ns.svc.cluster.local.";
    for (endpoints, expected) in [
        (json!([]), "NxDomain"),
        (
            json!([{ "addresses": ["10.0.0.1"], "conditions": { "ready": false } }]),
            "NxDomain",
        ),
        // An absent condition means ready.
        (json!([{ "addresses": ["10.0.0.1"] }]), "10.0.0.1"),
        (
            json!([{ "addresses": ["10.0.0.1"], "conditions": {} }]),
            "10.0.0.1",
        ),
    ] {
        let found = resolve(
            headless(),
            &[slice_of(endpoints.clone())],
            name,
            RecordType::A,
        );
        assert_eq!(found, expected, "{endpoints}");
    }
}

/// An endpoint that moves from one slice to another is in both for a moment.
#[test]
fn endpoint_in_two_slices_has_one_record() {
    let slice = slice_of(json!([{ "addresses": ["10.0.0.1"] }]));
    let slices = [slice.clone(), slice];
    let name = "h.ns.svc.cluster.local.";
    assert_eq!(
        resolve(headless(), &slices, name, RecordType::A),
        "10.0.0.1"
    );
    let port = "_db._tcp.h.ns.svc.cluster.local.";
    let record = "0 100 5432 10-0-0-1.h.ns.svc.cluster.local.";
    assert_eq!(resolve(headless(), &slices, port, RecordType::SRV), record);
}

/// Slices that move several endpoints hold them in any order.
#[test]
fn endpoints_in_two_slices_are_counted_once() {
    let first = json!({ "addresses": ["10.0.0.1"], "hostname": "a" });
    let second = json!({ "addresses": ["10.0.0.2"] });
    let slices = [json!([first, second]), json!([second, first])].map(slice_of);
    let view = Fake {
        services: headless(),
        slices: slices
            .map(|slice| Arc::new(serde_json::from_value(slice).unwrap()))
            .to_vec(),
    };
    let [domain, name] = ["cluster.local.", "_db._tcp.h.ns.svc.cluster.local."]
        .map(|name| Name::from_ascii(name).unwrap());
    let Answer::Records {
        answers,
        additional,
    } = resolve_name(&view, &domain, &name, RecordType::SRV)
    else {
        panic!("no records");
    };
    let data = |records: &[Record]| -> Vec<String> {
        records
            .iter()
            .map(|record| record.data.to_string())
            .collect()
    };
    let expect = [
        "0 50 5432 a.h.ns.svc.cluster.local.",
        "0 50 5432 10-0-0-2.h.ns.svc.cluster.local.",
    ];
    assert_eq!(data(&answers), expect);
    assert_eq!(data(&additional), ["10.0.0.1", "10.0.0.2"]);
}

#[test]
fn loop_of_external_names_ends_with_the_first_alias() {
    let alias = |name: &str, target: &str| {
        let target = format!("{target}.ns.svc.cluster.local");
        service(
            name,
            json!({ "type": "ExternalName", "externalName": target }),
        )
    };
    let services = vec![alias("a", "b"), alias("b", "a"), alias("self", "self")];
    let a = resolve(
        services.clone(),
        &[],
        "a.ns.svc.cluster.local.",
        RecordType::A,
    );
    assert_eq!(a, "b.ns.svc.cluster.local.");
    let own = resolve(services, &[], "self.ns.svc.cluster.local.", RecordType::A);
    assert_eq!(own, "self.ns.svc.cluster.local.");
}

#[test]
fn pod_record_exists_for_ipv6_addresses() {
    let name = "2001-db8--1.ns.pod.cluster.local.";
    assert_eq!(
        resolve(Vec::new(), &[], name, RecordType::AAAA),
        "2001:db8::1"
    );
    assert_eq!(resolve(Vec::new(), &[], name, RecordType::A), "NoData");
}
