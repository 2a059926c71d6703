//! Services, endpoints, ingresses, network policies, leases of addresses.

use super::Row;
use crate::cells::*;
use crate::table::{AGE, NAME, text, unnamed, wide};
use api_meta::meta::{at, str_at};
use jiff::Timestamp;
use serde_json::Value;

pub(super) const ROWS: &[Row] = &[
    (
        "",
        "services",
        &[
            NAME,
            text("Type", |o, _| Value::from(str_at(o, &["spec", "type"]))),
            text("Cluster-IP", cluster_ip),
            text("External-IP", external_ip),
            text("Port(s)", ports),
            AGE,
            wide("Selector", |o, _| map_labels(o, &["spec", "selector"])),
        ],
    ),
    ("", "endpoints", &[NAME, text("Endpoints", endpoints), AGE]),
    (
        "discovery.k8s.io",
        "endpointslices",
        &[
            NAME,
            text("AddressType", |o, _| Value::from(str_at(o, &["addressType"]))),
            text("Ports", slice_ports),
            text("Endpoints", slice_endpoints),
            AGE,
        ],
    ),
    (
        "networking.k8s.io",
        "ingresses",
        &[
            NAME,
            text("Class", |o, _| or(str_at(o, &["spec", "ingressClassName"]), "<none>")),
            text("Hosts", hosts),
            text("Address", |o, _| load_balancer(o)),
            text("Ports", |o, _| Value::from(if items(o, &["spec", "tls"]).is_empty() { "80" } else { "80, 443" })),
            AGE,
        ],
    ),
    (
        "networking.k8s.io",
        "ingressclasses",
        &[
            NAME,
            text("Controller", |o, _| Value::from(str_at(o, &["spec", "controller"]))),
            text("Parameters", |o, _| {
                let Some(p) = at(o, &["spec", "parameters"]) else { return Value::from("<none>") };
                let kind = str_at(p, &["kind"]);
                let kind = match str_at(p, &["apiGroup"]) {
                    "" => kind.to_owned(),
                    group => format!("{kind}.{group}"),
                };
                Value::from(format!("{kind}/{}", str_at(p, &["name"])))
            }),
            AGE,
        ],
    ),
    (
        "networking.k8s.io",
        "networkpolicies",
        &[NAME, text("Pod-Selector", |o, _| selector_at(o, &["spec", "podSelector"])), AGE],
    ),
    ("networking.k8s.io", "ipaddresses", &[NAME, text("ParentRef", parent), unnamed(age)]),
    ("networking.k8s.io", "servicecidrs", &[NAME, text("CIDRs", |o, _| strings(o, &["spec", "cidrs"], "")), AGE]),
    (
        "coordination.k8s.io",
        "leases",
        &[NAME, text("Holder", |o, _| Value::from(str_at(o, &["spec", "holderIdentity"]))), AGE],
    ),
];

fn cluster_ip(service: &Value, _: Timestamp) -> Value {
    let first = items(service, &["spec", "clusterIPs"]).first().and_then(Value::as_str);
    or(first.unwrap_or_else(|| str_at(service, &["spec", "clusterIP"])), "<none>")
}

fn load_balancer(o: &Value) -> Value {
    let ingress = items(o, &["status", "loadBalancer", "ingress"]).iter();
    joined(
        ingress.map(|i| match str_at(i, &["ip"]) {
            "" => str_at(i, &["hostname"]),
            ip => ip,
        }),
        "",
    )
}

fn external_ip(service: &Value, _: Timestamp) -> Value {
    let external = items(service, &["spec", "externalIPs"]).iter().filter_map(Value::as_str);
    match str_at(service, &["spec", "type"]) {
        "ExternalName" => Value::from(str_at(service, &["spec", "externalName"])),
        "LoadBalancer" => {
            let balanced = load_balancer(service);
            let all: Vec<&str> = balanced.as_str().into_iter().filter(|b| !b.is_empty()).chain(external).collect();
            or(&all.join(","), "<pending>")
        }
        _ => joined(external, "<none>"),
    }
}

fn ports(service: &Value, _: Timestamp) -> Value {
    let texts: Vec<String> = items(service, &["spec", "ports"])
        .iter()
        .map(|p| {
            let protocol = str_at(p, &["protocol"]);
            match number(p, &["nodePort"]) {
                0 => format!("{}/{protocol}", number(p, &["port"])),
                node => format!("{}:{node}/{protocol}", number(p, &["port"])),
            }
        })
        .collect();
    or(&texts.join(","), "<none>")
}

/// At most three, then how many more.
fn some_of(texts: &[String], other: &str) -> Value {
    match texts.len() {
        0 => Value::from(other),
        1..=3 => Value::from(texts.join(",")),
        n => Value::from(format!("{} + {} more...", texts[..3].join(","), n - 3)),
    }
}

fn endpoints(o: &Value, _: Timestamp) -> Value {
    let mut texts = Vec::new();
    for subset in items(o, &["subsets"]) {
        let addresses = items(subset, &["addresses"]).iter().map(|a| str_at(a, &["ip"]));
        let ports = items(subset, &["ports"]);
        for address in addresses {
            if ports.is_empty() {
                texts.push(address.to_owned());
            }
            let joined = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
            texts.extend(ports.iter().map(|p| format!("{joined}:{}", number(p, &["port"]))));
        }
    }
    some_of(&texts, "<none>")
}

fn slice_ports(o: &Value, _: Timestamp) -> Value {
    let ports = items(o, &["ports"]).iter().map(|p| shown(p.get("port"), "*"));
    some_of(&ports.collect::<Vec<_>>(), "<unset>")
}

fn slice_endpoints(o: &Value, _: Timestamp) -> Value {
    let addresses = items(o, &["endpoints"]).iter().flat_map(|e| items(e, &["addresses"]));
    some_of(&addresses.map(|a| shown(Some(a), "")).collect::<Vec<_>>(), "<unset>")
}

fn hosts(o: &Value, _: Timestamp) -> Value {
    let hosts = items(o, &["spec", "rules"]).iter().map(|r| str_at(r, &["host"]).to_owned());
    some_of(&hosts.filter(|h| !h.is_empty()).collect::<Vec<_>>(), "*")
}

fn parent(o: &Value, _: Timestamp) -> Value {
    let part = |field| str_at(o, &["spec", "parentRef", field]);
    let resource = match part("group") {
        "" => part("resource").to_owned(),
        group => format!("{}.{group}", part("resource")),
    };
    Value::from(format!("{resource}/{}/{}", part("namespace"), part("name")))
}
