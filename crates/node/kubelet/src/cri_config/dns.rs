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
                .retain(|o| o != name && !o.starts_with(&format!("{name}:")));
            dns.options.push(match &option.value {
                Some(value) => format!("{name}:{value}"),
                None => name.clone(),
            });
        }
    }
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
