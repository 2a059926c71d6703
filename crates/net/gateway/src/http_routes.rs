//! HTTPRoutes: to which listeners they attach, for which hosts they are served, and their statuses.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::backend::NextBackends;
use crate::claims::{Claim, HostOwners, HostRefusal};
use crate::condition::{Verdict, compute_conditions};
use crate::gateway_api::{GatewayObject, HttpRouteSpec, ParentRef};
use crate::gateways::{GatewayState, NamespaceLabels};
use crate::host::HostPattern;
use crate::route_rules::{
    MAX_HOSTNAMES, MAX_PARENTS, References, SharedRules, compile_rules, count_rules,
};
use crate::rule_budget::{MAX_RULES_OF_NAMESPACE, RuleBudget};
use crate::table::HostRules;

/// Message about hosts with too many rules.
pub(crate) const CROWDED: &str =
    "hosts with more than 4096 rules, of which those beyond are not served";

/// Maximum number of hosts in that message.
const MAX_NAMED: usize = 20;

/// A route with a parent among the gateway's Gateways, or that had one.
#[derive(Debug)]
pub struct RouteState {
    /// The object.
    pub object: GatewayObject<HttpRouteSpec>,
    /// Its rules; the condition `Accepted` if they can't be served.
    pub rules: Result<SharedRules, Verdict>,
    /// Condition `ResolvedRefs`.
    pub resolved: Verdict,
    /// Its parents.
    pub parents: Vec<ParentState>,
}

/// A parent of a route.
#[derive(Debug)]
pub struct ParentState {
    /// The reference.
    pub reference: ParentRef,
    /// Index of the Gateway.
    gateway: usize,
    /// Index of each listener, with the hosts of the route there.
    attachments: Vec<(usize, Vec<HostPattern>)>,
    /// Condition `Accepted`.
    accepted: Verdict,
}

/// Returns the routes of these Gateways, and counts them at the listeners.
pub fn attach_routes(
    routes: Vec<GatewayObject<HttpRouteSpec>>,
    gateways: &mut [GatewayState],
    labels: &NamespaceLabels,
    references: &References<'_>,
    backends: &mut NextBackends,
) -> Vec<RouteState> {
    let by_key: HashMap<String, usize> = gateways
        .iter()
        .enumerate()
        .map(|(index, gateway)| (gateway.object.age().key, index))
        .collect();
    let mut attached = Vec::new();
    let mut budget = RuleBudget::default();
    let mut routes = routes;
    routes.sort_by_cached_key(GatewayObject::age);
    for object in routes {
        // A route that can't be decoded has no parents that are known.
        let Ok(spec) = &object.spec else {
            continue;
        };
        let mut parents: Vec<ParentState> = Vec::new();
        for reference in spec.parent_refs.iter().take(MAX_PARENTS) {
            let key = reference.gateway_key(object.namespace());
            let is_repeated = parents.iter().any(|known| known.reference == *reference);
            let gateway = key.and_then(|key| by_key.get(&key));
            if let (Some(&gateway), false) = (gateway, is_repeated) {
                let reference = reference.clone();
                let mut parent = attach_parent(&object, reference, gateway, gateways, labels);
                parent.limit_rules(object.namespace(), count_rules(spec), &mut budget);
                parents.push(parent);
            }
        }
        if parents.is_empty() && !has_entry(&object.status, references.controller) {
            continue;
        }
        let (rules, resolved) = compile_rules(&object, references, backends);
        for parent in &mut parents {
            parent.count_routes(&rules, gateways);
        }
        attached.push(RouteState {
            object,
            rules,
            resolved,
            parents,
        });
    }
    attached
}

/// Returns whether a status has an entry of a controller. It must be removed once the route has
/// left the controller's Gateways.
fn has_entry(status: &Value, controller: &str) -> bool {
    let mut entries = status["parents"].as_array().into_iter().flatten();
    entries.any(|entry| entry["controllerName"] == controller)
}

