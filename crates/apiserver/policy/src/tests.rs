//! The plugin over fakes of the caches, the kinds and the authorizer.
#![allow(clippy::unwrap_used, clippy::panic)]

mod mutating;

use crate::metrics::PolicyMetrics;
use crate::params::{ParamObjects, ParamResource};
use crate::patch::PatchObjects;
use crate::plugin::{PolicySetup, ValidatingPolicies};
use api_meta::{ApiError, Meta, Selector};
use apiserver_request::{
    Admission, AdmissionRequest, Attributes, Decision, GroupResource, LocalAuthorizer, ObjectEvent,
    Objects, Observer, Operation, User,
};
use apiserver_webhook::{GroupVersionKind, GroupVersionResource, Kinds};
use serde_json::{Value, json};
use std::future::Future;
use std::sync::Arc;

/// Serves `widgets` in v1 and v2; v2 names the field `size` `width`.
struct Widgets;

#[async_trait::async_trait]
impl Kinds for Widgets {
    fn find_kind(&self, resource: &GroupVersionResource, _: &str) -> Option<GroupVersionKind> {
        Some(GroupVersionKind::new(
            &resource.group,
            &resource.version,
            "Widget",
        ))
    }

    fn equivalent_resources(&self, resource: &GroupVersionResource) -> Vec<GroupVersionResource> {
        let all = ["v1", "v2"].map(|version| GroupVersionResource::new("g", version, "widgets"));
        let others = all.into_iter().filter(|other| other != resource);
        others.filter(|_| resource.resource == "widgets").collect()
    }

    async fn convert_object(
        &self,
        mut object: Value,
        _: &GroupVersionResource,
        _: &GroupVersionResource,
    ) -> Result<Value, ApiError> {
        let fields = object.as_object_mut().unwrap();
        if let Some(size) = fields.remove("size") {
            fields.insert("width".into(), size);
        }
        Ok(object)
    }

    fn explicit_object(&self, _: &GroupVersionResource, _: &str, object: &Value) -> Value {
        object.clone()
    }

    fn encode_object(&self, _: &GroupVersionResource, _: &str, object: &Value, out: &mut Vec<u8>) {
        out.extend_from_slice(object.to_string().as_bytes());
    }

    fn decode_object(
        &self,
        _: &GroupVersionResource,
        _: &str,
        object: Value,
    ) -> Result<Value, String> {
        Ok(object)
    }

    fn default_object(&self, _: &GroupVersionResource, _: &str, _: &mut Value) {}
}

impl PatchObjects for Widgets {
    fn merge_partial(
        &self,
        _: &GroupVersionResource,
        _: &str,
        live: &Value,
        partial: &Value,
    ) -> Result<Value, String> {
        let mut merged = live.clone();
        for (name, value) in partial.as_object().unwrap() {
            merged[name] = value.clone();
        }
        Ok(merged)
    }

    fn decode_patched(
        &self,
        _: &GroupVersionResource,
        _: &str,
        object: Value,
    ) -> Result<Value, String> {
        Ok(object)
    }
}

/// Policies, bindings and the namespace `n`.
struct Cached(Vec<(&'static str, Value)>);

#[async_trait::async_trait]
impl Objects for Cached {
    fn cached_object(&self, of: &GroupResource, _: &str, name: &str) -> Option<Arc<Value>> {
        let namespace = json!({"metadata": {"name": "n", "labels": {"env": "prod"}}});
        let found = of.resource == "namespaces" && name == "n";
        found.then(|| Arc::new(namespace))
    }

    fn cached_list(&self, _: &GroupResource, _: Option<&str>) -> Vec<Arc<Value>> {
        Vec::new()
    }

    async fn read_live(
        &self,
        _: &GroupResource,
        _: &str,
        _: &str,
    ) -> Result<Option<Value>, ApiError> {
        Ok(None)
    }

    fn observe(&self, resource: &GroupResource, observer: Arc<dyn Observer>) {
        for (_, object) in self.0.iter().filter(|(of, _)| *of == resource.resource) {
            let event = ObjectEvent::Applied(Arc::new(object.clone()));
            observer.object_changed(resource, &event);
        }
    }

    fn caches_ready(&self) -> bool {
        true
    }
}

/// Config maps `n/p1` and `n/p2` with limits 1 and 2.
struct Params;

#[async_trait::async_trait]
impl ParamObjects for Params {
    fn find_resource(&self, _: &str, _: &str) -> Option<ParamResource> {
        Some(ParamResource {
            resource: GroupVersionResource::new("", "v1", "configmaps"),
            is_namespaced: true,
        })
    }

    async fn find_object(
        &self,
        of: &GroupVersionResource,
        _: &str,
        name: &str,
    ) -> Result<Option<Value>, String> {
        let all = self.list_objects(of, None, &Selector::default()).await?;
        Ok(all.into_iter().find(|object| object.name() == name))
    }

    async fn list_objects(
        &self,
        _: &GroupVersionResource,
        _: Option<&str>,
        _: &Selector,
    ) -> Result<Vec<Value>, String> {
        let param = |name: &str, limit: i64| json!({"metadata": {"name": name}, "limit": limit});
        Ok(vec![param("p1", 1), param("p2", 2)])
    }
}

/// Allows the verb `get`.
struct Readers;

impl LocalAuthorizer for Readers {
    fn decide(&self, asked: &Attributes) -> Decision {
        match asked.verb.as_str() {
            "get" => Decision::Allow(String::new()),
            _ => Decision::NoOpinion(String::new()),
        }
    }
}

fn complete<T>(future: impl Future<Output = T>) -> T {
    // Evaluations wait for those of other tests in this process.
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(future)
}

fn rules(version: &str) -> Value {
    json!({"resourceRules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": ["g"],
        "apiVersions": [version], "resources": ["widgets"]}]})
}

