//! Gateways with ports that the shared addresses do not have.

use super::*;

/// Returns a Gateway that clients know by the shared address.
fn served_gateway(listeners: &[(&str, u16)]) -> Value {
    let mut gateway = gateway_with_ports(listeners);
    gateway["status"] = json!({"addresses": [{"type": "IPAddress", "value": "192.0.2.1"}],
        "conditions": [{"type": "Programmed", "status": "True",
            "lastTransitionTime": "2025-12-31T23:00:00Z"}]});
    gateway
}

fn with_route(gateway: Value) -> Objects {
    complete(vec![gateway], vec![route("a", "r", 3, "a/g", "l0.com")])
}

/// Returns reason and message of the condition `Accepted` of a listener of the Gateway `g`.
fn read_listener(compiled: &Compiled, index: usize) -> (String, String) {
    let mut statuses = compiled.statuses.iter();
    let status = &statuses.find(|found| found.name == "g").unwrap().status;
    let accepted = &status["listeners"][index]["conditions"][0];
    assert_eq!(accepted["type"], "Accepted");
    let text = |field: &str| accepted[field].as_str().unwrap().to_owned();
    (text("reason"), text("message"))
}

/// As after an upgrade: before, the listener with another port was refused alone.
#[test]
fn served_gateway_with_another_port_is_shared_until_it_has_an_address() {
    let objects = || with_route(served_gateway(&[("HTTP", 80), ("HTTPS", 8443)]));
    let check_shared = |compiled: &Compiled, why: &str| {
        assert_eq!(find_owner(compiled, "l0.com").as_deref(), Some("a/r"));
        let want = ("Programmed".to_owned(), vec!["192.0.2.1".to_owned()]);
        assert_eq!(read_status(compiled, "g"), want);
        let message =
            format!("the port of protocol HTTPS is 443 at the shared addresses, and {why}");
        let refused = ("PortUnavailable".to_owned(), message);
        assert_eq!(read_listener(compiled, 1), refused);
        assert!(compiled.own_tables.is_empty());
    };
    let mut cluster = Cluster::start(1);
    let created = cluster.compile_objects(objects());
    check_shared(&created, "the Service gw/lb-0 has no address yet");
    cluster.apply_changes(&created);
    let with_address = cluster.services["gw/lb-0"].clone();
    let ports = with_address.spec.clone().unwrap().ports.unwrap();
    let ports: Vec<i32> = ports.iter().map(|port| port.port).collect();
    assert_eq!(ports, [80, 8443]);
    cluster.insert(Service {
        status: None,
        ..(*with_address).clone()
    });
    let compiled = cluster.compile_objects(objects());
    check_shared(&compiled, "the Service gw/lb-0 has no address yet");
    assert_eq!(compiled.services, []);
    cluster.insert((*with_address).clone());
    let compiled = cluster.compile_objects(objects());
    assert_eq!(find_owner(&compiled, "l0.com"), None);
    let own = find_own_rule(&compiled, "a-g", "l0.com");
    assert_eq!(own.as_deref(), Some("a/r"));
    assert_eq!(read_status(&compiled, "g").1, ["192.0.2.101"]);
    assert_eq!(read_listener(&compiled, 1).0, "Accepted");
    // No room for a Service.
    let mut full = Cluster::start(1);
    let other = json!({"metadata": {"namespace": "gw", "name": "lb-0"}, "spec": {}});
    full.insert(serde_json::from_value(other).unwrap());
    let why = "all ports for Gateways with addresses of their own are in use";
    check_shared(&full.settle(objects), why);
}

#[test]
fn gateway_with_another_port_is_not_shared_without_clients_or_a_shared_port() {
    let listeners = [("HTTP", 80), ("HTTPS", 8443)];
    for (case, gateway) in [
        ("no clients", gateway_with_ports(&listeners)),
        ("no shared port", served_gateway(&[("HTTP", 8080)])),
    ] {
        let compiled = Cluster::start(1).compile_objects(with_route(gateway));
        assert_eq!(find_owner(&compiled, "l0.com"), None, "{case}");
        let reason = read_status(&compiled, "g").0;
        assert_eq!(reason, "AddressNotAssigned", "{case}");
    }
}

