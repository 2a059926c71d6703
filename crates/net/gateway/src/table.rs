//! The routing table: hosts, their rules and certificates. A table never changes; each change of an
//! object makes a new one.

use std::collections::HashMap;
use std::sync::Arc;

use base_tls::rustls::sign::CertifiedKey;
use http::header::HeaderMap;
use http::{Method, Uri};

use crate::claims::HostOwners;
use crate::host::{HostMap, HostPattern};
use crate::placement::Slot;
use crate::rule::{Rule, VirtualHost};

/// Protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Without TLS.
    Http,
    /// With TLS.
    Https,
}

impl Scheme {
    /// Returns the scheme of URLs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// Returns the `protocol` of listeners.
    pub fn protocol(self) -> &'static str {
        match self {
            Self::Http => "HTTP",
            Self::Https => "HTTPS",
        }
    }
}

/// Rules of a host on a listener.
#[derive(Clone, Debug)]
pub struct HostRules {
    /// Number of the Gateway's own Service; `None` at the addresses that Gateways share.
    pub slot: Option<Slot>,
    /// Namespace that owns the host.
    pub namespace: Arc<str>,
    /// Hosts of the listener.
    pub listener: HostPattern,
    /// Hosts of the rules: those of the route that are the listener's, too.
    pub host: HostPattern,
    /// Protocols.
    pub schemes: Vec<Scheme>,
    /// The rules, shared with other hosts of the same object.
    pub rules: Arc<[Arc<Rule>]>,
}

/// A certificate for hosts of a namespace.
#[derive(Clone, Debug)]
pub struct HostCertificate {
    /// Number of the Gateway's own Service; `None` at the addresses that Gateways share.
    pub slot: Option<Slot>,
    /// Namespace that owns the hosts.
    pub namespace: Arc<str>,
    /// The hosts.
    pub host: HostPattern,
    /// The certificate.
    pub certificate: Arc<CertifiedKey>,
}

/// Listeners by host, and in each the rules by host.
type Listeners = HostMap<HostMap<VirtualHost>>;

/// Listeners and certificates of a namespace.
#[derive(Debug, Default)]
struct NamespaceHosts {
    http: Listeners,
    https: Listeners,
    certificates: HostMap<Option<Arc<CertifiedKey>>>,
}

/// The routing table.
///
/// The owner of a host is found first, and then its listener. A more specific listener of another
/// namespace must not get the requests for a host that it does not own, nor show its certificate.
#[derive(Debug, Default)]
pub struct RoutingTable {
    owners: HostMap<Option<Arc<str>>>,
    namespaces: HashMap<Arc<str>, NamespaceHosts>,
    /// The first certificate for all hosts, for those that nothing claims.
    default_certificate: Option<Arc<CertifiedKey>>,
    rules: usize,
}

impl RoutingTable {
    /// Builds the table. Of several certificates for a host, the first counts.
    pub fn build(
        hosts: Vec<HostRules>,
        certificates: Vec<HostCertificate>,
        owners: &HostOwners,
    ) -> Self {
        let mut table = Self::default();
        for (host, namespace) in owners.iter() {
            *table.owners.get_or_default(host) = Some(namespace.clone());
        }
        for entry in hosts {
            table.rules += entry.rules.len();
            let own = table.namespaces.entry(entry.namespace).or_default();
            for scheme in &entry.schemes {
                let listeners = match scheme {
                    Scheme::Http => &mut own.http,
                    Scheme::Https => &mut own.https,
                };
                let hosts = listeners.get_or_default(&entry.listener);
                let host = hosts.get_or_default(&entry.host);
                for rule in entry.rules.iter() {
                    host.add_rule(rule.clone());
                }
            }
        }
        for own in table.namespaces.values_mut() {
            for listeners in [&mut own.http, &mut own.https] {
                let hosts = listeners.values_mut().flat_map(|hosts| hosts.values_mut());
                hosts.for_each(VirtualHost::sort_rules);
            }
        }
        for entry in certificates {
            if entry.host == HostPattern::Any {
                let default = &mut table.default_certificate;
                default.get_or_insert_with(|| entry.certificate.clone());
            }
            let own = table.namespaces.entry(entry.namespace).or_default();
            let place = own.certificates.get_or_default(&entry.host);
            place.get_or_insert(entry.certificate);
        }
        table
    }

