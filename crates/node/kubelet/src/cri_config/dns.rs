//! The pod's resolv.conf for each dnsPolicy.

use crate::config::Settings;
use crate::pod::spec;
use k8s_openapi::api::core::v1::Pod;
use node_runtime::v1::DnsConfig;

const MAX_SERVERS: usize = 3;

/// Returns the DNS configuration of a pod; `node` is the content of the node's resolv.conf.
pub(crate) fn build_dns_config(pod: &Pod, settings: &Settings, node: &str) -> DnsConfig {
    let own = parse_resolv_conf(node);
    let policy = spec::read_spec(pod)
        .dns_policy
        .as_deref()
        .unwrap_or("ClusterFirst");
    // Without a configured server upstream falls back to the node's resolver, too.
    let cluster = !settings.cluster_dns.is_empty()
        && (policy == "ClusterFirstWithHostNet"
            || policy == "ClusterFirst" && !spec::host_network(pod));
    let mut dns = match policy {
        "None" => DnsConfig::default(),
        _ if cluster => build_cluster_dns(pod, settings, own),
        _ => own,
    };
    if let Some(config) = &spec::read_spec(pod).dns_config {
        extend_unique(&mut dns.servers, config.nameservers.iter().flatten());
        extend_unique(&mut dns.searches, config.searches.iter().flatten());
        for option in config.options.iter().flatten() {
            let Some(name) = &option.name else { continue };
            dns.options
                // An option of the pod replaces the one of the policy, such as ndots.
                .retain(|o| o != name && !o.starts_with(&format!("{name}:")));
            dns.options.push(match &option.value {
                Some(value) => format!("{name}:{value}"),
                None => name.clone(),
            });
        }
    }
    // The C library reads three; upstream also drops the rest.
    dns.servers.truncate(MAX_SERVERS);
    dns
}

fn build_cluster_dns(pod: &Pod, settings: &Settings, own: DnsConfig) -> DnsConfig {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let domain = &settings.cluster_domain;
    let mut searches = vec![
        format!("{namespace}.svc.{domain}"),
        format!("svc.{domain}"),
        domain.clone(),
    ];
    extend_unique(&mut searches, own.searches.iter());
    DnsConfig {
        servers: settings.cluster_dns.clone(),
        searches,
        options: vec!["ndots:5".into()],
    }
}

fn extend_unique<'a>(list: &mut Vec<String>, more: impl Iterator<Item = &'a String>) {
    for item in more {
        if !list.contains(item) {
            list.push(item.clone());
        }
    }
}

/// Parses a resolv.conf.
pub(crate) fn parse_resolv_conf(text: &str) -> DnsConfig {
    let mut dns = DnsConfig::default();
    for line in text.lines() {
        let mut words = line.split_whitespace().map(str::to_owned);
        match words.next().as_deref() {
            Some("nameserver") => dns.servers.extend(words.next()),
            Some("search" | "domain") => dns.searches = words.filter(|w| w != ".").collect(),
            Some("options") => dns.options.extend(words),
            _ => {}
        }
    }
    dns
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    const NODE: &str = "nameserver 192.0.2.53\nsearch example.com\noptions ndots:2 rotate\n";

    fn dns(spec: Value) -> DnsConfig {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings {
            cluster_dns: vec!["10.96.0.10".into()],
            ..crate::testing::settings(dir.path())
        };
        let mut spec = spec;
        spec["containers"] = json!([]);
        build_dns_config(&crate::testing::pod(spec), &settings, NODE)
    }

    #[test]
    fn dns_policy_decides_between_cluster_and_node() {
        let cluster = (vec!["10.96.0.10".to_owned()], 4);
        let node = (vec!["192.0.2.53".to_owned()], 1);
        for (spec, expected) in [
            (json!({}), &cluster),
            (json!({"dnsPolicy": "ClusterFirst"}), &cluster),
            (json!({"dnsPolicy": "Default"}), &node),
            // The node's resolver may not know the cluster's domain, so a pod must ask for it.
            (
                json!({"dnsPolicy": "ClusterFirst", "hostNetwork": true}),
                &node,
            ),
            (
                json!({"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": true}),
                &cluster,
            ),
            (json!({"dnsPolicy": "None"}), &(Vec::new(), 0)),
        ] {
            let found = dns(spec.clone());
            assert_eq!(&(found.servers, found.searches.len()), expected, "{spec}");
        }
    }

    #[test]
    fn search_list_of_the_cluster_comes_before_that_of_the_node() {
        let found = dns(json!({}));
        let expected = [
            "ns.svc.cluster.local",
            "svc.cluster.local",
            "cluster.local",
            "example.com",
        ];
        assert_eq!(found.searches, expected);
        assert_eq!(found.options, ["ndots:5"]);
    }

    #[test]
    fn dns_config_of_the_pod_is_merged() {
        let found = dns(json!({"dnsConfig": {
            "nameservers": ["1.1.1.1", "10.96.0.10", "2.2.2.2", "3.3.3.3"],
            "searches": ["svc.cluster.local", "own.example"],
            "options": [{"name": "ndots", "value": "1"}, {"name": "edns0"}]}}));
        assert_eq!(
            found.servers,
            ["10.96.0.10", "1.1.1.1", "2.2.2.2"],
            "resolvers read three"
        );
        assert_eq!(
            found.searches.last().map(String::as_str),
            Some("own.example")
        );
        assert_eq!(found.searches.len(), 5);
        assert_eq!(found.options, ["ndots:1", "edns0"]);
    }

    #[test]
    fn last_search_line_of_a_resolv_conf_counts() {
        let parsed = parse_resolv_conf("domain a\n# x\nsearch b c .\nnameserver 1.1.1.1\n");
        assert_eq!(parsed.searches, ["b", "c"]);
        assert_eq!(parsed.servers, ["1.1.1.1"]);
    }
}
