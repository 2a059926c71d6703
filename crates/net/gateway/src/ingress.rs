//! Rules of Ingresses.

use std::collections::HashSet;
use std::sync::Arc;

use client::ObjectExt;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::{Ingress, IngressBackend, IngressClass, IngressSpec};

use crate::action::{Action, HeaderEdit, WeightedBackend};
use crate::backend::{
    Backend, BackendKey, NextBackends, PortName, PortProblem, find_port_name, is_external_name,
    too_many_backends,
};
use crate::certificates::SecretKey;
use crate::gateway_api::read_age;
use crate::host::HostPattern;
use crate::path_match::PathMatch;
use crate::rule::{RequestMatch, Rule};
use crate::rule_budget::{MAX_RULES_OF_NAMESPACE, RuleBudget};
use crate::table::{HostRules, Scheme};
use crate::tls_policies::TlsPolicies;

/// The annotation that named the class before `spec.ingressClassName`.
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
/// Maximum number of rules and hosts of an Ingress; further ones are not served.
const MAX_RULES: usize = 2000;

/// Maximum length of the message of an event in characters.
const MAX_MESSAGE: usize = 1000;

/// Something that an Ingress has and that is not served.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IngressProblem {
    /// Reason of the event.
    pub reason: &'static str,
    /// Message of the event.
    pub message: String,
}

/// The rules of an Ingress.
#[derive(Debug)]
pub struct IngressRules {
    /// The Ingress.
    pub ingress: Arc<Ingress>,
    /// Rules by host.
    pub hosts: Vec<HostRules>,
    /// Hosts that it claims, also those whose rules are beyond a limit.
    pub claims: Vec<HostPattern>,
    /// Certificates by host.
    pub certificates: Vec<(HostPattern, SecretKey)>,
    /// Its parts that are not served; at most one for each reason.
    pub problems: Vec<IngressProblem>,
}

impl IngressRules {
    /// Adds a problem, unless there is one with the same reason.
    pub fn add_problem(&mut self, reason: &'static str, message: String) {
        add_problem(&mut self.problems, reason, message);
    }
}

fn add_problem(problems: &mut Vec<IngressProblem>, reason: &'static str, message: String) {
    if !problems.iter().any(|known| known.reason == reason) {
        let message = message.chars().take(MAX_MESSAGE).collect();
        problems.push(IngressProblem { reason, message });
    }
}

/// Returns the names of the classes of a controller.
pub fn own_classes(classes: &[Arc<IngressClass>], controller: &str) -> HashSet<String> {
    let is_own = |class: &&Arc<IngressClass>| {
        let spec = class.spec.as_ref();
        spec.and_then(|spec| spec.controller.as_deref()) == Some(controller)
    };
    let own = classes.iter().filter(is_own);
    own.map(|class| class.name().to_owned()).collect()
}

/// Returns whether an Ingress has one of the classes. One without a class is not served: the API
/// server sets the default class when an Ingress is created.
pub fn has_class(ingress: &Ingress, classes: &HashSet<String>) -> bool {
    let spec = ingress.spec.as_ref();
    let class = spec.and_then(|spec| spec.ingress_class_name.as_deref());
    class
        .or_else(|| ingress.annotation(CLASS_ANNOTATION))
        .is_some_and(|class| classes.contains(class))
}

/// Services, and what applies to them.
pub struct ServiceFinder<'a> {
    /// Finds a Service by `namespace/name`.
    pub find_service: &'a dyn Fn(&str) -> Option<Arc<Service>>,
    /// BackendTLSPolicies.
    pub tls_policies: &'a TlsPolicies,
}

