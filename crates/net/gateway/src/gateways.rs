//! Listeners of Gateways: which of them can be served.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use api_semantics::selectors::labels_match;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::certificates::{Certificate, Certificates, SecretKey};
use crate::claims::{Claim, HostOwners, HostRefusal};
use crate::condition::{Verdict, compute_conditions};
use crate::gateway_api::{
    GROUP, GatewayClassSpec, GatewayObject, GatewaySpec, Listener, ReferenceGrantSpec,
    describe_others, may_refer,
};
use crate::host::HostPattern;
use crate::listener_ports::Ports;
use crate::placement::Placement;
use crate::table::Scheme;

/// Time in seconds after which clients count as knowing a Gateway's address.
const SETTLED: i64 = 60;

/// Labels of namespaces by name.
pub type NamespaceLabels = HashMap<String, BTreeMap<String, String>>;

/// A Gateway of one of the gateway's classes.
#[derive(Debug)]
pub struct GatewayState {
    /// The object.
    pub object: GatewayObject<GatewaySpec>,
    /// Reason for which no listener is served.
    pub refusal: Option<Verdict>,
    /// Addresses at which it is served.
    pub placement: Placement,
    /// Ports of its listeners.
    pub ports: Ports,
    /// Ports of the gateway's Service.
    pub shared_ports: Ports,
    /// Annotations of `spec.infrastructure` that its Service does not get, with the reasons.
    pub ignored_annotations: Vec<String>,
    /// True if clients know it by the shared addresses.
    pub is_settled: bool,
    /// Its listeners.
    pub listeners: Vec<ListenerState>,
}

/// A listener.
#[derive(Debug)]
pub struct ListenerState {
    /// Its specification.
    pub spec: Listener,
    /// Its hosts; any if the name is not valid.
    pub host: HostPattern,
    /// Protocol.
    pub scheme: Scheme,
    /// Condition `Accepted`.
    pub accepted: Verdict,
    /// Condition `ResolvedRefs`.
    pub resolved: Verdict,
    /// Condition `Conflicted`.
    pub conflicted: Verdict,
    /// Secrets that it names and may use.
    pub secrets: Vec<SecretKey>,
    /// The first usable certificate.
    pub certificate: Option<Arc<base_tls::rustls::sign::CertifiedKey>>,
    /// Number of attached routes.
    pub attached: usize,
}

impl ListenerState {
    /// Returns whether routes of this listener are served.
    pub fn is_served(&self) -> bool {
        let has_certificate = self.scheme == Scheme::Http || self.certificate.is_some();
        self.accepted.holds && has_certificate
    }

    /// Returns whether routes of a namespace may attach.
    pub fn allows_namespace(&self, own: &str, namespace: &str, labels: &NamespaceLabels) -> bool {
        let allowed = &self.spec.allowed_routes.namespaces;
        match allowed.from.as_deref().unwrap_or("Same") {
            "Same" => own == namespace,
            "All" => true,
            // Without a selector nothing is allowed; an empty one selects all namespaces.
            "Selector" => {
                let selector = allowed.selector.as_ref();
                selector.is_some() && labels_match(selector, labels.get(namespace))
            }
            _ => false,
        }
    }

    /// Returns whether HTTPRoutes may attach.
    pub fn allows_http_routes(&self) -> bool {
        let kinds = &self.spec.allowed_routes.kinds;
        let is_http = matches!(self.spec.protocol.as_str(), "HTTP" | "HTTPS");
        let mut kinds_with_routes = kinds
            .iter()
            .filter(|kind| is_http_route(kind.group.as_deref(), &kind.kind));
        is_http && (kinds.is_empty() || kinds_with_routes.next().is_some())
    }
}

fn is_http_route(group: Option<&str>, kind: &str) -> bool {
    group.is_none_or(|group| group == GROUP) && kind == "HTTPRoute"
}

/// Returns the names of the GatewayClasses of a controller.
pub fn own_classes(
    classes: &[GatewayObject<GatewayClassSpec>],
    controller: &str,
) -> HashSet<String> {
    let is_own = |class: &&GatewayObject<GatewayClassSpec>| {
        let spec = class.spec.as_ref();
        spec.is_ok_and(|spec| spec.controller_name == controller && spec.parameters_ref.is_none())
    };
    let own = classes.iter().filter(is_own);
    own.map(|class| class.name().to_owned()).collect()
}

