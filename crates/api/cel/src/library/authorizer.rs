//! Libraries of Kubernetes for authorization checks.
//!
//! The check itself is the host's: expressions only collect its attributes. A check costs a third
//! of what an expression may cost, because it can be a call to a webhook.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use api_meta::names;

use crate::cost::{
    CallEstimate, CallSite, LIST_CREATE_COST, Range, STRING_TRAVERSAL_FACTOR, STRUCT_CREATE_COST,
};
use crate::error::EvalError;
use crate::function::{Function, Implementation, Overload};
use crate::library::Library;
use crate::types::Type;
use crate::value::{Object, Value};

use super::costs::{argument_size, copy_cost, estimate_accessor, size_at};

/// Cost of a check: an expression can make two.
const CHECK_COST: u64 = 350_000;
/// Requirements of a selector per character: the shortest one has two characters.
const REQUIREMENTS_PER_CHARACTER: f64 = 0.5;

/// Decides on the checks of an expression. The host gives it the identity of the request.
pub trait AuthorizerCheck: Debug + Send + Sync {
    /// Decides on one check. `None` if the decision has to be waited for, which no evaluation can:
    /// it fails, and the host repeats it when the decision is known.
    fn decide(&self, attributes: &CheckAttributes) -> Option<CheckDecision>;
}

/// Attributes of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckAttributes {
    /// The service account instead of the user of the request: namespace and name.
    pub service_account: Option<(String, String)>,
    /// The verb: of HTTP for a path, of the API for a resource.
    pub verb: String,
    /// The path or resource.
    pub target: CheckTarget,
}

/// Path or resource of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckTarget {
    /// A path that is no resource, `/healthz`.
    Path(String),
    /// A resource. Its API version is `*`.
    Resource(CheckResource),
}

/// Resource of a check; fields that are not set are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckResource {
    /// The API group.
    pub group: String,
    /// The resource.
    pub resource: String,
    /// The subresource.
    pub subresource: String,
    /// The namespace; empty for the cluster scope.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// A field selector. If it cannot be parsed, the check has no requirement of fields.
    pub field_selector: String,
    /// A label selector. If it cannot be parsed, the check has no requirement of labels.
    pub label_selector: String,
}

/// Answer to one check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckDecision {
    /// True if the request is allowed. "No opinion" is not.
    pub allowed: bool,
    /// The reason.
    pub reason: String,
    /// The error of the authorizer.
    pub error: Option<String>,
}

/// The variable `authorizer`.
#[derive(Debug, Clone)]
struct Authorizer {
    check: Arc<dyn AuthorizerCheck>,
    service_account: Option<(String, String)>,
}

#[derive(Debug)]
struct PathCheck {
    authorizer: Authorizer,
    path: String,
}

#[derive(Debug)]
struct GroupCheck {
    authorizer: Authorizer,
    group: String,
}

#[derive(Debug, Clone)]
struct ResourceCheck {
    authorizer: Authorizer,
    resource: CheckResource,
}

#[derive(Debug)]
struct Decision(CheckDecision);

/// Returns the type of the variable `authorizer`.
pub fn authorizer_type() -> Type {
    Type::object("kubernetes.authorization.Authorizer")
}

fn path_type() -> Type {
    Type::object("kubernetes.authorization.PathCheck")
}

fn group_type() -> Type {
    Type::object("kubernetes.authorization.GroupCheck")
}

/// Returns the type of the variable `authorizer.requestResource`.
pub fn resource_type() -> Type {
    Type::object("kubernetes.authorization.ResourceCheck")
}

fn decision_type() -> Type {
    Type::object("kubernetes.authorization.Decision")
}

macro_rules! receiver_object {
    ($object:ty, $object_type:ident) => {
        impl Object for $object {
            fn object_type(&self) -> Type {
                $object_type()
            }

            // Such values are only receivers of functions.
            fn is_equal(&self, _: &dyn Object) -> bool {
                false
            }

            fn as_any(&self) -> &dyn Any {
                self
            }
        }
    };
}

receiver_object!(Authorizer, authorizer_type);
receiver_object!(PathCheck, path_type);
receiver_object!(GroupCheck, group_type);
receiver_object!(ResourceCheck, resource_type);
receiver_object!(Decision, decision_type);

