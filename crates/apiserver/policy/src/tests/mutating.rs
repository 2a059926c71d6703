//! Mutating policies.

use super::*;
use crate::mutating_plugin::MutatingPolicies;

fn bind(policy: &str) -> Value {
    json!({"metadata": {"name": format!("b-{policy}")}, "spec": {"policyName": policy}})
}

fn mutating(name: &str, mutations: &[&str], fields: Value) -> Value {
    let mutations: Vec<Value> = mutations
        .iter()
        .map(|source| match source.starts_with("Object") {
            true => json!({"patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": source}}),
            false => json!({"patchType": "JSONPatch", "jsonPatch": {"expression": source}}),
        })
        .collect();
    let mut object = policy(fields);
    object["metadata"]["name"] = json!(name);
    object["spec"]["mutations"] = json!(mutations);
    object
}

fn plugin(policies: Vec<Value>, bindings: Vec<Value>) -> MutatingPolicies {
    let policies = policies
        .into_iter()
        .map(|object| ("mutatingadmissionpolicies", object));
    let bindings = bindings
        .into_iter()
        .map(|object| ("mutatingadmissionpolicybindings", object));
    let setup = PolicySetup {
        objects: Arc::new(Cached(policies.chain(bindings).collect())),
        kinds: Arc::new(Widgets),
        params: Arc::new(Params),
        authorizer: Arc::new(Readers),
        patches: Arc::new(Widgets),
        metrics: Arc::new(PolicyMetrics::default()),
    };
    MutatingPolicies::new(setup, true)
}

fn request(user: &User, widget: Value) -> AdmissionRequest<'_> {
    AdmissionRequest {
        operation: Operation::Create,
        user,
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
    }
}

/// Runs one pass; returns the fields of the object beside its type.
fn admit(plugin: &MutatingPolicies, widget: Value) -> Result<Value, (u16, String)> {
    let user = User::default();
    let mut request = request(&user, widget);
    complete(plugin.admit(&mut request)).map_err(|error| (error.code(), error.message))?;
    Ok(fields_of(request.object))
}

fn fields_of(mut object: Value) -> Value {
    let fields = object.as_object_mut().unwrap();
    fields.remove("apiVersion");
    fields.remove("kind");
    object
}

fn mutate(mutations: &[&str], fields: Value, widget: Value) -> Result<Value, (u16, String)> {
    let plugin = plugin(vec![mutating("p", mutations, fields)], vec![bind("p")]);
    admit(&plugin, widget)
}

#[test]
fn each_mutation_sees_the_result_of_the_earlier_ones() {
    let mutations = [
        "Object{size: object.size + 1}",
        "[JSONPatch{op: 'add', path: '/copy', value: object.size}]",
        "[JSONPatch{op: 'test', path: '/size', value: 99}, JSONPatch{op: 'remove', path: '/copy'}]",
    ];
    let found = mutate(&mutations, json!({}), json!({"size": 1}));
    assert_eq!(found, Ok(json!({"size": 2, "copy": 2})));
}

#[test]
fn policies_are_applied_in_the_order_of_their_names() {
    let add = |name: &str| {
        let source = format!("Object{{trace: object.?trace.orValue('') + '{name}'}}");
        mutating(name, &[&source], json!({}))
    };
    let plugin = plugin(vec![add("b"), add("a")], vec![bind("a"), bind("b")]);
    assert_eq!(admit(&plugin, json!({})), Ok(json!({"trace": "ab"})));
}

#[test]
fn policy_without_binding_or_with_a_false_condition_has_no_effect() {
    let source = ["Object{size: 2}"];
    let policies = || vec![mutating("p", &source, json!({}))];
    assert_eq!(admit(&plugin(policies(), vec![]), json!({})), Ok(json!({})));
    let conditions = json!({"matchConditions": [{"name": "c", "expression": "has(object.on)"}]});
    let found = mutate(&source, conditions.clone(), json!({}));
    assert_eq!(found, Ok(json!({})));
    let found = mutate(&source, conditions, json!({"on": true}));
    assert_eq!(found, Ok(json!({"on": true, "size": 2})));
}

#[test]
fn match_conditions_have_no_namespace_object() {
    let fields =
        json!({"matchConditions": [{"name": "c", "expression": "namespaceObject == null"}]});
    let source = ["Object{env: namespaceObject.metadata.labels.env}"];
    let found = mutate(&source, fields, json!({}));
    assert_eq!(found, Ok(json!({"env": "prod"})));
}

