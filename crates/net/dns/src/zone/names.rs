//! Helpers for names below the zone and names of targets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hickory_proto::rr::Name;

/// Returns the labels of a name below `domain`, in lower case; None if it is not below.
pub fn labels_below(domain: &Name, name: &Name) -> Option<Vec<String>> {
    if !domain.zone_of(name) {
        return None;
    }
    // Not `num_labels`, which leaves out a first label `*`.
    let count = name.iter().len().checked_sub(domain.iter().len())?;
    Some(
        name.iter()
            .take(count)
            .map(|label| String::from_utf8_lossy(label).to_lowercase())
            .collect(),
    )
}

/// Builds `labels.domain`.
pub fn name_under(domain: &Name, labels: &[&str]) -> Option<Name> {
    Name::from_ascii(labels.join("."))
        .ok()?
        .append_domain(domain)
        .ok()
}

/// Formats `10-0-0-1`, or `2001-db8--1`.
pub fn dashed_address(address: IpAddr) -> String {
    address.to_string().replace(['.', ':'], "-")
}

/// Parses the result of `dashed_address`.
pub fn parse_dashed(text: &str) -> Option<IpAddr> {
    // IPv4 first: no IPv6 address has the form of four numbers.
    let v4 = text.replace('-', ".").parse::<Ipv4Addr>().map(IpAddr::V4);
    v4.or_else(|_| text.replace('-', ":").parse::<Ipv6Addr>().map(IpAddr::V6))
        .ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn labels_are_those_below_the_domain_in_lower_case() {
        let domain = Name::from_ascii("cluster.local.").unwrap();
        let of = |name: &str| labels_below(&domain, &Name::from_ascii(name).unwrap());
        assert_eq!(of("A.b.Cluster.LOCAL."), Some(vec!["a".into(), "b".into()]));
        assert_eq!(of("cluster.local."), Some(Vec::new()));
        assert_eq!(of("cluster.local.example."), None);
        assert_eq!(of("xcluster.local."), None);
    }

    #[test]
    fn dashed_address_is_parsed_back() {
        for (address, dashed) in [
            ("10.0.0.1", "10-0-0-1"),
            ("2001:db8::1", "2001-db8--1"),
            ("::1", "--1"),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(dashed_address(address), dashed);
            assert_eq!(parse_dashed(dashed), Some(address));
        }
        for text in ["10-0-0", "10-0-0-256", "web", ""] {
            assert_eq!(parse_dashed(text), None, "{text}");
        }
    }
}
