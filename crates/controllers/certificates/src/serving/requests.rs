//! The undecided requests for serving certificates, by what their decisions depend on.

use std::collections::BTreeSet;
use std::net::IpAddr;

use api_meta::certificate_request::CertificateRequest;
use client::Event;
use controllers_runtime::{Cache, Kind, Meta, Object, Queue};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest as Csr;

use super::decide::USER_PREFIX;
use crate::csr::{KUBELET_SERVING, has_condition, is_signed};

const INDEX: &str = "undecided-serving-request";
/// The key of all undecided requests.
const ALL: &str = "all";

/// Returns whether a request is one for a serving certificate, without a decision.
pub fn is_undecided(csr: &Csr) -> bool {
    csr.spec.signer_name == KUBELET_SERVING
        && !is_signed(csr)
        && !has_condition(csr, "Approved")
        && !has_condition(csr, "Denied")
}

/// Returns the keys of a request in the index: its user and its addresses.
fn list_keys(csr: &Csr) -> Vec<String> {
    if !is_undecided(csr) {
        return Vec::new();
    }
    let request = CertificateRequest::from_pem(&csr.spec.request.0).ok();
    let addresses = request.iter().flat_map(|request| &request.ip_addresses);
    let mut keys: Vec<_> = addresses.map(IpAddr::to_string).collect();
    keys.push(ALL.to_owned());
    keys.extend(csr.spec.username.clone());
    keys
}

/// Enqueues undecided requests.
#[derive(Clone)]
pub struct UndecidedRequests {
    cache: Cache<Csr>,
    queue: Queue,
}

impl UndecidedRequests {
    /// Declares the index.
    pub fn declare(requests: Kind<'_, Csr>, queue: &Queue) -> Self {
        Self {
            cache: requests.index(INDEX, list_keys).cache(),
            queue: queue.clone(),
        }
    }

    /// Returns all requests.
    pub fn cache(&self) -> Cache<Csr> {
        self.cache.clone()
    }

    fn enqueue_key(&self, key: &str) {
        for csr in self.cache.by_index(INDEX, key) {
            self.queue.add(csr.key());
        }
    }

    /// Enqueues the requests of a node.
    pub fn enqueue_node(&self, name: &str) {
        self.enqueue_key(&format!("{USER_PREFIX}{name}"));
    }

    /// Enqueues the requests for one of these addresses.
    pub fn enqueue_addresses(&self, addresses: &BTreeSet<IpAddr>) {
        for address in addresses {
            self.enqueue_key(&address.to_string());
        }
    }

    /// Returns a handler that enqueues all undecided requests.
    pub fn enqueue_all<K: Object>(&self) -> impl Fn(&Event<K>) + Send + Sync + 'static {
        let requests = self.clone();
        move |_| requests.enqueue_key(ALL)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::decide::tests::request;
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::json;

    fn csr(name: &str, user: &str, address: &str, condition: Option<&str>) -> Csr {
        let pem = request(user, "system:nodes", &["w1"], &[address]);
        let conditions: Vec<_> = condition
            .iter()
            .map(|kind| json!({"type": kind, "status": "True"}))
            .collect();
        let tree = json!({"metadata": {"name": name}, "status": {"conditions": conditions},
            "spec": {"request": STANDARD.encode(pem), "signerName": KUBELET_SERVING, "username": user}});
        serde_json::from_value(tree).unwrap()
    }

    /// A change: its name, the call, and the requests that it enqueues.
    type Change<'a> = (&'a str, &'a dyn Fn(), &'a [&'a str]);

    #[tokio::test]
    async fn change_enqueues_the_undecided_requests_that_depend_on_it() {
        let (w1, w2) = ("system:node:w1", "system:node:w2");
        let requests = UndecidedRequests {
            cache: Cache::with_indexes(
                vec![
                    csr("a", w1, "192.0.2.7", None),
                    csr("b", w2, "192.0.2.7", None),
                    csr("c", w2, "2001:db8::1", None),
                    csr("approved", w1, "192.0.2.7", Some("Approved")),
                    csr("denied", w1, "192.0.2.7", Some("Denied")),
                ],
                vec![(INDEX, Box::new(list_keys))],
            ),
            queue: Queue::new(),
        };
        let addresses = |address: &str| -> BTreeSet<IpAddr> { [address.parse().unwrap()].into() };
        let changes: [Change<'_>; 5] = [
            ("node w1", &|| requests.enqueue_node("w1"), &["a"]),
            (
                "first address",
                &|| requests.enqueue_addresses(&addresses("192.0.2.7")),
                &["a", "b"],
            ),
            (
                "second address",
                &|| requests.enqueue_addresses(&addresses("2001:db8:0::1")),
                &["c"],
            ),
            (
                "other address",
                &|| requests.enqueue_addresses(&addresses("192.0.2.8")),
                &[],
            ),
            ("all", &|| requests.enqueue_key(ALL), &["a", "b", "c"]),
        ];
        for (case, change, expected) in changes {
            change();
            let mut keys = Vec::new();
            while !requests.queue.is_empty() {
                let key = requests.queue.next().await.unwrap();
                requests.queue.done(&key);
                keys.push(key);
            }
            keys.sort();
            assert_eq!(keys, expected, "{case}");
        }
    }
}