fn attach_parent(
    route: &GatewayObject<HttpRouteSpec>,
    reference: ParentRef,
    gateway: usize,
    gateways: &[GatewayState],
    labels: &NamespaceLabels,
) -> ParentState {
    let mut parent = ParentState {
        reference,
        gateway,
        attachments: Vec::new(),
        accepted: Verdict::holds("Accepted", "Accepted"),
    };
    let Some(state) = gateways.get(gateway) else {
        return parent;
    };
    let refuse = |reason, message: &str| Verdict::fails("Accepted", reason, message);
    let reference = &parent.reference;
    let mut listeners: Vec<_> = state.listeners.iter().enumerate().collect();
    listeners.retain(|(_, listener)| {
        let name = reference.section_name.as_deref();
        name.is_none_or(|name| name == listener.spec.name)
            && reference.port.is_none_or(|port| port == listener.spec.port)
    });
    if listeners.is_empty() {
        parent.accepted = refuse("NoMatchingParent", "the Gateway has no such listener");
        return parent;
    }
    let own = state.object.namespace();
    listeners.retain(|(_, listener)| {
        listener.allows_http_routes() && listener.allows_namespace(own, route.namespace(), labels)
    });
    if listeners.is_empty() {
        let message = "no listener allows HTTPRoutes of this namespace";
        parent.accepted = refuse("NotAllowedByListeners", message);
        return parent;
    }
    for (index, listener) in listeners {
        let hosts = intersect_hosts(&listener.host, route);
        if !hosts.is_empty() {
            parent.attachments.push((index, hosts));
        }
    }
    if parent.attachments.is_empty() {
        let message = "no listener has one of the route's hostnames";
        parent.accepted = refuse("NoMatchingListenerHostname", message);
    }
    parent
}

/// Returns the hosts of a route on a listener.
fn intersect_hosts(
    listener: &HostPattern,
    route: &GatewayObject<HttpRouteSpec>,
) -> Vec<HostPattern> {
    let spec = route.spec.as_ref();
    let hostnames = spec
        .map(|spec| spec.hostnames.as_slice())
        .unwrap_or_default();
    if hostnames.is_empty() {
        return vec![listener.clone()];
    }
    let hosts = hostnames.iter().take(MAX_HOSTNAMES);
    let mut found: Vec<HostPattern> = hosts
        // An empty name would mean all hosts.
        .filter(|host| !host.is_empty())
        .filter_map(|host| HostPattern::parse_gateway(host))
        .filter_map(|host| listener.intersect(&host))
        .collect();
    found.sort();
    found.dedup();
    found
}

impl ParentState {
    /// Refuses the route if its namespace has too many rules, or all together have. Its hosts stay
    /// claimed: the rules of others must not take them away.
    fn limit_rules(&mut self, namespace: &str, count: usize, budget: &mut RuleBudget) {
        let hosts: usize = self.attachments.iter().map(|(_, hosts)| hosts.len()).sum();
        if !budget.take(namespace, count.saturating_mul(hosts)) {
            if !budget.keep_hosts(namespace, hosts) {
                self.attachments.clear();
            }
            let message = format!(
                "the HTTPRoutes of the namespace have more than {MAX_RULES_OF_NAMESPACE} rules, \
                 counted for each listener and hostname, or all together have too many"
            );
            self.accepted = Verdict::fails("Accepted", "TooManyRules", message);
        }
    }

    fn count_routes(
        &mut self,
        rules: &Result<SharedRules, Verdict>,
        gateways: &mut [GatewayState],
    ) {
        if !self.accepted.holds {
            return;
        }
        if let Err(refusal) = rules {
            self.accepted = refusal.clone();
            return;
        }
        let Some(gateway) = gateways.get_mut(self.gateway) else {
            return;
        };
        for (index, _) in &self.attachments {
            if let Some(listener) = gateway.listeners.get_mut(*index) {
                listener.attached += 1;
            }
        }
    }
}

