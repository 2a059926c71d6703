//! Host names and /etc/hosts.

use crate::pod::spec;
use k8s_openapi::api::core::v1::Pod;
use std::fmt::Write;

/// Maximum length of a host name on Linux.
const MAX_HOST_NAME: usize = 63;

/// The host names of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    /// Value for the `hostname` command.
    pub(crate) hostname: String,
    /// Fully qualified name beneath the subdomain's Service, if the pod has a subdomain.
    pub(crate) fqdn: Option<String>,
    /// Short name for /etc/hosts.
    pub(crate) short: String,
}

pub(crate) fn choose_names(pod: &Pod, cluster_domain: &str, node: &str) -> Names {
    let s = spec::read_spec(pod);
    if spec::host_network(pod) {
        return Names {
            hostname: node.to_owned(),
            fqdn: None,
            short: node.to_owned(),
        };
    }
    // KEP-4762: the override replaces name, subdomain and FQDN.
    if let Some(own) = s.hostname_override.as_deref().filter(|h| !h.is_empty()) {
        return Names {
            hostname: own.to_owned(),
            fqdn: None,
            short: own.to_owned(),
        };
    }
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let short = s
        .hostname
        .as_deref()
        .filter(|h| !h.is_empty())
        .unwrap_or(name);
    // Names of pods have up to 253 characters.
    let short: String = short
        .chars()
        .take(MAX_HOST_NAME)
        .collect::<String>()
        .trim_end_matches(['-', '.'])
        .to_owned();
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let subdomain = s.subdomain.as_deref().filter(|d| !d.is_empty());
    let fqdn = subdomain.map(|sub| format!("{short}.{sub}.{namespace}.svc.{cluster_domain}"));
    let hostname = match &fqdn {
        Some(fqdn) if s.set_hostname_as_fqdn == Some(true) => fqdn.clone(),
        _ => short.clone(),
    };
    Names {
        hostname,
        fqdn,
        short,
    }
}

/// Returns the content of /etc/hosts; a pod on the host network gets the node's file.
pub(crate) fn format_hosts_file(
    pod: &Pod,
    names: &Names,
    ips: &[String],
    node_file: &str,
) -> String {
    // A copy of the node's file: aliases of the pod must not be added to the node's own.
    let mut text = if spec::host_network(pod) {
        format!("# Kubernetes-managed hosts file (host network).\n{node_file}")
    } else {
        format_own_file(names, ips)
    };
    let aliases = spec::read_spec(pod)
        .host_aliases
        .as_deref()
        .unwrap_or_default();
    if !aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
    }
    for alias in aliases {
        // Writing to a String can't fail.
        let _ = writeln!(
            text,
            "{}\t{}",
            alias.ip,
            alias.hostnames.clone().unwrap_or_default().join("\t")
        );
    }
    text
}

fn format_own_file(names: &Names, ips: &[String]) -> String {
    let mut text = String::from(
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
         fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n",
    );
    for ip in ips {
        let _ = match &names.fqdn {
            Some(fqdn) => writeln!(text, "{ip}\t{fqdn}\t{}", names.short),
            None => writeln!(text, "{ip}\t{}", names.short),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn pod(spec: Value) -> Pod {
        let metadata = json!({"name": "web-0", "namespace": "ns"});
        let mut pod = json!({"metadata": metadata, "spec": spec});
        pod["spec"]["containers"] = json!([]);
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn host_name_is_that_of_the_pod_unless_the_spec_names_another() {
        let fqdn = Some("web-0.sub.ns.svc.cluster.local");
        for (spec, hostname, expected_fqdn) in [
            (json!({}), "web-0", None),
            (json!({"hostname": "h"}), "h", None),
            (json!({"subdomain": "sub"}), "web-0", fqdn),
            (
                json!({"subdomain": "sub", "setHostnameAsFQDN": true}),
                "web-0.sub.ns.svc.cluster.local",
                fqdn,
            ),
            (json!({"hostNetwork": true, "subdomain": "sub"}), "n1", None),
            (
                json!({"hostnameOverride": "own.example", "hostname": "h"}),
                "own.example",
                None,
            ),
        ] {
            let names = choose_names(&pod(spec.clone()), "cluster.local", "n1");
            let found = (names.hostname.as_str(), names.fqdn.as_deref());
            assert_eq!(found, (hostname, expected_fqdn), "{spec}");
        }
    }

    /// The kernel's limit; a name may not end with a dash or dot after the cut.
    #[test]
    fn long_host_name_is_cut_at_63_characters() {
        let long = format!("{}-tail", "a".repeat(62));
        let mut pod = pod(json!({}));
        pod.metadata.name = Some(long);
        let names = choose_names(&pod, "cluster.local", "n1");
        assert_eq!(names.hostname, "a".repeat(62));
    }

    #[test]
    fn hosts_file_has_the_addresses_and_the_aliases() {
        let pod = pod(json!({"subdomain": "sub",
            "hostAliases": [{"ip": "1.2.3.4", "hostnames": ["x", "y"]}]}));
        let names = choose_names(&pod, "cluster.local", "n1");
        let ips = ["10.0.0.1".to_owned(), "fd00::1".to_owned()];
        let text = format_hosts_file(&pod, &names, &ips, "");
        assert!(text.starts_with("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"));
        for line in [
            "10.0.0.1\tweb-0.sub.ns.svc.cluster.local\tweb-0",
            "fd00::1\tweb-0.sub.ns.svc.cluster.local\tweb-0",
            "# Entries added by HostAliases.",
            "1.2.3.4\tx\ty",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is not in {text}"
            );
        }
    }

    #[test]
    fn pod_of_the_host_network_has_the_hosts_file_of_the_node() {
        let pod = pod(json!({"hostNetwork": true}));
        let names = choose_names(&pod, "cluster.local", "n1");
        let text = format_hosts_file(&pod, &names, &[], "192.0.2.1 n1\n");
        assert_eq!(
            text,
            "# Kubernetes-managed hosts file (host network).\n192.0.2.1 n1\n"
        );
    }
}