/// Returns the Gateways of these classes, the oldest first, with decisions about their listeners
/// that depend on no other Gateway, except for those about ports.
pub fn read_gateways(
    gateways: Vec<GatewayObject<GatewaySpec>>,
    classes: &HashSet<String>,
    shared_ports: Ports,
    grants: &[GatewayObject<ReferenceGrantSpec>],
    certificates: &Certificates,
) -> Vec<GatewayState> {
    let mut own: Vec<GatewayState> = Vec::new();
    for object in gateways {
        let (refusal, listeners) = match &object.spec {
            Ok(spec) if classes.contains(&spec.gateway_class_name) => {
                let namespace = object.namespace();
                let read = |listener: &Listener| {
                    read_listener(listener.clone(), namespace, grants, certificates)
                };
                let listeners: Vec<ListenerState> = spec.listeners.iter().map(read).collect();
                (refuse_gateway(spec), listeners)
            }
            // The class of a Gateway that can't be decoded is not known.
            _ => continue,
        };
        own.push(GatewayState {
            object,
            refusal,
            placement: Placement::Shared,
            ports: shared_ports,
            shared_ports,
            ignored_annotations: Vec::new(),
            is_settled: false,
            listeners,
        });
    }
    own.sort_by_cached_key(|gateway| gateway.object.age());
    own
}

fn refuse_gateway(spec: &GatewaySpec) -> Option<Verdict> {
    let refuse = |reason, message: &str| Some(Verdict::fails("Accepted", reason, message));
    let infrastructure = spec.infrastructure.as_ref();
    // An address without a value leaves the choice to the gateway.
    let has_value = |address: &Value| {
        address["value"]
            .as_str()
            .is_some_and(|value| !value.is_empty())
            || address["type"]
                .as_str()
                .is_some_and(|kind| kind != "IPAddress")
    };
    if spec.addresses.iter().any(has_value) {
        return refuse(
            "UnsupportedAddress",
            "spec.addresses with a value is not supported; without one, the Gateway gets its own address",
        );
    }
    if infrastructure.is_some_and(|found| found.parameters_ref.is_some()) {
        return refuse(
            "InvalidParameters",
            "spec.infrastructure.parametersRef is not supported",
        );
    }
    if spec.tls.is_some() {
        return refuse("Invalid", "spec.tls is not supported");
    }
    let others = infrastructure.and_then(|found| describe_others("infrastructure", &found.others));
    let others = others.or_else(|| describe_others("spec", &spec.others));
    others.and_then(|message| refuse("Invalid", &message))
}

/// Returns a sentence about fields without an effect that restrict nothing.
fn describe_unused(
    spec: &GatewaySpec,
    placement: &Placement,
    ignored_annotations: &[String],
) -> Option<String> {
    let mut unused: Vec<String> = Vec::new();
    let listeners = spec.allowed_listeners.as_ref();
    let from = listeners.and_then(|allowed| allowed.namespaces.from.as_deref());
    if from.is_some_and(|from| from != "None") {
        unused.push("allowedListeners (ListenerSets are not supported)".to_owned());
    }
    let infrastructure = spec.infrastructure.as_ref();
    let is_shared = *placement == Placement::Shared;
    for (field, is_set) in [
        (
            "annotations",
            infrastructure.is_some_and(|found| !found.annotations.is_empty()),
        ),
        (
            "labels",
            infrastructure.is_some_and(|found| !found.labels.is_empty()),
        ),
    ] {
        if is_shared && is_set {
            let why = "the Gateway has no Service of its own";
            unused.push(format!("infrastructure.{field} ({why})"));
        }
    }
    if !is_shared {
        let ignored = ignored_annotations.iter();
        unused.extend(ignored.map(|names| format!("infrastructure.annotations {names}")));
    }
    (!unused.is_empty()).then(|| format!("without effect: {}", unused.join(", ")))
}

