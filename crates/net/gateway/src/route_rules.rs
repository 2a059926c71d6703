//! Rules of HTTPRoutes. A value that is not supported refuses the whole route.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::header::HeaderName;
use k8s_openapi::api::core::v1::Service;

use crate::action::{Action, PathEdit, WeightedBackend};
use crate::backend::{
    BackendKey, NextBackends, PortName, PortProblem, find_port_name, is_external_name,
    too_many_backends,
};
use crate::condition::Verdict;
use crate::gateway_api::{
    BackendRef, GatewayObject, HttpRouteSpec, NamedMatch, OtherFields, ReferenceGrantSpec,
    RouteMatch, RouteRule, describe_others, may_refer,
};
use crate::path_match::PathMatch;
use crate::route_filters::{Filters, compile_filters};
use crate::rule::{Age, RequestMatch, Rule};
use crate::tls_policies::TlsPolicies;

/// Limits of one route, those of upstream's validation.
pub(crate) const MAX_PARENTS: usize = 32;
pub(crate) const MAX_HOSTNAMES: usize = 16;
const MAX_RULES: usize = 16;
const MAX_MATCHES: usize = 64;
const MAX_BACKENDS: usize = 16;
const MAX_NAMED_MATCHES: usize = 16;

/// Rules of an object, shared by the hosts for which they are served.
pub type SharedRules = Arc<[Arc<Rule>]>;

/// The controller, and objects to which routes refer.
pub struct References<'a> {
    /// Name of the controller in statuses.
    pub controller: &'a str,
    /// ReferenceGrants.
    pub grants: &'a [GatewayObject<ReferenceGrantSpec>],
    /// BackendTLSPolicies.
    pub tls_policies: &'a TlsPolicies,
    /// Finds a Service by `namespace/name`.
    pub find_service: &'a dyn Fn(&str) -> Option<Arc<Service>>,
}

/// Returns the rules of a route and its condition `ResolvedRefs`.
pub(crate) fn compile_rules(
    route: &GatewayObject<HttpRouteSpec>,
    references: &References<'_>,
    backends: &mut NextBackends,
) -> (Result<SharedRules, Verdict>, Verdict) {
    let mut compiler = RuleCompiler {
        namespace: route.namespace(),
        age: route.age(),
        references,
        backends,
        problem: None,
    };
    let rules = compiler.compile_all(route);
    let rules = rules.map(|rules| rules.into_iter().map(Arc::new).collect());
    let rules = rules.map_err(|(reason, message)| Verdict::fails("Accepted", reason, message));
    let resolved = compiler.problem.map_or_else(
        || Verdict::holds("ResolvedRefs", "ResolvedRefs"),
        |(reason, message)| Verdict::fails("ResolvedRefs", reason, message),
    );
    (rules, resolved)
}

/// Returns the number of rules that a route has for each host.
pub(crate) fn count_rules(spec: &HttpRouteSpec) -> usize {
    let rules = spec.rules.iter();
    rules.map(|rule| rule.matches.len().max(1)).sum()
}

/// Reason of a condition, and its message.
type Problem = (&'static str, String);

struct RuleCompiler<'a> {
    namespace: &'a str,
    age: Age,
    references: &'a References<'a>,
    backends: &'a mut NextBackends,
    /// The first reference that can't be resolved.
    problem: Option<Problem>,
}

fn unsupported(message: impl Into<String>) -> Problem {
    ("UnsupportedValue", message.into())
}

