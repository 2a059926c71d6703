//! Warnings about ports of containers that hide each other.

use crate::field::{Path, go_quote};
use crate::pod::visit_containers;
use api_meta::tree::{int, list, text};
use serde_json::Value;
use std::collections::HashMap;

/// A port and the text of its path.
struct Port {
    path: String,
    host_ip: String,
    host_port: i64,
}

/// Warns about ports that are defined twice, and about names that services would find twice.
pub(super) fn warn_about_ports(spec: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    let mut by_number: HashMap<String, Vec<Port>> = HashMap::new();
    let mut by_name: HashMap<String, String> = HashMap::new();
    let mut of_names = Vec::new();
    visit_containers(spec, path, &mut |container, at| {
        let at = at.child("ports");
        for (i, port) in list(container, "ports").iter().enumerate() {
            let at = at.index(i).to_string();
            let key = format!(
                "{}/{}",
                number(port, "containerPort"),
                text(port, "protocol")
            );
            let others = by_number.entry(key).or_default();
            warn_about_port(port, &at, others, warnings);
            warn_about_port_name(text(port, "name"), &at, &mut by_name, &mut of_names);
        }
    });
    warnings.append(&mut of_names);
}

fn number(port: &Value, field: &str) -> i64 {
    int(port, field).unwrap_or(0)
}

fn warn_about_port(port: &Value, at: &str, others: &mut Vec<Port>, warnings: &mut Vec<String>) {
    let (ip, host_port) = (text(port, "hostIP"), number(port, "hostPort"));
    if !ip.is_empty() && host_port == 0 {
        // In the form in which Go prints the port.
        warnings.push(format!(
            "{at}: hostIP set without hostPort: {{Name:{} HostPort:0 ContainerPort:{} Protocol:{} HostIP:{ip}}}",
            text(port, "name"),
            number(port, "containerPort"),
            text(port, "protocol"),
        ));
    }
    for other in others.iter() {
        let is_same_port = host_port == other.host_port;
        let problem = if is_same_port && ip == other.host_ip {
            "duplicate port definition"
        } else if host_port == 0 || other.host_port == 0 {
            "overlapping port definition"
        } else if is_same_port && ip.is_empty() != other.host_ip.is_empty() {
            // An address that is not given means all of them.
            "dangerously ambiguous port definition"
        } else {
            continue;
        };
        warnings.push(format!("{at}: {problem} with {}", other.path));
    }
    others.push(Port {
        path: at.to_owned(),
        host_ip: ip.to_owned(),
        host_port,
    });
}

fn warn_about_port_name(
    name: &str,
    at: &str,
    by_name: &mut HashMap<String, String>,
    warnings: &mut Vec<String>,
) {
    if name.is_empty() {
        return;
    }
    match by_name.get(name) {
        Some(other) => {
            let name = go_quote(name);
            warnings.push(format!("{at}: duplicate port name {name} with {other}, services and probes that select ports by name will use {other}"));
        }
        None => {
            by_name.insert(name.to_owned(), at.to_owned());
        }
    }
}
