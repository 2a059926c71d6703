//! Ownership of host names: a namespace gets no requests for hosts that another one claimed first.
//!
//! A host belongs to the namespace that claimed it first: nothing that another namespace creates
//! later may match requests for it. A wildcard includes the names below it. The pattern of all
//! names, and wildcards of a top-level domain, include no other name: they get the requests that
//! nothing else matches.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::host::HostPattern;
use crate::rule::Age;

/// A claim of a host by a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// Age of the object that names the host.
    pub age: Age,
    /// The host.
    pub host: HostPattern,
    /// Namespace of the object.
    pub namespace: String,
}

/// Maximum size of the record of owners in bytes, in all and for one namespace. A ConfigMap has
/// 1 MiB; a record that can't be written would protect no host after a restart.
const MAX_RECORD: usize = 900 * 1024;
const MAX_RECORD_OF_NAMESPACE: usize = 64 * 1024;

/// Reason for which a namespace does not get a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostRefusal {
    /// Another namespace owns it.
    OtherOwner,
    /// The record of owners has no room for it.
    NoRoom,
}

/// Owners of hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostOwners {
    owners: HashMap<HostPattern, Arc<str>>,
    /// Bytes of the record that each namespace has, and all together.
    sizes: HashMap<Arc<str>, usize>,
    size: usize,
}

impl HostOwners {
    /// Decides the claims. A former owner keeps its hosts while it claims them. Ages of objects
    /// alone can't decide: a host may have been written into an old object later.
    pub fn decide(claims: Vec<Claim>, before: &Self) -> Self {
        let claimed: HashSet<(&HostPattern, &str)> = claims
            .iter()
            .map(|claim| (&claim.host, claim.namespace.as_str()))
            .collect();
        let mut decided = Self::default();
        for (host, namespace) in &before.owners {
            if claimed.contains(&(host, namespace)) {
                decided.insert(host, namespace);
            }
        }
        decided.with_claims(claims)
    }

    /// Decides claims of which some are not known yet. All former owners keep their hosts.
    pub fn decide_incomplete(claims: Vec<Claim>, before: &Self) -> Self {
        before.clone().with_claims(claims)
    }

    /// Returns the namespace as the owner of all hosts, for addresses that only its objects have.
    pub fn of_namespace(namespace: &str) -> Self {
        let mut owners = Self::default();
        owners.insert(&HostPattern::Any, namespace);
        owners
    }

    /// Adds the claims of hosts that are free, the oldest first.
    fn with_claims(mut self, mut claims: Vec<Claim>) -> Self {
        claims.sort();
        for claim in claims {
            let other = self.find_other_owner(&claim.host, &claim.namespace);
            if other.is_none() && self.has_room(&claim.host, &claim.namespace) {
                self.insert(&claim.host, &claim.namespace);
            }
        }
        self
    }

    fn insert(&mut self, host: &HostPattern, namespace: &str) {
        if self.owners.contains_key(host) {
            return;
        }
        let known = self.sizes.get_key_value(namespace);
        let namespace = known.map_or_else(|| namespace.into(), |(known, _)| known.clone());
        let size = record_size(host, &namespace);
        *self.sizes.entry(namespace.clone()).or_default() += size;
        self.size += size;
        self.owners.insert(host.clone(), namespace);
    }

    fn has_room(&self, host: &HostPattern, namespace: &str) -> bool {
        let size = record_size(host, namespace);
        let used = self.sizes.get(namespace).copied().unwrap_or_default();
        used + size <= MAX_RECORD_OF_NAMESPACE && self.size + size <= MAX_RECORD
    }

    /// Returns the hosts with their owners.
    pub fn iter(&self) -> impl Iterator<Item = (&HostPattern, &Arc<str>)> {
        self.owners.iter()
    }

    /// Returns the namespace that owns a host: that of the most specific pattern which includes it
    /// and has an owner. A wider pattern that is claimed later changes no owner.
    fn find_owner(&self, host: &HostPattern) -> Option<&str> {
        let including = host.including_patterns();
        let mut owners = including.iter().filter_map(|host| self.owners.get(host));
        owners.next().map(AsRef::as_ref)
    }

    /// Returns the namespace that owns a host, if that is another.
    pub fn find_other_owner(&self, host: &HostPattern, namespace: &str) -> Option<&str> {
        self.find_owner(host).filter(|owner| *owner != namespace)
    }

    /// Returns the reason for which a namespace does not get a host that it claims.
    pub fn refuse(&self, host: &HostPattern, namespace: &str) -> Option<HostRefusal> {
        match self.find_owner(host) {
            Some(owner) if owner == namespace => None,
            Some(_) => Some(HostRefusal::OtherOwner),
            None => Some(HostRefusal::NoRoom),
        }
    }

    /// Adds owners from `others` for hosts without one.
    pub fn add_missing(&mut self, others: &Self) {
        for (host, namespace) in &others.owners {
            if self.find_other_owner(host, namespace).is_none() {
                self.insert(host, namespace);
            }
        }
    }