/// Returns the rules of an Ingress.
pub fn compile_ingress(
    ingress: &Arc<Ingress>,
    services: &ServiceFinder<'_>,
    backends: &mut NextBackends,
    budget: &mut RuleBudget,
) -> IngressRules {
    let mut compiler = Compiler {
        ingress,
        services,
        backends,
        budget,
        next: 0,
        problems: Vec::new(),
    };
    let empty = IngressSpec::default();
    let spec = ingress.spec.as_ref().unwrap_or(&empty);
    let mut hosts: Vec<HostRules> = Vec::new();
    let mut claims = Vec::new();
    for rule in spec.rules.iter().flatten() {
        let name = rule.host.as_deref().unwrap_or_default();
        let Some(host) = HostPattern::parse_ingress(name) else {
            let message = format!("{name:?} is not a host");
            add_problem(&mut compiler.problems, "InvalidHost", message);
            continue;
        };
        if !compiler.count_rule() {
            claims.extend(compiler.keep_host(host));
            continue;
        }
        claims.push(host.clone());
        let mut rules = Vec::new();
        for path in rule.http.iter().flat_map(|http| &http.paths) {
            let matches = match_path(path.path.as_deref().unwrap_or("/"), &path.path_type);
            rules.extend(compiler.add_rule(matches, &path.backend, false));
        }
        // Without paths, the default backend has all of them.
        rules.extend(compiler.add_fallback(spec));
        hosts.push(host_rules(ingress, host, rules));
    }
    if spec.default_backend.is_some() && !claims.contains(&HostPattern::Any) {
        match compiler.add_fallback(spec) {
            Some(rule) => {
                claims.push(HostPattern::Any);
                hosts.push(host_rules(ingress, HostPattern::Any, vec![rule]));
            }
            None => claims.extend(compiler.keep_host(HostPattern::Any)),
        }
    }
    let certificates = list_certificates(ingress.namespace(), spec, &hosts);
    IngressRules {
        ingress: ingress.clone(),
        hosts,
        claims,
        certificates,
        problems: compiler.problems,
    }
}

fn host_rules(ingress: &Ingress, host: HostPattern, rules: Vec<Rule>) -> HostRules {
    HostRules {
        slot: None,
        namespace: ingress.namespace().into(),
        // The hosts of Ingresses are listeners of their own.
        listener: host.clone(),
        host,
        schemes: vec![Scheme::Http, Scheme::Https],
        rules: rules.into_iter().map(Arc::new).collect(),
    }
}

/// Returns the match of a path. `ImplementationSpecific` means a prefix.
fn match_path(path: &str, kind: &str) -> PathMatch {
    match kind {
        "Exact" => PathMatch::Exact(path.to_owned()),
        _ => PathMatch::prefix(path),
    }
}

struct Compiler<'a> {
    ingress: &'a Ingress,
    services: &'a ServiceFinder<'a>,
    backends: &'a mut NextBackends,
    budget: &'a mut RuleBudget,
    next: usize,
    problems: Vec<IngressProblem>,
}

impl Compiler<'_> {
    /// Counts a rule or a host; false if it is beyond a limit.
    fn count_rule(&mut self) -> bool {
        let has_room = self.next < MAX_RULES && self.budget.take(self.ingress.namespace(), 1);
        if has_room {
            self.next += 1;
            return true;
        }
        let message = format!(
            "an Ingress may have {MAX_RULES} rules and hosts, those of a namespace together \
             {MAX_RULES_OF_NAMESPACE}: further ones are not served"
        );
        add_problem(&mut self.problems, "TooManyRules", message);
        false
    }

    /// Returns a host whose rules are beyond a limit, to claim it.
    fn keep_host(&mut self, host: HostPattern) -> Option<HostPattern> {
        self.budget
            .keep_hosts(self.ingress.namespace(), 1)
            .then_some(host)
    }

    /// Returns the backend, and remembers the reason if it can't be served.
    fn find_backend(&mut self, backend: &IngressBackend) -> Option<Arc<Backend>> {
        let Some(key) = backend_key(self.ingress.namespace(), backend) else {
            let message = "a backend that is not a port of a Service".to_owned();
            add_problem(&mut self.problems, "InvalidBackend", message);
            return None;
        };
        let service_key = key.service_key();
        let why = match (self.services.find_service)(&service_key) {
            None => Some("does not exist"),
            Some(service) if is_external_name(&service) => Some("is of the type ExternalName"),
            Some(service) => match find_port_name(&service, &key.port) {
                Err(PortProblem::Missing) => Some("has no such TCP port"),
                Err(PortProblem::UnsupportedProtocol) => Some("has an unsupported appProtocol"),
                Ok(name) if self.services.tls_policies.apply_to(&service_key, &name) => {
                    let message = format!(
                        "the Service {} has a BackendTLSPolicy, and TLS to endpoints is not supported",
                        key.service
                    );
                    add_problem(&mut self.problems, "InvalidBackend", message);
                    // Requests that are meant for TLS must not be sent without it.
                    return None;
                }
                Ok(_) => None,
            },
        };
        if let Some(why) = why {
            let message = format!("the Service {} {why}", key.service);
            add_problem(&mut self.problems, "BackendNotFound", message);
        }
        let backend = self.backends.intern(key);
        if backend.is_none() {
            add_problem(&mut self.problems, "TooManyBackends", too_many_backends());
        }
        backend
    }

    fn add_fallback(&mut self, spec: &IngressSpec) -> Option<Rule> {
        let backend = spec.default_backend.as_ref()?;
        self.add_rule(PathMatch::prefix("/"), backend, true)
    }

    fn add_rule(
        &mut self,
        path: PathMatch,
        backend: &IngressBackend,
        is_fallback: bool,
    ) -> Option<Rule> {
        if !self.count_rule() {
            return None;
        }
        let action = Action {
            backends: vec![WeightedBackend {
                weight: 1,
                // Resources other than Services are not backends here: the rule responds with 500.
                backend: self.find_backend(backend),
                request_headers: HeaderEdit::default(),
                response_headers: HeaderEdit::default(),
            }],
            ..Action::default()
        };
        Some(Rule {
            matches: RequestMatch::of_path(path),
            is_fallback,
            age: read_age(&self.ingress.metadata),
            index: self.next,
            action: Arc::new(action),
        })
    }
}

