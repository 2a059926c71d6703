//! Domains with resolvers of their own.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use hickory_proto::rr::Name;

/// Port of resolvers that name none.
const DNS_PORT: u16 = 53;

/// A domain whose names only its own resolvers know, as `stubDomains` of kube-dns and a server
/// block of CoreDNS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StubDomain {
    pub(crate) domain: Name,
    pub(crate) servers: Vec<SocketAddr>,
}

/// A malformed or impossible stub domain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidStubDomain {
    /// There is no `=`.
    #[error("expected DOMAIN=IP[:PORT][,IP[:PORT]...], for instance example.corp=10.0.0.53")]
    Form,
    /// The domain is no name, or the root.
    #[error("{0:?} is not a domain; resolvers of all names are --upstream")]
    Domain(String),
    /// A resolver is no address.
    #[error("{0:?} is not an address, or an address with a port")]
    Server(String),
    /// The domain is the cluster's or below it.
    #[error("{0} is in the cluster's domain, whose names come from the cluster")]
    Cluster(Name),
    /// The domain occurs twice.
    #[error("{0} occurs twice; name all its resolvers in one flag")]
    Repeated(Name),
}

impl FromStr for StubDomain {
    type Err = InvalidStubDomain;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (domain, servers) = text.split_once('=').ok_or(InvalidStubDomain::Form)?;
        let servers = servers
            .split(',')
            .map(parse_server)
            .collect::<Result<_, _>>()?;
        let trimmed = domain.trim_end_matches('.');
        match Name::from_ascii(format!("{trimmed}.")) {
            Ok(name) if !name.is_root() => Ok(Self {
                domain: name.to_lowercase(),
                servers,
            }),
            _ => Err(InvalidStubDomain::Domain(domain.to_owned())),
        }
    }
}

fn parse_server(text: &str) -> Result<SocketAddr, InvalidStubDomain> {
    let address = text.parse::<IpAddr>();
    text.parse()
        .or_else(|_| address.map(|ip| SocketAddr::new(ip, DNS_PORT)))
        .map_err(|_| InvalidStubDomain::Server(text.to_owned()))
}

/// Checks stub domains against the cluster's domain and each other, and sorts them so that the
/// longest of several that match comes first.
pub(crate) fn sort_stub_domains(
    mut domains: Vec<StubDomain>,
    cluster: &Name,
) -> Result<Vec<StubDomain>, InvalidStubDomain> {
    domains.sort_by(|a, b| {
        let labels = b.domain.num_labels().cmp(&a.domain.num_labels());
        labels.then_with(|| a.domain.cmp(&b.domain))
    });
    if let Some(inside) = domains.iter().find(|stub| cluster.zone_of(&stub.domain)) {
        return Err(InvalidStubDomain::Cluster(inside.domain.clone()));
    }
    let pairs = domains.iter().zip(domains.iter().skip(1));
    match pairs.into_iter().find(|(a, b)| a.domain == b.domain) {
        Some((repeated, _)) => Err(InvalidStubDomain::Repeated(repeated.domain.clone())),
        None => Ok(domains),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn stub_domain_is_parsed_with_its_resolvers() {
        for (text, expected) in [
            (
                "example.corp=10.0.0.53,10.0.0.54:5353",
                "example.corp. 10.0.0.53:53 10.0.0.54:5353",
            ),
            (
                "Example.Corp.=fd00::1,[fd00::2]:5353",
                "example.corp. [fd00::1]:53 [fd00::2]:5353",
            ),
            ("10.in-addr.arpa=10.0.0.53", "10.in-addr.arpa. 10.0.0.53:53"),
        ] {
            let StubDomain { domain, servers } = text.parse().unwrap();
            let servers: String = servers.iter().map(|server| format!(" {server}")).collect();
            assert_eq!(format!("{domain}{servers}"), expected, "{text}");
        }
        for (text, problem) in [
            ("example.corp", "expected DOMAIN=IP"),
            ("=10.0.0.53", "is not a domain"),
            (".=10.0.0.53", "is not a domain"),
            ("a..b=10.0.0.53", "is not a domain"),
            ("example.corp=", "is not an address"),
            ("example.corp=10.0.0.53,", "is not an address"),
            ("example.corp=ns.example.corp", "is not an address"),
        ] {
            let error = text.parse::<StubDomain>().unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn longest_domain_comes_first_and_the_cluster_has_none() {
        let cluster = Name::from_ascii("cluster.local.").unwrap();
        let sort = |domains: &[&str]| {
            let stubs = domains
                .iter()
                .map(|domain| format!("{domain}=10.0.0.1").parse().unwrap());
            sort_stub_domains(stubs.collect(), &cluster).map(|sorted| {
                let names = sorted.iter().map(|stub| stub.domain.to_ascii());
                names.collect::<Vec<_>>().join(" ")
            })
        };
        assert_eq!(
            sort(&["corp", "a.corp", "local"]).unwrap(),
            "a.corp. corp. local."
        );
        for (domains, problem) in [
            (["corp", "cluster.local"], "in the cluster's domain"),
            (["corp", "svc.Cluster.local"], "in the cluster's domain"),
            (["corp", "Corp."], "occurs twice"),
        ] {
            let error = sort(&domains).unwrap_err().to_string();
            assert!(error.contains(problem), "{domains:?}: {error}");
        }
    }
}