/// Creates the value of the variable `authorizer`.
pub fn create_authorizer(check: Arc<dyn AuthorizerCheck>) -> Value<'static> {
    Value::object(Authorizer {
        check,
        service_account: None,
    })
}

/// Creates the value of the variable `authorizer.requestResource`.
pub fn create_request_resource(
    check: Arc<dyn AuthorizerCheck>,
    resource: CheckResource,
) -> Value<'static> {
    let authorizer = Authorizer {
        check,
        service_account: None,
    };
    Value::object(ResourceCheck {
        authorizer,
        resource,
    })
}

fn method(
    name: &'static str,
    id: &'static str,
    receiver: Type,
    texts: usize,
    result: Type,
    run: Implementation,
) -> Function {
    let mut arguments = vec![receiver];
    arguments.resize(texts + 1, Type::String);
    let overload = Overload::receiver(id, arguments, result, run);
    Function::new(
        name,
        vec![overload.with_cost(copied_cost, estimate_accessor)],
    )
}

/// Returns the library of checks.
pub fn library() -> Library {
    let check = |id, receiver, run: Implementation| {
        Overload::receiver(id, vec![receiver, Type::String], decision_type(), run)
            .with_cost(check_cost, estimate_check)
    };
    let decision = |name, id, result, run| method(name, id, decision_type(), 0, result, run);
    let authorizer =
        |name, id, texts, result, run| method(name, id, authorizer_type(), texts, result, run);
    let resource = |name, id, run| method(name, id, resource_type(), 1, resource_type(), run);
    Library {
        name: "kubernetes.authz",
        since: 27,
        functions: vec![
            authorizer("path", "authorizer_path", 1, path_type(), path),
            authorizer("group", "authorizer_group", 1, group_type(), group),
            authorizer(
                "serviceAccount",
                "authorizer_serviceaccount",
                2,
                authorizer_type(),
                service_account,
            ),
            method(
                "resource",
                "groupcheck_resource",
                group_type(),
                1,
                resource_type(),
                resource_of,
            ),
            resource("subresource", "resourcecheck_subresource", subresource),
            resource("namespace", "resourcecheck_namespace", namespace),
            resource("name", "resourcecheck_name", name),
            Function::new(
                "check",
                vec![
                    check("pathcheck_check", path_type(), check_path),
                    check("resourcecheck_check", resource_type(), check_resource),
                ],
            ),
            decision("allowed", "decision_allowed", Type::Bool, allowed),
            decision("reason", "decision_reason", Type::String, reason),
            decision("errored", "decision_errored", Type::Bool, errored),
            decision("error", "decision_error", Type::String, error),
        ],
        ..Library::default()
    }
}

/// Returns the library of selectors in checks.
pub fn selectors_library() -> Library {
    let selector = |name, id, run: Implementation| {
        let arguments = vec![resource_type(), Type::String];
        let overload = Overload::receiver(id, arguments, resource_type(), run);
        Function::new(
            name,
            vec![overload.with_cost(selector_cost, estimate_selector)],
        )
    };
    Library {
        name: "kubernetes.authzSelectors",
        since: 31,
        functions: vec![
            selector("fieldSelector", "authorizer_fieldselector", field_selector),
            selector("labelSelector", "authorizer_labelselector", label_selector),
        ],
        ..Library::default()
    }
}

fn take<'a, T: 'static>(values: &'a [Value<'_>]) -> Result<&'a T, EvalError> {
    values
        .first()
        .and_then(Value::downcast)
        .ok_or(EvalError::NoSuchOverload)
}

fn take_text(values: &[Value<'_>], index: usize) -> Result<String, EvalError> {
    let text = values.get(index).and_then(Value::as_str);
    text.map(str::to_owned).ok_or(EvalError::NoSuchOverload)
}

fn path<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let authorizer: &Authorizer = take(values)?;
    let path = take_text(values, 1)?;
    if path.trim().is_empty() {
        return Err(EvalError::message("path must not be empty"));
    }
    Ok(Value::object(PathCheck {
        authorizer: authorizer.clone(),
        path,
    }))
}

fn group<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let authorizer: &Authorizer = take(values)?;
    let group = take_text(values, 1)?;
    Ok(Value::object(GroupCheck {
        authorizer: authorizer.clone(),
        group,
    }))
}