fn backend_key(namespace: &str, backend: &IngressBackend) -> Option<BackendKey> {
    let service = backend.service.as_ref()?;
    let port = service.port.as_ref()?;
    let name = port.name.clone().filter(|name| !name.is_empty());
    let number = || port.number.map(PortName::Number);
    Some(BackendKey {
        namespace: namespace.to_owned(),
        service: service.name.clone(),
        port: name.map(PortName::Name).or_else(number)?,
    })
}

/// Returns the Secrets by host. An entry without hosts is for all hosts of the rules.
fn list_certificates(
    namespace: &str,
    spec: &IngressSpec,
    hosts: &[HostRules],
) -> Vec<(HostPattern, SecretKey)> {
    let mut found = Vec::new();
    for tls in spec.tls.iter().flatten() {
        let Some(name) = tls.secret_name.clone().filter(|name| !name.is_empty()) else {
            continue;
        };
        let named = tls.hosts.iter().flatten();
        let mut patterns: Vec<HostPattern> = named
            .filter_map(|host| HostPattern::parse_ingress(host))
            .collect();
        if patterns.is_empty() {
            patterns = hosts.iter().map(|entry| entry.host.clone()).collect();
        }
        let key = SecretKey {
            namespace: namespace.to_owned(),
            name,
        };
        let entries = patterns.into_iter().map(|host| (host, key.clone()));
        found.extend(entries.take(MAX_RULES.saturating_sub(found.len())));
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::table::tests::build_owned;
    use http::{HeaderMap, Method};
    use serde_json::{Value, json};

    fn ingress(spec: Value) -> Arc<Ingress> {
        let object = json!({"metadata": {"name": "i", "namespace": "n"}, "spec": spec});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn path(path: &str, kind: &str, service: &str) -> Value {
        json!({"path": path, "pathType": kind,
            "backend": {"service": {"name": service, "port": {"number": 80}}}})
    }

    /// Compiles an Ingress of a cluster without Services.
    fn compile(spec: Value, backends: &mut NextBackends, budget: &mut RuleBudget) -> IngressRules {
        let services = ServiceFinder {
            find_service: &|_| None,
            tls_policies: &TlsPolicies::default(),
        };
        compile_ingress(&ingress(spec), &services, backends, budget)
    }

    #[test]
    fn exact_path_then_longest_prefix_then_default_backend_is_chosen() {
        let spec = json!({
            "defaultBackend": {"service": {"name": "default", "port": {"name": "http"}}},
            "rules": [
                {"host": "a.com", "http": {"paths": [
                    path("/", "Prefix", "root"), path("/x", "Prefix", "x"),
                    path("/x", "Exact", "exact"), path("/x/y/", "ImplementationSpecific", "xy")]}},
                {"host": "*.b.com", "http": {"paths": [path("/b", "Prefix", "b")]}},
            ],
        });
        let mut backends = NextBackends::default();
        let mut budget = RuleBudget::default();
        let compiled = compile(spec, &mut backends, &mut budget);
        let (table, backends) = (build_owned(compiled.hosts), backends.finish());
        for (host, path, want) in [
            ("a.com", "/", "root"),
            ("a.com", "/xx", "root"),
            ("a.com", "/x", "exact"),
            ("a.com", "/x/", "x"),
            ("a.com", "/x/y", "xy"),
            ("a.com", "/x/y/z", "xy"),
            ("q.b.com", "/b/c", "b"),
            ("q.b.com", "/", "default"),
            ("p.q.b.com", "/b", "default"),
            ("other", "/", "default"),
        ] {
            let uri = path.parse().unwrap();
            let rule = table.find_rule(Scheme::Http, host, &Method::GET, &uri, &HeaderMap::new());
            let found = rule
                .unwrap()
                .action
                .choose_backend()
                .unwrap()
                .backend
                .clone()
                .unwrap();
            let key = format!("n/{want}");
            let mut known = backends.list_backends(&key);
            assert!(known.any(|(_, b)| Arc::ptr_eq(b, &found)), "{host}{path}");
        }
    }

    #[test]
    fn what_is_not_served_has_a_reason_each() {
        let rule =
            |host: &str| json!({"host": host, "http": {"paths": [path("/", "Prefix", "s")]}});
        let resource = json!({"resource": {"kind": "X", "name": "x"}});
        let rules: Vec<Value> = (0..MAX_RULES).map(|n| rule(&format!("h{n}.com"))).collect();
        for (spec, reasons) in [
            (
                json!({"rules": [rule("a.com"), rule("b.com")]}),
                vec!["BackendNotFound"],
            ),
            (json!({"rules": [{"host": "a..com"}]}), vec!["InvalidHost"]),
            (json!({"defaultBackend": resource}), vec!["InvalidBackend"]),
            (
                json!({"rules": rules}),
                vec!["BackendNotFound", "TooManyRules"],
            ),
        ] {
            let (mut backends, mut budget) = Default::default();
            let compiled = compile(spec, &mut backends, &mut budget);
            let found: Vec<_> = compiled.problems.iter().map(|found| found.reason).collect();
            assert_eq!(found, reasons);
            assert!(compiled.hosts.len() <= MAX_RULES / 2, "hosts count as well");
        }
    }

    #[test]
    fn classes_are_those_of_the_controller_and_ingresses_without_one_are_not_served() {
        let class = |name: &str, controller: &str| -> Arc<IngressClass> {
            let object = json!({"metadata": {"name": name}, "spec": {"controller": controller}});
            Arc::new(serde_json::from_value(object).unwrap())
        };
        let classes = own_classes(&[class("own", "me"), class("other", "you")], "me");
        for (class, annotation, want) in [
            (json!("own"), json!({}), true),
            (json!("other"), json!({}), false),
            (json!("missing"), json!({}), false),
            (Value::Null, json!({CLASS_ANNOTATION: "own"}), true),
            (Value::Null, json!({}), false),
            (json!("other"), json!({CLASS_ANNOTATION: "own"}), false),
        ] {
            let object = json!({"metadata": {"annotations": annotation}, "spec": {"ingressClassName": class}});
            let ingress: Ingress = serde_json::from_value(object.clone()).unwrap();
            assert_eq!(has_class(&ingress, &classes), want, "{object}");
        }
    }

    #[test]
    fn certificates_are_listed_for_their_hosts_or_for_all_of_the_rules() {
        let rules = json!([{"host": "a.com"}, {"host": "b.com"}]);
        for (tls, want) in [
            (
                json!([{"hosts": ["a.com"], "secretName": "s"}]),
                vec!["a.com"],
            ),
            (json!([{"secretName": "s"}]), vec!["a.com", "b.com"]),
            (json!([{"hosts": ["a.com"]}]), vec![]),
        ] {
            let spec = json!({"rules": rules, "tls": tls});
            let (mut backends, mut budget) = Default::default();
            let compiled = compile(spec, &mut backends, &mut budget);
            let hosts: Vec<String> = compiled
                .certificates
                .iter()
                .map(|(host, _)| host.to_string())
                .collect();
            assert_eq!(hosts, want, "{tls}");
        }
    }
}