impl RuleCompiler<'_> {
    fn compile_all(&mut self, route: &GatewayObject<HttpRouteSpec>) -> Result<Vec<Rule>, Problem> {
        let spec = route
            .spec
            .as_ref()
            .map_err(|error| unsupported(error.as_str()))?;
        check_others("spec", &spec.others)?;
        let limits = [
            ("parents", spec.parent_refs.len(), MAX_PARENTS),
            ("hostnames", spec.hostnames.len(), MAX_HOSTNAMES),
            ("rules", spec.rules.len(), MAX_RULES),
        ];
        for (what, count, limit) in limits {
            check_limit(what, count, limit)?;
        }
        let mut rules = Vec::new();
        for (index, rule) in spec.rules.iter().enumerate() {
            let action = Arc::new(self.compile_action(rule)?);
            let everything = [RouteMatch::default()];
            let matches = match rule.matches.as_slice() {
                [] => &everything[..],
                matches => matches,
            };
            for found in matches {
                let matches = compile_match(found)?;
                check_prefix_change(&matches, &action)?;
                rules.push(Rule {
                    matches,
                    is_fallback: false,
                    age: self.age.clone(),
                    index,
                    action: action.clone(),
                });
            }
        }
        Ok(rules)
    }

    fn compile_action(&mut self, rule: &RouteRule) -> Result<Action, Problem> {
        check_limit("matches", rule.matches.len(), MAX_MATCHES)?;
        check_limit("backends", rule.backend_refs.len(), MAX_BACKENDS)?;
        check_others("a rule", &rule.others)?;
        if let Some(timeouts) = &rule.timeouts {
            check_others("timeouts", &timeouts.others)?;
        }
        let filters = compile_filters(&rule.filters).map_err(unsupported)?;
        let Filters {
            request_headers,
            response_headers,
            redirect,
            rewrite,
        } = filters;
        if redirect.is_some() && (rewrite.is_some() || !rule.backend_refs.is_empty()) {
            let message = "a redirect excludes URLRewrite and backends";
            return Err(("IncompatibleFilters", message.to_owned()));
        }
        let mut backends = Vec::new();
        for reference in &rule.backend_refs {
            backends.push(self.compile_backend(reference)?);
        }
        let timeouts = rule.timeouts.as_ref();
        let parse = |text: Option<&String>| text.map_or(Ok(None), |text| parse_timeout(text));
        Ok(Action {
            request_headers,
            response_headers,
            redirect,
            rewrite,
            backends,
            request_timeout: parse(timeouts.and_then(|found| found.request.as_ref()))?,
            backend_timeout: parse(timeouts.and_then(|found| found.backend_request.as_ref()))?,
        })
    }

    fn compile_backend(&mut self, reference: &BackendRef) -> Result<WeightedBackend, Problem> {
        check_others("a backend", &reference.others)?;
        let filters = compile_filters(&reference.filters).map_err(unsupported)?;
        if filters.redirect.is_some() || filters.rewrite.is_some() {
            return Err(unsupported("backends have filters for headers only"));
        }
        let resolved = self.resolve_backend(reference).and_then(|key| {
            let backend = self.backends.intern(key);
            backend.ok_or_else(|| ("TooManyBackends", too_many_backends()))
        });
        let backend = match resolved {
            Ok(backend) => Some(backend),
            Err(problem) => {
                self.problem.get_or_insert(problem);
                None
            }
        };
        Ok(WeightedBackend {
            weight: reference.weight.unwrap_or(1),
            backend,
            request_headers: filters.request_headers,
            response_headers: filters.response_headers,
        })
    }

    fn resolve_backend(&self, reference: &BackendRef) -> Result<BackendKey, Problem> {
        let object = &reference.object;
        let kind = object.kind.as_deref().unwrap_or("Service");
        if kind != "Service" || !object.group.is_empty() {
            return Err((
                "InvalidKind",
                format!("{kind} {} is not a Service", object.name),
            ));
        }
        let namespace = object.namespace.as_deref().unwrap_or(self.namespace);
        let from = ("HTTPRoute", self.namespace);
        // Before the Service is looked for: without a grant, its existence is not shown.
        if !may_refer(
            self.references.grants,
            from,
            ("Service", namespace, &object.name),
        ) {
            let message = format!(
                "no ReferenceGrant allows the Service {namespace}/{}",
                object.name
            );
            return Err(("RefNotPermitted", message));
        }
        let missing = |what: &str| {
            let message = format!("the Service {namespace}/{} {what}", object.name);
            ("BackendNotFound", message)
        };
        let service = (self.references.find_service)(&format!("{namespace}/{}", object.name));
        let service = service.ok_or_else(|| missing("does not exist"))?;
        if is_external_name(&service) {
            return Err(missing(
                "is of the type ExternalName, which is not supported",
            ));
        }
        let port = object
            .port
            .ok_or_else(|| missing("needs a port in the reference"))?;
        let port = PortName::Number(port.into());
        match find_port_name(&service, &port) {
            Err(PortProblem::Missing) => return Err(missing("has no such TCP port")),
            Err(PortProblem::UnsupportedProtocol) => {
                let (_, message) = missing("has an unsupported appProtocol");
                return Err(("UnsupportedProtocol", message));
            }
            Ok(name) => {
                let key = format!("{namespace}/{}", object.name);
                if self.references.tls_policies.apply_to(&key, &name) {
                    let what = "has a BackendTLSPolicy, and TLS to endpoints is not supported";
                    return Err(("UnsupportedProtocol", missing(what).1));
                }
            }
        }
        Ok(BackendKey {
            namespace: namespace.to_owned(),
            service: object.name.clone(),
            port,
        })
    }
}