fn service_account<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let authorizer: &Authorizer = take(values)?;
    let (namespace, name) = (take_text(values, 1)?, take_text(values, 2)?);
    // Both become parts of `system:serviceaccount:NAMESPACE:NAME`, so a colon in one could name
    // another account.
    if !names::dns1123_subdomain(&name).is_empty() {
        return Err(EvalError::message("Invalid service account name"));
    }
    if !names::dns1123_label(&namespace).is_empty() {
        return Err(EvalError::message("Invalid service account namespace"));
    }
    let check = authorizer.check.clone();
    Ok(Value::object(Authorizer {
        check,
        service_account: Some((namespace, name)),
    }))
}

fn resource_of<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let group: &GroupCheck = take(values)?;
    let resource = take_text(values, 1)?;
    if resource.trim().is_empty() {
        return Err(EvalError::message("resource must not be empty"));
    }
    let resource = CheckResource {
        group: group.group.clone(),
        resource,
        ..Default::default()
    };
    Ok(Value::object(ResourceCheck {
        authorizer: group.authorizer.clone(),
        resource,
    }))
}

fn set_attribute<'v>(
    values: &[Value<'v>],
    set: fn(&mut CheckResource, String),
) -> Result<Value<'v>, EvalError> {
    let check: &ResourceCheck = take(values)?;
    // A value never changes: the expression may use the check without the attribute as well.
    let mut check = check.clone();
    set(&mut check.resource, take_text(values, 1)?);
    Ok(Value::object(check))
}

fn subresource<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    set_attribute(values, |resource, text| resource.subresource = text)
}

fn namespace<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    set_attribute(values, |resource, text| resource.namespace = text)
}

fn name<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    set_attribute(values, |resource, text| resource.name = text)
}

fn field_selector<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    set_attribute(values, |resource, text| resource.field_selector = text)
}

fn label_selector<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    set_attribute(values, |resource, text| resource.label_selector = text)
}

fn decide<'v>(
    authorizer: &Authorizer,
    verb: String,
    target: CheckTarget,
) -> Result<Value<'v>, EvalError> {
    let service_account = authorizer.service_account.clone();
    let attributes = CheckAttributes {
        service_account,
        verb,
        target,
    };
    let decision = authorizer.check.decide(&attributes);
    decision
        .map(|decision| Value::object(Decision(decision)))
        .ok_or_else(|| EvalError::message("the decision of the authorizer is not known yet"))
}

fn check_path<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let check: &PathCheck = take(values)?;
    let target = CheckTarget::Path(check.path.clone());
    decide(&check.authorizer, take_text(values, 1)?, target)
}

fn check_resource<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let check: &ResourceCheck = take(values)?;
    let target = CheckTarget::Resource(check.resource.clone());
    decide(&check.authorizer, take_text(values, 1)?, target)
}

fn allowed<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    take(values).map(|decision: &Decision| Value::Bool(decision.0.allowed))
}

fn reason<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    take(values).map(|decision: &Decision| Value::string(decision.0.reason.as_str()))
}

fn errored<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    take(values).map(|decision: &Decision| Value::Bool(decision.0.error.is_some()))
}

fn error<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let decision: &Decision = take(values)?;
    Ok(Value::string(
        decision.0.error.as_deref().unwrap_or_default(),
    ))
}

fn check_cost<'v>(_: &[Value<'v>], _: &Value<'v>) -> Option<u64> {
    Some(CHECK_COST)
}

fn estimate_check(_: &CallSite) -> Option<CallEstimate> {
    Some(CallEstimate::new(Range::fixed(CHECK_COST)))
}

/// Returns the cost of the texts that a call copies into its result.
fn copied_cost<'v>(values: &[Value<'v>], result: &Value<'v>) -> Option<u64> {
    let bytes = if let Some(check) = result.downcast::<ResourceCheck>() {
        let r = &check.resource;
        [&r.group, &r.resource, &r.subresource, &r.namespace, &r.name]
            .into_iter()
            .chain([&r.field_selector, &r.label_selector])
            .map(String::len)
            .sum()
    } else {
        values.iter().filter_map(Value::as_str).map(str::len).sum()
    };
    Some(copy_cost(bytes))
}

