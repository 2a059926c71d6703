//! The search path of a pod, tried on the server.
//!
//! A pod resolves a short name by its search path: `NAMESPACE.svc.DOMAIN`, `svc.DOMAIN`, `DOMAIN`,
//! and then the name itself. The first request of that series tells the rest, so that the server
//! can answer with an alias to the name that exists, instead of denying one name after the other.

use hickory_proto::op::Message;
use hickory_proto::rr::rdata::CNAME;
use hickory_proto::rr::{Name, RData, Record, RecordType};

use crate::reply::{Reply, empty_response};
use crate::zone::{Answer, TTL, View, resolve_name, soa_record};
use hickory_proto::op::ResponseCode;

/// Search paths of the cluster's pods.
#[derive(Debug, Clone)]
pub struct SearchPaths {
    /// True if search domains of the node stand between those of the cluster and the name itself.
    /// The client tries them.
    pub has_node_domains: bool,
}

impl SearchPaths {
    /// Returns the reply to a request for a name that does not exist, if it is the first one of a
    /// pod's search path and a later name exists, or may exist outside of the cluster.
    ///
    /// `namespace` is that of the pod.
    pub fn follow(
        &self,
        view: &dyn View,
        domain: &Name,
        request: &Message,
        namespace: &str,
    ) -> Option<Reply> {
        let query = request.queries.first()?;
        let kind = query.query_type();
        if !matches!(kind, RecordType::A | RecordType::AAAA) {
            return None;
        }
        let base = strip_first_domain(query.name(), domain, namespace)?;
        for candidate in self.later_names(&base, domain) {
            let record = RData::CNAME(CNAME(candidate.clone()));
            let alias = Record::from_rdata(query.name().clone(), TTL, record);
            let mut message = empty_response(request, ResponseCode::NoError);
            message.add_answer(alias);
            match resolve_name(view, domain, &candidate, kind) {
                Answer::NxDomain => continue,
                Answer::NoData => {
                    message.add_authority(soa_record(domain));
                }
                Answer::Records { answers, .. } => {
                    message.add_answers(answers);
                }
                Answer::Alias { record, target } => {
                    message.add_answer(record);
                    return Some(Reply::Follow(Box::new(message), target, kind));
                }
                Answer::Elsewhere => {
                    return Some(Reply::Search(Box::new(message), candidate, kind));
                }
            }
            message.metadata.authoritative = true;
            return Some(Reply::Ready(Box::new(message)));
        }
        None
    }

    /// Returns the names of the search path behind the first one.
    fn later_names(&self, base: &Name, domain: &Name) -> Vec<Name> {
        let services = Name::from_ascii("svc").and_then(|svc| svc.append_domain(domain));
        let domains = services.iter().chain([domain]);
        let mut names: Vec<Name> = domains
            .filter_map(|domain| base.clone().append_domain(domain).ok())
            .collect();
        if !self.has_node_domains {
            let mut absolute = base.clone();
            absolute.set_fqdn(true);
            names.push(absolute);
        }
        names
    }
}

/// Returns the labels before `NAMESPACE.svc.DOMAIN`, as a relative name. None if there are none.
fn strip_first_domain(name: &Name, domain: &Name, namespace: &str) -> Option<Name> {
    let first = Name::from_ascii(format!("{namespace}.svc")).ok()?;
    let first = first.append_domain(domain).ok()?;
    // Not `num_labels`, which leaves out a first label `*`.
    let labels = name.iter().len().checked_sub(first.iter().len())?;
    if labels == 0 || !first.zone_of(name) {
        return None;
    }
    let mut base = Name::from_labels(name.iter().take(labels)).ok()?;
    base.set_fqdn(false);
    Some(base)
}