    /// Returns the text of a record. The order of hosts is fixed, so that equal records have equal
    /// texts.
    pub fn encode(&self) -> String {
        let entries = self.owners.iter();
        let sorted: BTreeMap<String, &str> = entries
            .map(|(host, namespace)| (encode_host(host), namespace.as_ref()))
            .collect();
        // A map of strings can always be encoded.
        serde_json::to_string(&sorted).unwrap_or_default()
    }

    /// Reads a record. Hosts that can't be read have no owner.
    pub fn decode(text: &str) -> Self {
        let read: BTreeMap<String, String> = serde_json::from_str(text).unwrap_or_default();
        let mut owners = Self::default();
        for (host, namespace) in &read {
            if let Some(host) = decode_host(host) {
                owners.insert(&host, namespace);
            }
        }
        owners
    }
}

/// Returns the bytes of an entry of the record, with quotes and separators.
fn record_size(host: &HostPattern, namespace: &str) -> usize {
    encode_host(host).len() + namespace.len() + 6
}

/// Wildcards of the Gateway API, which include more names, have two asterisks in a record.
fn encode_host(host: &HostPattern) -> String {
    match host {
        HostPattern::Labels(_) => format!("*{host}"),
        _ => host.to_string(),
    }
}

fn decode_host(text: &str) -> Option<HostPattern> {
    match (text, text.strip_prefix("**.")) {
        ("*", _) => Some(HostPattern::Any),
        (_, Some(suffix)) => HostPattern::parse_gateway(&format!("*.{suffix}")),
        // An empty name would be the pattern of all names.
        (text, None) => HostPattern::parse_ingress(text).filter(|_| !text.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn claim(created: i64, namespace: &str, host: &str) -> Claim {
        Claim {
            age: Age {
                created,
                key: format!("{namespace}/x"),
            },
            host: HostPattern::parse_gateway(host).unwrap(),
            namespace: namespace.to_owned(),
        }
    }

    #[test]
    fn host_belongs_to_the_oldest_claim_that_includes_it() {
        for (older, newer, is_refused) in [
            ("a.com", "a.com", true),
            ("*.a.com", "x.a.com", true),
            ("*.a.com", "x.y.a.com", true),
            ("*.a.com", "*.y.a.com", true),
            ("x.a.com", "*.a.com", false),
            ("*.a.com", "a.com", false),
            ("", "a.com", false),
            ("", "", true),
            ("a.com", "b.com", false),
            // A top-level domain has no owner.
            ("*.com", "a.com", false),
            ("*.com", "*.a.com", false),
            ("*.com", "*.com", true),
        ] {
            let claims = vec![claim(2, "new", newer), claim(1, "old", older)];
            let owners = HostOwners::decide(claims, &HostOwners::default());
            let find = |host, namespace| {
                owners.find_other_owner(&HostPattern::parse_gateway(host).unwrap(), namespace)
            };
            assert_eq!(
                find(newer, "new"),
                is_refused.then_some("old"),
                "{older} {newer}"
            );
            assert_eq!(find(older, "old"), None, "{older} {newer}");
        }
    }

    #[test]
    fn ingress_wildcard_includes_one_label() {
        let wildcard = Claim {
            host: HostPattern::parse_ingress("*.a.com").unwrap(),
            ..claim(1, "old", "")
        };
        let owners = HostOwners::decide(vec![wildcard], &HostOwners::default());
        for (host, owner) in [("x.a.com", Some("old")), ("x.y.a.com", None)] {
            let host = HostPattern::parse_ingress(host).unwrap();
            assert_eq!(owners.find_other_owner(&host, "new"), owner, "{host}");
        }
    }

    /// Both own the names with one label: the later claim would take them all.
    #[test]
    fn wildcards_of_both_kinds_before_one_suffix_have_one_owner() {
        for suffix in ["corp", "x.corp"] {
            let text = format!("*.{suffix}");
            let of_ingress = |age| Claim {
                host: HostPattern::parse_ingress(&text).unwrap(),
                ..claim(age, "ingress", "")
            };
            let of_gateway = |age| claim(age, "gateway", &text);
            let gateway_first = vec![of_gateway(1), of_ingress(2)];
            let owners = HostOwners::decide(gateway_first, &HostOwners::default());
            let refusal = owners.refuse(&of_ingress(2).host, "ingress");
            assert_eq!(refusal, Some(HostRefusal::OtherOwner), "{text}");
            assert_eq!(owners.encode(), format!(r#"{{"*{text}":"gateway"}}"#));
            // The wider wildcard that is claimed later gets the other names only.
            let ingress_first = vec![of_gateway(2), of_ingress(1)];
            let owners = HostOwners::decide(ingress_first, &HostOwners::default());
            for (age, namespace) in [(1, "ingress"), (2, "gateway")] {
                let host = match namespace {
                    "ingress" => of_ingress(age).host,
                    _ => of_gateway(age).host,
                };
                assert_eq!(owners.refuse(&host, namespace), None, "{text} {namespace}");
            }
        }
    }

    #[test]
    fn owner_keeps_a_host_that_an_older_object_claims_later() {
        let first = HostOwners::decide(vec![claim(5, "owner", "a.com")], &HostOwners::default());
        let both = vec![claim(1, "edited", "a.com"), claim(5, "owner", "a.com")];
        let host = HostPattern::parse_gateway("a.com").unwrap();
        let second = HostOwners::decide(both.clone(), &first);
        assert_eq!(second.find_other_owner(&host, "edited"), Some("owner"));
        // The host is free once its owner no longer claims it.
        let third = HostOwners::decide(vec![both[0].clone()], &second);
        assert_eq!(third.find_other_owner(&host, "edited"), None);
    }

    #[test]
    fn owner_keeps_a_host_while_its_claims_are_not_known() {
        let first = HostOwners::decide(vec![claim(5, "owner", "a.com")], &HostOwners::default());
        let known = vec![claim(1, "other", "a.com"), claim(1, "other", "b.com")];
        let second = HostOwners::decide_incomplete(known, &first);
        assert_eq!(second.encode(), r#"{"a.com":"owner","b.com":"other"}"#);
    }

    #[test]
    fn later_and_wider_wildcard_denies_no_name_below_an_older_one() {
        let claims = |hosts: &[(&str, &str)]| -> Vec<Claim> {
            let all = hosts.iter().enumerate();
            all.map(|(n, (namespace, host))| claim(n as i64, namespace, host))
                .collect()
        };
        let hosts = [("a", "*.y.a.com"), ("b", "*.a.com")];
        let first = HostOwners::decide(claims(&hosts), &HostOwners::default());
        let hosts = [hosts[0], hosts[1], ("a", "z.y.a.com"), ("b", "x.y.a.com")];
        let second = HostOwners::decide(claims(&hosts), &first);
        for (host, owner) in [("z.y.a.com", "a"), ("x.y.a.com", "a"), ("z.a.com", "b")] {
            let host = HostPattern::parse_gateway(host).unwrap();
            assert_eq!(second.find_owner(&host), Some(owner), "{host}");
        }
    }

    #[test]
    fn record_stays_writable_and_keeps_its_owners_when_there_is_no_room() {
        let suffix = vec!["x".repeat(50); 4].join(".");
        let claim_names = |namespace: String, count: usize| -> Vec<Claim> {
            let hosts = (0..count).map(|n| format!("{n}.{namespace}.{suffix}"));
            hosts.map(|host| claim(2, &namespace, &host)).collect()
        };
        let first = HostOwners::decide(vec![claim(9, "old", "old.com")], &HostOwners::default());
        let many = (0..20).flat_map(|n| claim_names(format!("n{n}"), 500));
        let late = claim_names("old".to_owned(), 1);
        let claims = many.chain(late.clone()).chain([claim(9, "old", "old.com")]);
        let second = HostOwners::decide(claims.collect(), &first);
        assert!(second.encode().len() <= MAX_RECORD + 2);
        let sizes: Vec<usize> = second.sizes.values().copied().collect();
        assert!(
            sizes.iter().all(|size| *size <= MAX_RECORD_OF_NAMESPACE),
            "{sizes:?}"
        );
        let old = HostPattern::parse_gateway("old.com").unwrap();
        assert_eq!(second.refuse(&old, "old"), None);
        assert_eq!(
            second.refuse(&late[0].host, "old"),
            Some(HostRefusal::NoRoom)
        );
    }

    #[test]
    fn record_has_all_kinds_of_patterns() {
        let one_label = Claim {
            host: HostPattern::parse_ingress("*.b.com").unwrap(),
            ..claim(1, "b", "")
        };
        let claims = vec![
            claim(1, "a", "a.com"),
            claim(1, "c", "*.c.com"),
            claim(1, "d", ""),
            one_label,
        ];
        let owners = HostOwners::decide(claims, &HostOwners::default());
        let text = owners.encode();
        assert_eq!(
            text,
            r#"{"*":"d","**.c.com":"c","*.b.com":"b","a.com":"a"}"#
        );
        assert_eq!(HostOwners::decode(&text), owners);
        for broken in ["", "[]", r#"{"": "x"}"#, r#"{"a b": "x"}"#] {
            assert_eq!(
                HostOwners::decode(broken),
                HostOwners::default(),
                "{broken}"
            );
        }
    }

    #[test]
    fn record_counts_more_than_what_a_process_remembers() {
        let owned = |namespace, host| {
            HostOwners::decide(vec![claim(1, namespace, host)], &HostOwners::default())
        };
        let mut record = owned("a", "a.com");
        record.add_missing(&owned("b", "a.com"));
        record.add_missing(&owned("b", "b.com"));
        assert_eq!(record.encode(), r#"{"a.com":"a","b.com":"b"}"#);
    }
}