/// Returns a sentence about fields of a listener that are not supported.
fn refuse_fields(spec: &Listener) -> Option<String> {
    let tls = spec.tls.as_ref();
    let options = tls.is_some_and(|tls| !tls.options.is_empty());
    describe_others("a listener", &spec.others)
        .or_else(|| describe_others("allowedRoutes", &spec.allowed_routes.others))
        .or_else(|| tls.and_then(|tls| describe_others("tls", &tls.others)))
        .or_else(|| options.then(|| "not supported in tls: options".to_owned()))
}

fn read_listener(
    spec: Listener,
    namespace: &str,
    grants: &[GatewayObject<ReferenceGrantSpec>],
    certificates: &Certificates,
) -> ListenerState {
    let host = HostPattern::parse_gateway(&spec.hostname);
    let scheme = match spec.protocol.as_str() {
        "HTTPS" => Scheme::Https,
        _ => Scheme::Http,
    };
    let accepted = accept_listener(&spec, host.is_some());
    let mut listener = ListenerState {
        host: host.unwrap_or(HostPattern::Any),
        scheme,
        accepted,
        resolved: Verdict::holds("ResolvedRefs", "ResolvedRefs"),
        conflicted: Verdict::fails("Conflicted", "NoConflicts", ""),
        secrets: Vec::new(),
        certificate: None,
        attached: 0,
        spec,
    };
    if scheme == Scheme::Https {
        resolve_certificates(&mut listener, namespace, grants, certificates);
    }
    let kinds = &listener.spec.allowed_routes.kinds;
    if kinds
        .iter()
        .any(|kind| !is_http_route(kind.group.as_deref(), &kind.kind))
    {
        listener.resolved = Verdict::fails(
            "ResolvedRefs",
            "InvalidRouteKinds",
            "only HTTPRoute is supported",
        );
    }
    listener
}

fn accept_listener(spec: &Listener, has_valid_host: bool) -> Verdict {
    let refuse = |reason, message: String| Verdict::fails("Accepted", reason, message);
    if !matches!(spec.protocol.as_str(), "HTTP" | "HTTPS") {
        let other = &spec.protocol;
        let message = format!("the protocol {other} is not supported: use HTTP or HTTPS");
        return refuse("UnsupportedProtocol", message);
    }
    if !has_valid_host {
        return refuse("Invalid", format!("{:?} is not a hostname", spec.hostname));
    }
    let tls = spec.tls.as_ref();
    let mode = tls
        .and_then(|tls| tls.mode.as_deref())
        .unwrap_or("Terminate");
    match spec.protocol.as_str() {
        "HTTPS" if mode != "Terminate" => {
            refuse("Invalid", format!("the TLS mode {mode} is not supported"))
        }
        _ => match refuse_fields(spec) {
            Some(message) => refuse("UnsupportedValue", message),
            None => Verdict::holds("Accepted", "Accepted"),
        },
    }
}

/// Finds the certificates that the listener names. The first one that can be used is served.
fn resolve_certificates(
    listener: &mut ListenerState,
    namespace: &str,
    grants: &[GatewayObject<ReferenceGrantSpec>],
    certificates: &Certificates,
) {
    let fail = |reason, message: String| Verdict::fails("ResolvedRefs", reason, message);
    let references = listener
        .spec
        .tls
        .iter()
        .flat_map(|tls| &tls.certificate_refs);
    let mut problem = None;
    // Clients are served with one certificate; further ones are for key types, which is not
    // supported.
    for reference in references.take(8) {
        let target = reference.namespace.as_deref().unwrap_or(namespace);
        let key = SecretKey {
            namespace: target.to_owned(),
            name: reference.name.clone(),
        };
        let is_secret = reference.group.is_empty()
            && reference
                .kind
                .as_deref()
                .is_none_or(|kind| kind == "Secret");
        if !is_secret {
            let message = format!("{} is not a Secret", reference.name);
            problem.get_or_insert(fail("InvalidCertificateRef", message));
            continue;
        }
        if !may_refer(
            grants,
            ("Gateway", namespace),
            ("Secret", target, &key.name),
        ) {
            let message = format!("no ReferenceGrant allows the Secret {target}/{}", key.name);
            problem.get_or_insert(fail("RefNotPermitted", message));
            continue;
        }
        match certificates.get(&key) {
            Some(Ok(found)) => {
                listener.certificate.get_or_insert(found.clone());
            }
            other => {
                let why = explain_missing(other);
                let message = format!("the Secret {target}/{} {why}", key.name);
                problem.get_or_insert(fail("InvalidCertificateRef", message));
            }
        }
        listener.secrets.push(key);
    }
    if listener.certificate.is_none() && problem.is_none() {
        let message = "an HTTPS listener needs tls.certificateRefs".to_owned();
        problem = Some(fail("InvalidCertificateRef", message));
    }
    if let Some(problem) = problem {
        listener.resolved = problem;
    }
}