/// Makes the reply to a search whose last name does not exist either: that of its first name.
pub(crate) fn deny(message: &mut Message, domain: &Name) {
    message.answers.clear();
    message.authorities.clear();
    message.additionals.clear();
    message.metadata.response_code = ResponseCode::NXDomain;
    message.metadata.authoritative = true;
    message.metadata.truncation = false;
    message.add_authority(soa_record(domain));
}

/// Returns whether a `resolv.conf` has search domains.
pub fn has_search_domains(resolv_conf: &str) -> bool {
    resolv_conf.lines().any(|line| {
        let mut words = line.split_whitespace();
        let is_list = matches!(words.next(), Some("search" | "domain"));
        // The root is no domain that a name could be below.
        is_list && words.any(|domain| domain != ".")
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::test_server::request;
    use crate::zone::tests::cluster;

    const PATHS: SearchPaths = SearchPaths {
        has_node_domains: false,
    };

    fn follow(paths: &SearchPaths, name: &str, kind: RecordType, namespace: &str) -> String {
        let domain = Name::from_ascii("cluster.local.").unwrap();
        let request = request(name, kind);
        let texts = |message: &Message| {
            let texts = message.answers.iter().map(|record| record.data.to_string());
            texts.collect::<Vec<_>>().join(" ")
        };
        match paths.follow(&cluster(), &domain, &request, namespace) {
            None => "none".to_owned(),
            Some(Reply::Ready(message)) => format!("ready {}", texts(&message)),
            Some(Reply::Search(message, name, _)) => format!("search {} {name}", texts(&message)),
            Some(Reply::Follow(message, name, _)) => format!("follow {} {name}", texts(&message)),
            Some(_) => "other".to_owned(),
        }
    }

    #[test]
    fn first_name_of_the_search_path_leads_to_the_one_that_exists() {
        let a = RecordType::A;
        for (name, kind, namespace, expect) in [
            (
                "w.ns.other.svc.cluster.local.",
                a,
                "other",
                "ready w.ns.svc.cluster.local. 10.96.0.7",
            ),
            (
                "w.ns.svc.other.svc.cluster.local.",
                a,
                "other",
                "ready w.ns.svc.cluster.local. 10.96.0.7",
            ),
            (
                "w.ns.other.svc.cluster.local.",
                RecordType::AAAA,
                "other",
                "ready w.ns.svc.cluster.local.",
            ),
            (
                "w.ns.svc.cluster.local.other.svc.cluster.local.",
                a,
                "other",
                "ready w.ns.svc.cluster.local. 10.96.0.7",
            ),
            (
                "example.com.other.svc.cluster.local.",
                a,
                "other",
                "search example.com. example.com.",
            ),
            (
                "*.w.ns.other.svc.cluster.local.",
                a,
                "other",
                "search *.w.ns. *.w.ns.",
            ),
            // Another pod's search path, other types, and the domain alone.
            ("w.ns.other.svc.cluster.local.", a, "ns", "none"),
            (
                "w.ns.other.svc.cluster.local.",
                RecordType::TXT,
                "other",
                "none",
            ),
            ("other.svc.cluster.local.", a, "other", "none"),
            ("example.com.", a, "other", "none"),
        ] {
            let found = follow(&PATHS, name, kind, namespace);
            assert_eq!(found, expect, "{name} {kind} from {namespace}");
        }
    }

    #[test]
    fn search_domains_of_the_node_are_left_to_the_client() {
        let paths = SearchPaths {
            has_node_domains: true,
        };
        let name = "example.com.other.svc.cluster.local.";
        assert_eq!(follow(&paths, name, RecordType::A, "other"), "none");
    }

    #[test]
    fn search_domains_are_read_from_the_nodes_file() {
        assert!(has_search_domains(
            "nameserver 10.0.0.1\nsearch corp.example\n"
        ));
        assert!(has_search_domains("domain corp.example"));
        for text in [
            "nameserver 10.0.0.1",
            "search .",
            "#search a",
            "options ndots:5",
        ] {
            assert!(!has_search_domains(text), "{text}");
        }
    }
}