fn selector_range(length: Range) -> Range {
    // A selector is parsed to a list with a structure and a list of values per requirement.
    let parse = length.scale(STRING_TRAVERSAL_FACTOR);
    let requirement = (LIST_CREATE_COST + STRUCT_CREATE_COST) as f64;
    let requirements = length.scale(REQUIREMENTS_PER_CHARACTER).scale(requirement);
    Range::fixed(LIST_CREATE_COST).add(parse).add(requirements)
}

fn selector_cost<'v>(values: &[Value<'v>], _: &Value<'v>) -> Option<u64> {
    Some(selector_range(Range::fixed(size_at(values, 1))).max)
}

fn estimate_selector(site: &CallSite) -> Option<CallEstimate> {
    Some(CallEstimate::new(selector_range(argument_size(site, 0))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[derive(Debug)]
    struct Echo;

    impl AuthorizerCheck for Echo {
        fn decide(&self, attributes: &CheckAttributes) -> Option<CheckDecision> {
            let allowed = attributes.verb == "get";
            Some(CheckDecision {
                allowed,
                reason: format!("{attributes:?}"),
                error: None,
            })
        }
    }

    fn call(run: Implementation, receiver: &Value<'static>, texts: &[&str]) -> Value<'static> {
        let mut values = vec![receiver.clone()];
        values.extend(texts.iter().map(|text| Value::string(*text)));
        run(&values).unwrap()
    }

    #[test]
    fn attributes_of_a_check_are_collected() {
        let pods = call(group, &create_authorizer(Arc::new(Echo)), &["apps"]);
        let pods = call(resource_of, &pods, &["deployments"]);
        let pods = call(subresource, &call(namespace, &pods, &["ns"]), &["scale"]);
        let pods = call(field_selector, &call(name, &pods, &["n"]), &["a=b"]);
        let answer = call(check_resource, &pods, &["get"]);
        let answer: &Decision = answer.downcast().unwrap();
        let resource = CheckResource {
            group: "apps".into(),
            resource: "deployments".into(),
            subresource: "scale".into(),
            namespace: "ns".into(),
            name: "n".into(),
            field_selector: "a=b".into(),
            label_selector: String::new(),
        };
        let attributes = CheckAttributes {
            service_account: None,
            verb: "get".into(),
            target: CheckTarget::Resource(resource),
        };
        assert!(answer.0.allowed);
        assert_eq!(answer.0.reason, format!("{attributes:?}"));
    }

    #[test]
    fn service_account_replaces_the_user_and_must_be_named_well() {
        let authorizer = create_authorizer(Arc::new(Echo));
        let other = call(service_account, &authorizer, &["ns", "s.a"]);
        let answer = call(check_path, &call(path, &other, &["/x"]), &["post"]);
        let answer: &Decision = answer.downcast().unwrap();
        assert!(!answer.0.allowed);
        assert!(
            answer.0.reason.contains(r#"Some(("ns", "s.a"))"#),
            "{}",
            answer.0.reason
        );
        for (namespace, name) in [("n.s", "a"), ("ns", "A"), ("", "a"), ("ns", "")] {
            let values = [
                authorizer.clone(),
                Value::string(namespace),
                Value::string(name),
            ];
            assert!(service_account(&values).is_err(), "{namespace} {name}");
        }
    }

    #[test]
    fn long_attributes_are_charged_with_each_copy() {
        let group = call(group, &create_authorizer(Arc::new(Echo)), &[""]);
        let long = call(resource_of, &group, &[&"a".repeat(11_024)]);
        let copy = call(namespace, &long, &["ns"]);
        assert_eq!(
            copied_cost(&[long, Value::string("ns")], &copy),
            Some(1_002)
        );
        let short = call(resource_of, &group, &["pods"]);
        assert_eq!(copied_cost(&[group], &short), Some(1));
    }

    #[test]
    fn blank_paths_and_resources_are_rejected() {
        let authorizer = create_authorizer(Arc::new(Echo));
        assert!(path(&[authorizer.clone(), Value::string("  ")]).is_err());
        let group = call(group, &authorizer, &[""]);
        assert!(resource_of(&[group, Value::string(" ")]).is_err());
    }
}