impl RouteState {
    /// Returns the claims of the route's hosts. They belong to the Gateway's namespace, which
    /// decides on the routes that may attach. A route that is refused for its rules keeps its
    /// hosts: a typo must not give them to another namespace.
    pub fn claims(&self, gateways: &[GatewayState]) -> Vec<Claim> {
        let mut claims = Vec::new();
        for parent in &self.parents {
            let Some(gateway) = gateways.get(parent.gateway) else {
                continue;
            };
            for (index, hosts) in &parent.attachments {
                let listener = gateway.listeners.get(*index);
                let is_accepted = listener.is_some_and(|listener| listener.accepted.holds);
                if gateway.refusal.is_none() && is_accepted {
                    let claimed = hosts.iter().filter(|host| gateway.claims_host(host));
                    claims.extend(claimed.map(|host| Claim {
                        age: self.object.age(),
                        host: host.clone(),
                        namespace: gateway.object.namespace().to_owned(),
                    }));
                }
            }
        }
        claims
    }

    /// Returns the rules by host, without those of hosts that belong to another namespace.
    pub fn host_rules(&mut self, gateways: &[GatewayState], owners: &HostOwners) -> Vec<HostRules> {
        let mut all = Vec::new();
        let Ok(rules) = &self.rules else {
            return all;
        };
        for parent in self
            .parents
            .iter_mut()
            .filter(|parent| parent.accepted.holds)
        {
            let Some(gateway) = gateways.get(parent.gateway) else {
                continue;
            };
            let (mut refused, mut kept) = (Vec::new(), 0);
            for (index, hosts) in &parent.attachments {
                let Some(listener) = gateway.listeners.get(*index) else {
                    continue;
                };
                let namespace = gateway.object.namespace();
                let is_served = gateway.serves(listener);
                for host in hosts {
                    // A listener that is not accepted claims nothing.
                    let refusal = owners.refuse(host, namespace);
                    let refusal = refusal.filter(|_| gateway.claims_host(host));
                    if refusal == Some(HostRefusal::OtherOwner) || refusal.is_some() && is_served {
                        refused.push(host.to_string());
                        continue;
                    }
                    kept += 1;
                    if is_served {
                        all.push(HostRules {
                            slot: gateway.placement.slot(),
                            namespace: namespace.into(),
                            listener: listener.host.clone(),
                            host: host.clone(),
                            schemes: vec![listener.scheme],
                            rules: rules.clone(),
                        });
                    }
                }
            }
            if !refused.is_empty() {
                let message = format!(
                    "hosts of an older object of another namespace, or beyond the limits: {}",
                    refused.join(", ")
                );
                parent.accepted = match kept {
                    0 => Verdict::fails("Accepted", "HostnameConflict", message),
                    _ => Verdict {
                        message,
                        ..Verdict::holds("Accepted", "Accepted")
                    },
                };
            }
        }
        all
    }

    /// Names hosts in the conditions that have no room for all of the rules.
    pub fn report_crowded(&mut self, hosts: &[String]) {
        if hosts.is_empty() {
            return;
        }
        let named: Vec<&str> = hosts.iter().take(MAX_NAMED).map(String::as_str).collect();
        for parent in self.parents.iter_mut().filter(|found| found.accepted.holds) {
            let message = &mut parent.accepted.message;
            if !message.is_empty() {
                message.push_str("; ");
            }
            message.push_str(&format!("{CROWDED}: {}", named.join(", ")));
        }
    }

    /// Returns the status. Entries of other controllers remain.
    pub fn compute_status(&self, controller: &str, now: &str) -> Value {
        let generation = self.object.metadata.generation.unwrap_or_default();
        let stored = self.object.status["parents"].as_array();
        let stored = stored.map(Vec::as_slice).unwrap_or_default();
        let mut written: Vec<Value> = stored
            .iter()
            .filter(|entry| entry["controllerName"] != controller)
            .cloned()
            .collect();
        for parent in &self.parents {
            let reference = serde_json::to_value(&parent.reference).unwrap_or_default();
            let known = stored.iter().find(|entry| {
                entry["controllerName"] == controller && entry["parentRef"] == reference
            });
            let known = known.map_or(Value::Null, |entry| entry["conditions"].clone());
            let verdicts = [parent.accepted.clone(), self.resolved.clone()];
            written.push(json!({
                "parentRef": reference,
                "controllerName": controller,
                "conditions": compute_conditions(&verdicts, &known, generation, now),
            }));
        }
        json!({"parents": written})
    }
}