fn explain_missing(certificate: Option<&Certificate>) -> &str {
    match certificate {
        Some(Err(reason)) => reason,
        _ => "does not exist, the gateway has no right to read it, or there are too many Secrets",
    }
}

/// Refuses a listener whose host another object has.
pub(crate) fn mark_conflict(listener: &mut ListenerState, message: String) {
    const REASON: &str = "HostnameConflict";
    listener.accepted = Verdict::fails("Accepted", REASON, message.clone());
    listener.conflicted = Verdict {
        message,
        ..Verdict::holds("Conflicted", REASON)
    };
}

impl GatewayState {
    /// Returns whether the Gateway needs addresses of its own: the author requests them, or the
    /// shared ones lack one of its ports.
    pub fn needs_own_address(&self) -> bool {
        self.requests_address() || self.ports != self.shared_ports
    }

    /// Returns whether the author requests addresses: an entry without a value leaves the choice
    /// to the gateway.
    fn requests_address(&self) -> bool {
        let spec = self.object.spec.as_ref();
        spec.is_ok_and(|spec| !spec.addresses.is_empty())
    }

    /// Returns whether the Gateway has been served for a while at some of these addresses.
    pub fn was_served_at(&self, addresses: &[Value], now: &str) -> bool {
        let status = &self.object.status;
        let list = |field: &str| {
            status[field]
                .as_array()
                .map(Vec::as_slice)
                .unwrap_or_default()
        };
        let is_settled = |condition: &Value| {
            let since: Timestamp = condition["lastTransitionTime"].as_str()?.parse().ok()?;
            let age = now.parse::<Timestamp>().ok()?.duration_since(since);
            let holds = condition["type"] == "Programmed" && condition["status"] == "True";
            Some(holds && age.as_secs() >= SETTLED)
        };
        let conditions = list("conditions").iter();
        conditions.filter_map(is_settled).any(|holds| holds)
            && list("addresses")
                .iter()
                .any(|address| addresses.contains(address))
    }

    /// Returns whether the Gateway stays at the shared addresses until it has others: its author
    /// did not request any, its clients know no others, and these have the port of a listener.
    pub fn stays_shared(&self) -> bool {
        let has_shared_port = |listener: &ListenerState| {
            let port = self.shared_ports.port_of(listener.scheme);
            listener.accepted.holds && listener.spec.port == port
        };
        let has_other_ports = self.ports != self.shared_ports;
        let is_servable = !has_other_ports || self.listeners.iter().any(has_shared_port);
        self.is_settled && !self.requests_address() && is_servable
    }

    /// Returns whether requests can reach routes of this listener.
    pub fn serves(&self, listener: &ListenerState) -> bool {
        self.refusal.is_none() && self.placement.is_reachable() && listener.is_served()
    }

    /// Returns whether a host of its routes needs an owner. At addresses of its own, the Gateway
    /// alone has the requests for names that nothing claims.
    pub fn claims_host(&self, host: &HostPattern) -> bool {
        *host != HostPattern::Any || self.placement == Placement::Shared
    }

    /// Returns the claims of the hosts of its listeners.
    pub fn claims(&self) -> impl Iterator<Item = Claim> {
        let claim = move |listener: &ListenerState| Claim {
            age: self.object.age(),
            host: listener.host.clone(),
            namespace: self.object.namespace().to_owned(),
        };
        // A listener for all hosts claims none: its routes do.
        let named = self.listeners.iter().filter(move |listener| {
            self.refusal.is_none() && listener.accepted.holds && listener.host != HostPattern::Any
        });
        named.map(claim)
    }