    /// Returns the hosts of the namespace that owns a normalized host.
    fn find_owner(&self, host: &str) -> Option<&NamespaceHosts> {
        let namespace = self.owners.find(host)?.as_ref()?;
        self.namespaces.get(namespace)
    }

    /// Returns the rule for a request to a normalized host. The most specific listener of its owner
    /// decides, and in it the most specific host: others are not tried.
    pub fn find_rule(
        &self,
        scheme: Scheme,
        host: &str,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Option<&Rule> {
        let own = self.find_owner(host)?;
        let listeners = match scheme {
            Scheme::Http => &own.http,
            Scheme::Https => &own.https,
        };
        let host = listeners.find(host)?.find(host)?;
        host.find_rule(method, uri, headers)
    }

    /// Returns the certificate of the owner of a normalized host. A host without an owner has the
    /// one of the oldest listener for all hosts.
    pub fn find_certificate(&self, host: &str) -> Option<Arc<CertifiedKey>> {
        match self.owners.find(host) {
            Some(Some(namespace)) => {
                let own = self.namespaces.get(namespace)?;
                own.certificates.find(host)?.clone()
            }
            _ => self.default_certificate.clone(),
        }
    }

    /// Returns the number of rules.
    pub fn rule_count(&self) -> usize {
        self.rules
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::claims::Claim;
    use crate::path_match::PathMatch;
    use crate::rule::{Age, RequestMatch};

    /// Returns a table whose hosts are all owned.
    pub(crate) fn build_owned(hosts: Vec<HostRules>) -> RoutingTable {
        let claims = hosts.iter().map(|entry| Claim {
            age: Age {
                created: 1,
                key: String::new(),
            },
            host: entry.host.clone(),
            namespace: entry.namespace.to_string(),
        });
        let owners = HostOwners::decide(claims.collect(), &HostOwners::default());
        RoutingTable::build(hosts, Vec::new(), &owners)
    }

    pub(crate) fn entry(
        name: &str,
        listener: &str,
        host: &str,
        path: &str,
        schemes: &[Scheme],
    ) -> HostRules {
        let parse = |host| HostPattern::parse_gateway(host).unwrap();
        let rule = Rule {
            matches: RequestMatch::of_path(PathMatch::prefix(path)),
            is_fallback: false,
            age: Age {
                created: 1,
                key: name.to_owned(),
            },
            index: 0,
            action: Arc::default(),
        };
        HostRules {
            slot: None,
            namespace: "n".into(),
            listener: parse(listener),
            host: parse(host),
            schemes: schemes.to_vec(),
            rules: [Arc::new(rule)].into(),
        }
    }

    #[test]
    fn most_specific_listener_and_host_decide_alone() {
        use Scheme::{Http, Https};
        let table = build_owned(vec![
            entry("all", "", "", "/", &[Http]),
            entry("wide", "*.a.com", "*.a.com", "/", &[Http]),
            entry("hidden", "*.a.com", "x.a.com", "/", &[Http]),
            entry("exact", "x.a.com", "x.a.com", "/only", &[Http]),
            entry("tls", "", "", "/", &[Https]),
        ]);
        for (scheme, host, path, want) in [
            (Http, "b.com", "/", Some("all")),
            (Http, "y.a.com", "/", Some("wide")),
            (Http, "x.a.com", "/only", Some("exact")),
            (Http, "x.a.com", "/", None),
            (Https, "x.a.com", "/only", Some("tls")),
        ] {
            let uri = path.parse().unwrap();
            let found = table.find_rule(scheme, host, &Method::GET, &uri, &HeaderMap::new());
            let found = found.map(|rule| rule.age.key.as_str());
            assert_eq!(found, want, "{scheme:?} {host} {path}");
        }
    }
}