/// Returns a policy `p` for widgets with further fields of its spec.
fn policy(fields: Value) -> Value {
    let mut spec = json!({"failurePolicy": "Fail", "matchConstraints": rules("v1")});
    for (name, value) in fields.as_object().unwrap() {
        spec[name] = value.clone();
    }
    json!({"metadata": {"name": "p"}, "spec": spec})
}

fn binding(fields: Value) -> Value {
    let mut spec = json!({"policyName": "p", "validationActions": ["Deny"]});
    for (name, value) in fields.as_object().unwrap() {
        spec[name] = value.clone();
    }
    json!({"metadata": {"name": "b"}, "spec": spec})
}

/// Runs the plugin for a creation of a widget; returns code and message, and the warnings.
fn create(
    policy: Value,
    binding: Value,
    widget: Value,
) -> (Result<(), (u16, String)>, Vec<String>) {
    let plugin = ValidatingPolicies::new(PolicySetup {
        objects: Arc::new(Cached(vec![
            ("validatingadmissionpolicies", policy),
            ("validatingadmissionpolicybindings", binding),
        ])),
        kinds: Arc::new(Widgets),
        params: Arc::new(Params),
        authorizer: Arc::new(Readers),
        patches: Arc::new(Widgets),
        metrics: Arc::new(PolicyMetrics::default()),
    });
    let user = User {
        name: "jane".into(),
        ..User::default()
    };
    let request = AdmissionRequest {
        operation: Operation::Create,
        user: &user,
        group: "g",
        version: "v1",
        resource: "widgets",
        subresource: "",
        kind: "Widget",
        namespace: "n",
        name: "x",
        object: widget,
        old: None,
        options: Value::Null,
        dry_run: false,
        warnings: Default::default(),
        reinvocation: Default::default(),
    };
    let result = complete(plugin.validate(&request));
    let result = result.map_err(|error| (error.code(), error.message));
    (result, request.warnings.take())
}

fn evaluate(fields: Value, widget: Value) -> Result<(), (u16, String)> {
    create(policy(fields), binding(json!({})), widget).0
}

fn denied(code: u16, why: &str) -> Result<(), (u16, String)> {
    let denied = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request";
    Err((
        code,
        format!("widgets.g \"x\" is forbidden: {denied}: {why}"),
    ))
}

#[test]
fn message_and_reason_of_a_denial_follow_the_policy() {
    let small = "object.size < 5";
    for (validation, expect) in [
        (
            json!({"expression": small}),
            denied(422, "failed expression: object.size < 5"),
        ),
        (
            json!({"expression": small, "message": " too big "}),
            denied(422, "too big"),
        ),
        (
            json!({"expression": small, "message": "m", "messageExpression": "'size ' + string(object.size)"}),
            denied(422, "size 9"),
        ),
        (
            json!({"expression": small, "message": "m", "messageExpression": "'two\\nlines'"}),
            denied(422, "m"),
        ),
        (
            json!({"expression": small, "message": "m", "messageExpression": "object.none"}),
            denied(422, "m"),
        ),
        (
            json!({"expression": small, "message": "m", "reason": "Forbidden"}),
            denied(403, "m"),
        ),
        (
            json!({"expression": small, "message": "m", "reason": "RequestEntityTooLarge"}),
            denied(413, "m"),
        ),
        (json!({"expression": "object.size == 9"}), Ok(())),
    ] {
        let result = evaluate(json!({"validations": [validation]}), json!({"size": 9}));
        assert_eq!(result, expect, "{validation}");
    }
}