    /// Refuses listeners for hosts of other namespaces.
    pub fn apply_owners(&mut self, owners: &HostOwners) {
        if self.refusal.is_some() {
            return;
        }
        let namespace = self.object.namespace();
        for listener in &mut self.listeners {
            if listener.host == HostPattern::Any || !listener.accepted.holds {
                continue;
            }
            // Not the name of the namespace: the author may not know it.
            let why = match owners.refuse(&listener.host, namespace) {
                None => continue,
                Some(HostRefusal::OtherOwner) => "belongs to an older object of another namespace",
                Some(HostRefusal::NoRoom) => "is beyond the limit of hosts",
            };
            let message = format!("{} {why}", listener.host);
            mark_conflict(listener, message);
        }
    }

    /// Returns the status.
    pub fn compute_status(&self, addresses: &[Value], now: &str) -> Value {
        let generation = self.object.metadata.generation.unwrap_or_default();
        let stored = &self.object.status;
        let listeners = self.listeners.iter().map(|listener| {
            let known = stored["listeners"].as_array();
            let known = known.and_then(|all| {
                all.iter()
                    .find(|known| known["name"] == listener.spec.name.as_str())
            });
            let known = known.map_or(Value::Null, |known| known["conditions"].clone());
            self.compute_listener(listener, &known, generation, now)
        });
        let verdicts = self.decide(addresses);
        json!({
            "addresses": addresses,
            "conditions": compute_conditions(&verdicts, &stored["conditions"], generation, now),
            "listeners": listeners.collect::<Vec<Value>>(),
        })
    }

    fn decide(&self, addresses: &[Value]) -> Vec<Verdict> {
        if let Some(refusal) = &self.refusal {
            let programmed = Verdict::fails("Programmed", "Invalid", refusal.message.clone());
            return vec![refusal.clone(), programmed];
        }
        let accepted = self
            .listeners
            .iter()
            .filter(|listener| listener.accepted.holds)
            .count();
        let accepted = match accepted == self.listeners.len() {
            true => Verdict {
                message: self
                    .object
                    .spec
                    .as_ref()
                    .ok()
                    .and_then(|spec| {
                        describe_unused(spec, &self.placement, &self.ignored_annotations)
                    })
                    .unwrap_or_default(),
                ..Verdict::holds("Accepted", "Accepted")
            },
            // A Gateway with a usable listener is accepted; the reason names the others.
            false => Verdict {
                holds: accepted > 0,
                ..Verdict::fails("Accepted", "ListenersNotValid", "see the listeners")
            },
        };
        vec![accepted, self.decide_programmed(addresses)]
    }

    fn decide_programmed(&self, addresses: &[Value]) -> Verdict {
        let fail = |reason, message: String| Verdict::fails("Programmed", reason, message);
        let service = match &self.placement {
            Placement::Refused(why) => return fail("NoResources", why.clone()),
            Placement::Pending(service) => {
                let message = format!("the Service {service} does not exist yet");
                return fail("AddressNotAssigned", message);
            }
            Placement::Own(own) => format!("the Service {}", own.service),
            Placement::Shared => "the gateway's Service".to_owned(),
        };
        if addresses.is_empty() {
            fail("AddressNotAssigned", format!("{service} has no address"))
        } else if self.listeners.iter().any(ListenerState::is_served) {
            Verdict::holds("Programmed", "Programmed")
        } else {
            fail("Invalid", "no listener is served".to_owned())
        }
    }

    fn compute_listener(
        &self,
        listener: &ListenerState,
        stored: &Value,
        generation: i64,
        now: &str,
    ) -> Value {
        let programmed = match self.serves(listener) {
            true => Verdict::holds("Programmed", "Programmed"),
            false => Verdict::fails("Programmed", "Invalid", ""),
        };
        let verdicts = [
            listener.accepted.clone(),
            programmed,
            listener.resolved.clone(),
            listener.conflicted.clone(),
        ];
        let kinds = match listener.allows_http_routes() {
            true => json!([{"group": GROUP, "kind": "HTTPRoute"}]),
            false => json!([]),
        };
        json!({
            "name": listener.spec.name,
            "supportedKinds": kinds,
            "attachedRoutes": listener.attached,
            "conditions": compute_conditions(&verdicts, stored, generation, now),
        })
    }
}