fn check_others(place: &str, others: &OtherFields) -> Result<(), Problem> {
    describe_others(place, others).map_or(Ok(()), |message| Err(unsupported(message)))
}

fn check_limit(what: &str, count: usize, limit: usize) -> Result<(), Problem> {
    match count > limit {
        true => Err(unsupported(format!("more than {limit} {what}"))),
        false => Ok(()),
    }
}

fn check_prefix_change(matches: &RequestMatch, action: &Action) -> Result<(), Problem> {
    let redirect = action
        .redirect
        .as_ref()
        .and_then(|redirect| redirect.path.as_ref());
    let rewrite = action
        .rewrite
        .as_ref()
        .and_then(|rewrite| rewrite.path.as_ref());
    let changes_prefix = redirect
        .or(rewrite)
        .is_some_and(|edit| matches!(edit, PathEdit::Prefix(_)));
    match (&matches.path, changes_prefix) {
        (PathMatch::Exact(_), true) => Err(unsupported(
            "ReplacePrefixMatch needs matches of the type PathPrefix",
        )),
        _ => Ok(()),
    }
}

fn parse_timeout(text: &str) -> Result<Option<Duration>, Problem> {
    let parsed = base_duration::parse_unsigned(text);
    let parsed = parsed.map_err(|_| unsupported(format!("{text:?} is not a duration")))?;
    // Zero means no limit.
    Ok((!parsed.is_zero()).then_some(parsed))
}

fn compile_match(found: &RouteMatch) -> Result<RequestMatch, Problem> {
    check_others("a match", &found.others)?;
    let path = found.path.as_ref();
    let value = path.and_then(|path| path.value.as_deref()).unwrap_or("/");
    if !value.starts_with('/') {
        return Err(unsupported(format!("{value:?} is not a path")));
    }
    let path = match path
        .and_then(|path| path.kind.as_deref())
        .unwrap_or("PathPrefix")
    {
        "Exact" => PathMatch::Exact(value.to_owned()),
        "PathPrefix" => PathMatch::prefix(value),
        other => {
            let message = format!("matches of paths of the type {other} are not supported");
            return Err(unsupported(message));
        }
    };
    let method = found.method.as_deref().map(|method| {
        Method::from_bytes(method.as_bytes())
            .map_err(|_| unsupported(format!("{method:?} is not a method")))
    });
    let mut matches = RequestMatch {
        method: method.transpose()?,
        ..RequestMatch::of_path(path)
    };
    check_limit("headers in a match", found.headers.len(), MAX_NAMED_MATCHES)?;
    let parameters = found.query_params.len();
    check_limit("parameters in a match", parameters, MAX_NAMED_MATCHES)?;
    for header in exact_matches(&found.headers)? {
        let name = HeaderName::try_from(header.name.as_str())
            .map_err(|_| unsupported(format!("{:?} is no name of a header", header.name)))?;
        // The first entry of a name counts.
        if !matches.headers.iter().any(|(known, _)| *known == name) {
            matches.headers.push((name, header.value.clone()));
        }
    }
    for parameter in exact_matches(&found.query_params)? {
        if !matches
            .query
            .iter()
            .any(|(known, _)| *known == parameter.name)
        {
            matches
                .query
                .push((parameter.name.clone(), parameter.value.clone()));
        }
    }
    Ok(matches)
}

fn exact_matches(matches: &[NamedMatch]) -> Result<&[NamedMatch], Problem> {
    let is_exact = |found: &NamedMatch| found.kind.as_deref().is_none_or(|kind| kind == "Exact");
    match matches.iter().all(is_exact) {
        true => Ok(matches),
        false => Err(unsupported(
            "matches of headers and parameters are of the type Exact only",
        )),
    }
}