#[test]
fn variables_are_composed_lazily() {
    let variables = json!([
        {"name": "size", "expression": "object.size"},
        {"name": "broken", "expression": "object.none.x"},
        {"name": "double", "expression": "variables.size * 2"},
        {"name": "four", "expression": "variables.double + variables.double"},
        {"name": "five", "expression": "variables.four + variables.size"},
        {"name": "six", "expression": "variables.five + variables.size"},
    ]);
    for (expression, expect) in [
        ("variables.double == 6", Ok(())),
        ("variables.six == 18 && has(variables.double)", Ok(())),
        ("variables.size == 3 || variables.broken == 1", Ok(())),
        (
            "variables.broken == 1",
            denied(
                422,
                "expression 'variables.broken == 1' resulted in error: composited variable \
                 \"broken\" fails to evaluate: no such key: none",
            ),
        ),
    ] {
        let fields = json!({"variables": variables, "validations": [{"expression": expression}]});
        assert_eq!(evaluate(fields, json!({"size": 3})), expect, "{expression}");
    }
}

#[test]
fn deep_chain_of_variables_does_not_exhaust_the_stack() {
    let variable = |i: usize| {
        let expression = match i {
            0 => "1".to_owned(),
            i => format!("variables.v{} + 0", i - 1),
        };
        json!({"name": format!("v{i}"), "expression": expression})
    };
    let variables: Vec<Value> = (0..800).map(variable).collect();
    let fields =
        json!({"variables": variables, "validations": [{"expression": "variables.v799 == 1"}]});
    assert_eq!(evaluate(fields, json!({})), Ok(()));
}

/// A policy must not end the server.
#[test]
fn variable_uses_only_those_before_it() {
    for (variables, expression) in [
        (
            json!([{"name": "a", "expression": "1"}, {"name": "b", "expression": "has(variables.a)"}]),
            "variables.b",
        ),
        (
            json!([{"name": "x", "expression": "1"}, {"name": "x", "expression": "variables.x + 1"}]),
            "variables.x == 2",
        ),
    ] {
        let validations = json!([{"expression": expression}]);
        let fields = json!({"variables": variables, "validations": validations});
        assert_eq!(evaluate(fields, json!({})), Ok(()), "{variables}");
    }
    let asks_for_all = |i: usize| {
        let expression = if i == 0 { "true" } else { "has(variables.v0)" };
        json!({"name": format!("v{i}"), "expression": expression})
    };
    let variables: Vec<Value> = (0..800).map(asks_for_all).collect();
    let fields = json!({"variables": variables, "validations": [{"expression": "variables.v799"}]});
    assert_eq!(evaluate(fields, json!({})), Ok(()));
}

#[test]
fn request_namespace_and_authorizer_are_variables() {
    for expression in [
        "request.operation == 'CREATE' && request.userInfo.username == 'jane'",
        "namespaceObject.metadata.labels.env == 'prod'",
        "authorizer.group('g').resource('widgets').check('get').allowed()",
        "!authorizer.requestResource.check('delete').allowed()",
        "oldObject == null && object.metadata == {'a': 1}",
    ] {
        let fields = json!({"validations": [{"expression": expression}]});
        let result = evaluate(fields, json!({"metadata": {"a": 1}}));
        assert_eq!(result, Ok(()), "{expression}");
    }
}

#[test]
fn failure_policy_decides_about_errors() {
    let validations = json!([{"expression": "object.none.x == 1"}]);
    let why = "expression 'object.none.x == 1' resulted in error: no such key: none";
    let fields = json!({"validations": validations});
    assert_eq!(evaluate(fields, json!({})), denied(422, why));
    let fields = json!({"validations": validations, "failurePolicy": "Ignore"});
    assert_eq!(evaluate(fields, json!({})), Ok(()));
    let conditions = json!([{"name": "c", "expression": "object.none.x == 1"}]);
    let fields = json!({"matchConditions": conditions, "validations": [{"expression": "true"}]});
    assert_eq!(evaluate(fields, json!({})), denied(422, why));
    let annotations = json!([{"key": "k", "valueExpression": "string(object.none.x)"}]);
    let result = evaluate(json!({"auditAnnotations": annotations}), json!({}));
    assert!(result.is_err(), "audit annotations may fail");
}

#[test]
fn match_condition_skips_the_policy() {
    let conditions = json!([{"name": "c", "expression": "request.userInfo.username != 'jane'"}]);
    let fields = json!({"matchConditions": conditions, "validations": [{"expression": "false"}]});
    assert_eq!(evaluate(fields, json!({})), Ok(()));
}