/// The listener of the other protocol was refused before Gateways had other ports.
#[test]
fn port_of_the_shared_addresses_is_that_of_its_protocol() {
    for (listeners, served) in [
        ([("HTTP", 443), ("HTTPS", 443)], 1),
        ([("HTTPS", 80), ("HTTP", 80)], 1),
    ] {
        let objects = || with_route(gateway_with_ports(&listeners));
        let compiled = Cluster::start(1).settle(objects);
        assert!(compiled.own_tables.is_empty(), "{listeners:?}");
        for index in 0..listeners.len() {
            let reason = match index == served {
                true => "Accepted",
                false => "PortUnavailable",
            };
            assert_eq!(read_listener(&compiled, index).0, reason, "{listeners:?}");
        }
    }
}

/// A port may have another use at the addresses of a load balancer, such as those of nodes.
#[test]
fn listener_has_no_other_port_that_the_flag_does_not_name() {
    let listeners = [("HTTP", 80), ("HTTPS", 8443)];
    let mut cluster = Cluster::start(1);
    cluster.other_ports = vec!["8080".parse().unwrap(), "9000-9001".parse().unwrap()];
    let compiled = cluster.settle(|| with_route(gateway_with_ports(&listeners)));
    assert_eq!(read_status(&compiled, "g").1, ["192.0.2.1"]);
    assert!(!cluster.services.contains_key("gw/lb-0"));
    let why = "the port of protocol HTTPS is 443, and the gateway's --gateway-listener-port does \
               not name this one";
    let want = ("PortUnavailable".to_owned(), why.to_owned());
    assert_eq!(read_listener(&compiled, 1), want);
    for (port, is_allowed) in [(22, false), (8080, true), (9001, true), (9002, false)] {
        let mut cluster = Cluster {
            other_ports: cluster.other_ports.clone(),
            ..Cluster::start(1)
        };
        let compiled = cluster.settle(|| with_route(gateway_with_ports(&[("HTTP", port)])));
        assert_eq!(find_own(&compiled, "a-g").is_some(), is_allowed, "{port}");
    }
}

#[test]
fn service_loses_ports_that_the_flag_no_longer_names() {
    for (listeners, left) in [
        (&[("HTTP", 80), ("HTTPS", 8443)][..], &[80][..]),
        (&[("HTTP", 8080)], &[80]),
        (&[("HTTPS", 9443), ("HTTP", 8080)], &[9443]),
    ] {
        let objects = || with_route(gateway_with_ports(listeners));
        let mut cluster = Cluster::start(1);
        cluster.settle(objects);
        cluster.other_ports = vec!["9443".parse().unwrap()];
        cluster.settle(objects);
        let spec = cluster.services["gw/lb-0"].spec.clone().unwrap();
        let ports: Vec<i32> = spec.ports.unwrap().iter().map(|port| port.port).collect();
        assert_eq!(ports, left, "{listeners:?}");
    }
}

#[test]
fn gateway_keeps_its_ports_while_the_service_of_the_gateway_is_no_load_balancer() {
    let mut cluster = Cluster::start(1);
    let objects = || with_route(gateway_with_ports(&[("HTTP", 8080)]));
    cluster.settle(objects);
    cluster.set_model(json!({"type": "NodePort"}));
    for case in ["another type", "missing"] {
        let compiled = cluster.settle(objects);
        assert_eq!(read_listener(&compiled, 0).0, "Accepted", "{case}");
        let own = find_own_rule(&compiled, "a-g", "l0.com");
        assert_eq!(own.as_deref(), Some("a/r"), "{case}");
        cluster.services.remove("gw/lb");
    }
}
