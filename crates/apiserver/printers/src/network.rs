//! Services and related kinds.

use serde_json::{Value, json};

use crate::printer::{AGE, NAME, Printer, SELECTOR, text_column};
use crate::view::{View, first_few, join_texts, list_of, plain_text, text_of};

pub(crate) static SERVICE: Printer = Printer {
    columns: &[
        NAME,
        text_column("Type", "How the service is reached."),
        text_column("Cluster-IP", "Address within the cluster."),
        text_column("External-IP", "Address from outside."),
        text_column("Port(s)", "Ports, with node ports and protocols."),
        AGE,
        SELECTOR,
    ],
    cells: |view| {
        // Services from before dual stack have only `clusterIP`.
        let ip = view
            .list("/spec/clusterIPs")
            .first()
            .map_or_else(|| view.text("/spec/clusterIP"), |ip| text_of(Some(ip)));
        vec![
            view.name(),
            json!(view.text("/spec/type")),
            json!(if ip.is_empty() { "<none>" } else { ip }),
            json!(external_ip(view)),
            json!(service_ports(view)),
            view.age(),
            json!(view.labels("/spec/selector")),
        ]
    },
};

fn external_ip(view: &View<'_>) -> String {
    let given = view.list("/spec/externalIPs");
    let or = |text: String, absent: &str| {
        if text.is_empty() {
            absent.to_owned()
        } else {
            text
        }
    };
    match view.text("/spec/type") {
        "ClusterIP" | "NodePort" => or(join_texts(given, ","), "<none>"),
        // Addresses of the balancer first: they are the ones that clients use.
        "LoadBalancer" => {
            let mut all = load_balancers(view);
            all.extend(given.iter().map(plain_text));
            // The Service stays unreachable from outside until a controller publishes the
            // balancer's address.
            or(all.join(","), "<pending>")
        }
        "ExternalName" => view.text("/spec/externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

fn load_balancers(view: &View<'_>) -> Vec<String> {
    // Some providers publish host names only, because their addresses change.
    let address = |item: &Value| {
        let ip = text_of(item.get("ip"));
        (if ip.is_empty() {
            text_of(item.get("hostname"))
        } else {
            ip
        })
        .to_owned()
    };
    let mut all: Vec<String> = view
        .list("/status/loadBalancer/ingress")
        .iter()
        .map(address)
        .collect();
    all.retain(|text| !text.is_empty());
    all
}

fn service_ports(view: &View<'_>) -> String {
    let ports = view.list("/spec/ports");
    if ports.is_empty() {
        return "<none>".to_owned();
    }
    let port = |item: &Value| {
        let number = |name: &str| item.get(name).and_then(Value::as_i64).unwrap_or_default();
        let protocol = text_of(item.get("protocol"));
        match number("nodePort") {
            // 0 means that no node port is allocated.
            0 => format!("{}/{protocol}", number("port")),
            node_port => format!("{}:{node_port}/{protocol}", number("port")),
        }
    };
    ports.iter().map(port).collect::<Vec<_>>().join(",")
}

pub(crate) static ENDPOINTS: Printer = Printer {
    columns: &[
        NAME,
        text_column("Endpoints", "Addresses and ports that are ready."),
        AGE,
    ],
    cells: |view| vec![view.name(), json!(endpoint_addresses(view)), view.age()],
};

fn endpoint_addresses(view: &View<'_>) -> String {
    let subsets = view.list("/subsets");
    if subsets.is_empty() {
        return "<none>".to_owned();
    }
    let mut all = Vec::new();
    for subset in subsets {
        let ips = || {
            list_of(subset.get("addresses"))
                .iter()
                .map(|address| text_of(address.get("ip")))
        };
        let ports = list_of(subset.get("ports"));
        // A headless Service may have no ports.
        if ports.is_empty() {
            all.extend(ips().map(str::to_owned));
        }
        for port in ports {
            let port = port.get("port").map(plain_text).unwrap_or_default();
            all.extend(ips().map(|ip| {
                // IPv6 needs brackets before a port.
                if ip.contains(':') {
                    format!("[{ip}]:{port}")
                } else {
                    format!("{ip}:{port}")
                }
            }));
        }
    }
    first_few(&all, 3)
}

pub(crate) static ENDPOINT_SLICE: Printer = Printer {
    columns: &[
        NAME,
        text_column("AddressType", "Kind of the addresses."),
        text_column("Ports", "Ports of the endpoints."),
        text_column("Endpoints", "Addresses."),
        AGE,
    ],
    cells: |view| {
        // Slices hold up to a thousand endpoints, of which a row has room for a few.
        let few = |all: Vec<String>| {
            if all.is_empty() {
                "<unset>".to_owned()
            } else {
                first_few(&all, 3)
            }
        };
        let ports = view
            .list("/ports")
            .iter()
            // A slice without a port number means all ports.
            .map(|port| port.get("port").map_or_else(|| "*".to_owned(), plain_text));
        let addresses = view
            .list("/endpoints")
            .iter()
            .flat_map(|endpoint| list_of(endpoint.get("addresses")))
            .map(plain_text);
        vec![
            view.name(),
            json!(view.text("/addressType")),
            json!(few(ports.collect())),
            json!(few(addresses.collect())),
            view.age(),
        ]
    },
};

pub(crate) static INGRESS: Printer = Printer {
    columns: &[
        NAME,
        text_column("Class", "Class of the controller."),
        text_column("Hosts", "Host names that are routed."),
        text_column("Address", "Where it is reached."),
        text_column("Ports", "Ports that are open."),
        AGE,
    ],
    cells: |view| {
        let class = view.text_or("/spec/ingressClassName", "");
        // The annotation is older than the field.
        let class = if class.is_empty() {
            view.text("/metadata/annotations/kubernetes.io~1ingress.class")
        } else {
            class
        };
        vec![
            view.name(),
            json!(if class.is_empty() { "<none>" } else { class }),
            json!(ingress_hosts(view)),
            json!(load_balancers(view).join(",")),
            // Fixed text: an Ingress does not say which ports its controller opens.
            json!(if view.list("/spec/tls").is_empty() {
                "80"
            } else {
                "80, 443"
            }),
            view.age(),
        ]
    },
};

fn ingress_hosts(view: &View<'_>) -> String {
    let host = |rule: &Value| {
        Some(text_of(rule.get("host")))
            .filter(|host| !host.is_empty())
            .map(str::to_owned)
    };
    let all: Vec<String> = view.list("/spec/rules").iter().filter_map(host).collect();
    if all.is_empty() {
        // Rules without a host match every host.
        "*".to_owned()
    } else {
        first_few(&all, 3)
    }
}

pub(crate) static INGRESS_CLASS: Printer = Printer {
    columns: &[
        NAME,
        text_column("Controller", "Controller of the class."),
        text_column("Parameters", "Object with its settings."),
        AGE,
    ],
    cells: |view| {
        let parameters = view.at("/spec/parameters").map_or_else(
            || "<none>".to_owned(),
            |parameters| {
                let group = text_of(parameters.get("apiGroup"));
                let dot = if group.is_empty() { "" } else { "." };
                format!(
                    "{}{dot}{group}/{}",
                    text_of(parameters.get("kind")),
                    text_of(parameters.get("name"))
                )
            },
        );
        vec![
            view.name(),
            json!(view.text("/spec/controller")),
            json!(parameters),
            view.age(),
        ]
    },
};

pub(crate) static NETWORK_POLICY: Printer = Printer {
    columns: &[
        NAME,
        text_column("Pod-Selector", "Labels of the pods."),
        AGE,
    ],
    cells: |view| {
        vec![
            view.name(),
            json!(view.selector("/spec/podSelector")),
            view.age(),
        ]
    },
};

pub(crate) static SERVICE_CIDR: Printer = Printer {
    columns: &[
        NAME,
        text_column("CIDRs", "Ranges of service addresses."),
        AGE,
    ],
    cells: |view| {
        vec![
            view.name(),
            json!(join_texts(view.list("/spec/cidrs"), ",")),
            view.age(),
        ]
    },
};

/// Upstream's printer returns an age cell without a column; clients of the table get the same
/// cells.
pub(crate) static IP_ADDRESS: Printer = Printer {
    columns: &[
        NAME,
        text_column("ParentRef", "Object that has the address."),
    ],
    cells: |view| {
        let part = |name: &str| view.text(&format!("/spec/parentRef/{name}"));
        let resource = [part("resource"), part("group")]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>();
        let parts = [resource.join(".").as_str(), part("namespace"), part("name")]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join("/");
        vec![view.name(), json!(parts), view.age()]
    },
};