#[test]
fn match_conditions_have_no_namespace_object() {
    let conditions = json!([{"name": "c", "expression": "namespaceObject == null"}]);
    let validations = json!([{"expression": "namespaceObject == null", "message": "no"}]);
    let fields = json!({"matchConditions": conditions, "validations": validations});
    assert_eq!(evaluate(fields, json!({})), denied(422, "no"));
    // A variable has the value of the expression that needs it.
    let variables = json!([{"name": "v", "expression": "namespaceObject == null"}]);
    let conditions = json!([{"name": "c", "expression": "variables.v"}]);
    let validations = json!([{"expression": "variables.v", "message": "no"}]);
    let fields = json!({"matchConditions": conditions, "validations": validations,
        "variables": variables});
    assert_eq!(evaluate(fields, json!({})), denied(422, "no"));
}

#[test]
fn actions_of_the_binding_decide_about_the_consequence() {
    let fields = json!({"validations": [{"expression": "false", "message": "no"}]});
    let warning = "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': no";
    for (actions, expect, warnings) in [
        (json!(["Deny"]), denied(422, "no"), vec![]),
        (json!(["Warn"]), Ok(()), vec![warning.to_owned()]),
        (json!(["Audit"]), Ok(()), vec![]),
        (json!(["Deny", "Audit"]), denied(422, "no"), vec![]),
    ] {
        let binding = binding(json!({"validationActions": actions}));
        let found = create(policy(fields.clone()), binding, json!({}));
        assert_eq!(found, (expect, warnings), "{actions}");
    }
}

#[test]
fn policy_is_evaluated_for_each_parameter() {
    let fields = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [
        {"expression": "params == null || object.size <= params.limit",
         "messageExpression": "'limit ' + string(params.limit)"}]});
    let missing = "no params found for policy binding with `Deny` parameterNotFoundAction";
    for (reference, size, expect) in [
        (json!({"name": "p1"}), 1, Ok(())),
        (json!({"name": "p1"}), 2, denied(422, "limit 1")),
        (json!({"selector": {}}), 2, denied(422, "limit 1")),
        (
            json!({"name": "none", "parameterNotFoundAction": "Allow"}),
            9,
            Ok(()),
        ),
        (
            json!({"name": "none", "parameterNotFoundAction": "Deny"}),
            0,
            denied(422, &format!("failed to configure binding: {missing}")),
        ),
        (Value::Null, 9, Ok(())),
    ] {
        let binding = binding(json!({"paramRef": reference}));
        let (found, _) = create(policy(fields.clone()), binding, json!({"size": size}));
        assert_eq!(found, expect, "{reference} {size}");
    }
}

#[test]
fn resources_are_matched_by_rules_exclusions_and_selectors() {
    let selector = |value: &str| json!({"matchLabels": {"env": value}});
    let with = |name: &str, value: Value| {
        let mut constraints = rules("v1");
        constraints[name] = value;
        constraints
    };
    let named = |name: &str| {
        let mut constraints = rules("v1");
        constraints["resourceRules"][0]["resourceNames"] = json!([name]);
        constraints
    };
    let mut exact = rules("v2");
    exact["matchPolicy"] = json!("Exact");
    for (constraints, expect) in [
        (rules("v1"), true),
        (rules("v2"), true),
        (exact, false),
        (
            with("excludeResourceRules", rules("*")["resourceRules"].clone()),
            false,
        ),
        (with("namespaceSelector", selector("prod")), true),
        (with("namespaceSelector", selector("test")), false),
        (with("objectSelector", selector("prod")), false),
        (named("x"), true),
        (named("y"), false),
    ] {
        let fields =
            json!({"validations": [{"expression": "false"}], "matchConstraints": constraints});
        let found = evaluate(fields, json!({}));
        assert_eq!(found.is_err(), expect, "{constraints}");
        let fields = json!({"validations": [{"expression": "false"}]});
        let binding = binding(json!({"matchResources": constraints}));
        let (found, _) = create(policy(fields), binding, json!({}));
        assert_eq!(found.is_err(), expect, "binding: {constraints}");
    }
}

#[test]
fn object_has_the_version_that_the_rule_names() {
    let validations = json!([{"expression": "object.width == 3 && request.kind.version == 'v2' && \
                              request.requestKind.version == 'v1'"}]);
    let fields = json!({"validations": validations, "matchConstraints": rules("v2")});
    assert_eq!(evaluate(fields, json!({"size": 3})), Ok(()));
}

#[test]
fn expressions_have_one_budget() {
    let square = "object.list.all(x, object.list.all(y, x == y))";
    let all: Vec<Value> = (0..30).map(|_| json!({"expression": square})).collect();
    let widget = json!({"list": vec![1; 2000]});
    let result = evaluate(json!({"validations": all}), widget.clone());
    assert_eq!(result, denied(422, crate::evaluate::OUT_OF_BUDGET));
    let result = evaluate(json!({"validations": [{"expression": square}]}), widget);
    let why = "resulted in error: operation cancelled: actual cost limit exceeded";
    assert!(result.is_err_and(|(_, message)| message.ends_with(why)));
}