#[test]
fn variables_and_parameters_are_read() {
    let fields = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "variables": [{"name": "double", "expression": "params.limit * 2"}]});
    let policy = mutating(
        "p",
        &["Object{size: variables.double + object.?size.orValue(0)}"],
        fields,
    );
    let with = |reference: Value| {
        let mut binding = bind("p");
        binding["spec"]["paramRef"] = reference;
        admit(&plugin(vec![policy.clone()], vec![binding]), json!({}))
    };
    let found = with(json!({"name": "p2", "parameterNotFoundAction": "Deny"}));
    assert_eq!(found, Ok(json!({"size": 4})));
    // Once for each parameter.
    let found = with(json!({"selector": {}, "parameterNotFoundAction": "Deny"}));
    assert_eq!(found, Ok(json!({"size": 6})));
    let found = with(json!({"name": "none", "parameterNotFoundAction": "Allow"}));
    assert_eq!(found, Ok(json!({})));
    let error = with(json!({"name": "none", "parameterNotFoundAction": "Deny"})).unwrap_err();
    let expect = "policy 'p' with binding 'b-p' denied request: failed to configure binding: \
                  no params found for policy binding with `Deny` parameterNotFoundAction";
    assert_eq!(error, (403, expect.to_owned()));
}

#[test]
fn failure_counts_by_the_failure_policy() {
    let start = "policy 'p' with binding 'b-p' denied request: ";
    for (source, expect) in [
        (
            "Object{size: object.none}",
            "expression 'Object{size: object.none}' resulted in error: no such key: none",
        ),
        (
            "Object{spec: Object.wrong{}}",
            "type mismatch: unexpected type name \"Object.wrong\", expected \"Object.spec\"",
        ),
        ("[JSONPatch{op: 'remove', path: '/none'}]", "JSON Patch: "),
        (
            "Object{metadata: Object.metadata{namespace: 'other'}}",
            "metadata.namespace may not be changed",
        ),
        ("Object{", "compilation error: "),
    ] {
        let (code, message) = mutate(&[source], json!({}), json!({})).unwrap_err();
        assert_eq!(code, 422, "{source}");
        assert!(
            message.starts_with(&format!("{start}{expect}")),
            "{message}"
        );
        let ignored = mutate(&[source], json!({"failurePolicy": "Ignore"}), json!({}));
        assert_eq!(ignored, Ok(json!({})), "{source}");
    }
}

#[test]
fn name_is_set_where_there_is_none_and_not_changed() {
    let source = ["Object{metadata: Object.metadata{name: 'given'}}"];
    for (metadata, expect) in [
        (json!({"generateName": "x-"}), Some("given")),
        (json!({"name": "given"}), Some("given")),
        (json!({"name": "other"}), None),
    ] {
        let found = mutate(&source, json!({}), json!({"metadata": metadata}));
        let name = found
            .as_ref()
            .ok()
            .map(|object| &object["metadata"]["name"]);
        assert_eq!(name, expect.map(|name| json!(name)).as_ref(), "{metadata}");
    }
}

#[test]
fn object_is_mutated_in_the_version_that_the_rule_names() {
    let fields = json!({"matchConstraints": rules("v2")});
    let mut request_seen =
        mutate(&["Object{seen: object.width}"], fields, json!({"size": 3})).unwrap();
    // The fake conversion renames in one direction only.
    assert_eq!(request_seen["seen"].take(), json!(3));
}

#[test]
fn policy_is_reinvoked_only_if_it_allows_that() {
    let user = User::default();
    for (reinvocation, expect) in [("Never", 1), ("IfNeeded", 2)] {
        let fields = json!({"reinvocationPolicy": reinvocation});
        let source = "Object{size: object.?size.orValue(0) + 1}";
        let plugin = plugin(vec![mutating("p", &[source], fields)], vec![bind("p")]);
        let mut request = request(&user, json!({}));
        complete(plugin.admit(&mut request)).unwrap();
        assert!(request.reinvocation.begin_second_pass());
        complete(plugin.admit(&mut request)).unwrap();
        assert_eq!(request.object["size"], json!(expect), "{reinvocation}");
    }
}

#[test]
fn policies_themselves_and_deletions_are_exempt() {
    let user = User::default();
    let rules = json!({"resourceRules": [{"operations": ["*"], "apiGroups": ["*"],
        "apiVersions": ["*"], "resources": ["*"]}]});
    let source = "Object{size: 1}";
    let policy = mutating("p", &[source], json!({"matchConstraints": rules}));
    let plugin = plugin(vec![policy], vec![bind("p")]);
    let mut policies = request(&user, json!({}));
    policies.group = "admissionregistration.k8s.io";
    policies.resource = "mutatingadmissionpolicies";
    complete(plugin.admit(&mut policies)).unwrap();
    assert_eq!(policies.object, json!({}));
    let mut deletion = request(&user, Value::Null);
    deletion.operation = Operation::Delete;
    deletion.old = Some(json!({}));
    complete(plugin.admit(&mut deletion)).unwrap();
    assert!(!deletion.reinvocation.is_requested());
}
