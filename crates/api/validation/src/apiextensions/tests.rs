#![allow(clippy::unwrap_used)]

use super::*;
use api_defaulting::default_object;
use api_meta::Kind;
use api_strategy::{prepare_create, prepare_update};
use serde_json::json;

mod conversion;
mod ratcheting;

const KIND: Kind<'static> = Kind {
    group: "apiextensions.k8s.io",
    version: "v1",
    kind: "CustomResourceDefinition",
    namespaced: false,
};

/// Returns a valid definition, changed by `change`.
fn build(change: impl Fn(&mut Value)) -> Value {
    let mut object = json!({"metadata": {"name": "widgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
                "color": {"type": "string"}, "list": {"type": "array", "items": {"type": "string"}}}}}}}}]}});
    change(&mut object);
    default_object(KIND, &mut object);
    prepare_create(KIND, &mut object);
    object
}

fn compare(errors: &Errors, expected: &[&str], what: &Value) {
    let found: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
    let equal = found.len() == expected.len()
        && found
            .iter()
            .zip(expected)
            .all(|(found, expected)| found.starts_with(expected));
    assert!(
        equal,
        "found: {found:#?}\nexpected: {expected:#?}\nobject: {what}"
    );
}

fn create(change: impl Fn(&mut Value), expected: &[&str]) {
    let object = build(change);
    let mut errors = Errors::default();
    (DEFINITION.create)(&object, &mut errors);
    compare(&errors, expected, &object);
}

fn spec(field: &str, value: Value, expected: &[&str]) {
    create(|object| object["spec"][field] = value.clone(), expected);
}

fn version(field: &str, value: Value, expected: &[&str]) {
    create(
        |object| object["spec"]["versions"][0][field] = value.clone(),
        expected,
    );
}

/// Adds a version that differs from the first one in the schema.
fn add_version(object: &mut Value, change: Value) {
    let mut second = object["spec"]["versions"][0].clone();
    second["name"] = "v2".into();
    second["storage"] = false.into();
    second["schema"]["openAPIV3Schema"]["description"] = "second".into();
    for (field, value) in change.as_object().unwrap() {
        second[field.as_str()] = value.clone();
    }
    object["spec"]["versions"]
        .as_array_mut()
        .unwrap()
        .push(second);
}

fn update(old: impl Fn(&mut Value), change: impl Fn(&mut Value), expected: &[&str]) {
    let old = build(old);
    let mut new = old.clone();
    change(&mut new);
    default_object(KIND, &mut new);
    prepare_update(KIND, "", &mut new, &old);
    let mut errors = Errors::default();
    (DEFINITION.update)(&new, &old, &mut errors);
    compare(&errors, expected, &new);
}

fn webhook(change: Value) -> Value {
    let mut conversion = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
        "clientConfig": {"service": {"name": "s", "namespace": "n"}}}});
    for (field, value) in change.as_object().unwrap() {
        conversion["webhook"][field.as_str()] = value.clone();
    }
    conversion
}

fn establish(object: &mut Value) {
    object["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
}

#[test]
fn group_and_scope_are_required() {
    create(|_| {}, &[]);
    spec(
        "group",
        json!("Example.com"),
        &[
            "metadata.name: Invalid value: \"widgets.example.com\": must be spec.names.plural",
            "spec.group: Invalid value: \"Example.com\": a lowercase RFC 1123 subdomain must",
        ],
    );
    create(
        |object| {
            object["spec"]["group"] = "example".into();
            object["metadata"]["name"] = "widgets.example".into();
        },
        &["spec.group: Invalid value: \"example\": should be a domain with at least one dot"],
    );
    spec("scope", json!(""), &["spec.scope: Required value"]);
    spec(
        "scope",
        json!("Galaxy"),
        &[
            "spec.scope: Unsupported value: \"Galaxy\": supported values: \"Cluster\", \"Namespaced\"",
        ],
    );
}

#[test]
fn names_are_labels() {
    let names = |change: Value, expected: &[&str]| {
        create(
            |object| {
                for (field, value) in change.as_object().unwrap() {
                    object["spec"]["names"][field.as_str()] = value.clone();
                }
            },
            expected,
        );
    };
    names(
        json!({"singular": "Widget"}),
        &["spec.names.singular: Invalid value: \"Widget\": a DNS-1035 label must"],
    );
    names(
        json!({"kind": "Wid_get"}),
        &[
            "spec.names.singular: Invalid value: \"wid_get\": a DNS-1035",
            "spec.names.kind: Invalid value: \"Wid_get\": may have mixed case, but should otherwise match: a DNS-1035",
            "spec.names.listKind: Invalid value: \"Wid_getList\": may have mixed case",
        ],
    );
    names(
        json!({"listKind": "Widget"}),
        &["spec.names.listKind: Invalid value: \"Widget\": kind and listKind may not be the same"],
    );
    names(
        json!({"shortNames": ["w", "W"]}),
        &["spec.names.shortNames[1]: Invalid value: \"W\": a DNS-1035"],
    );
    names(
        json!({"categories": ["all", "1a"]}),
        &["spec.names.categories[1]: Invalid value: \"1a\": a DNS-1035"],
    );
    names(
        json!({"kind": ""}),
        &[
            "spec.names.singular: Required value",
            "spec.names.kind: Required value",
            "spec.names.listKind: Required value",
        ],
    );
}

#[test]
fn versions_are_unique_and_one_is_stored() {
    create(|object| add_version(object, json!({})), &[]);
    create(
        |object| add_version(object, json!({"name": "v1"})),
        &["spec.versions: Invalid value: "],
    );
    create(
        |object| add_version(object, json!({"storage": true})),
        &["spec.versions: Invalid value: "],
    );
    create(
        |object| object["spec"]["versions"][0]["name"] = "V1".into(),
        &[
            "spec.versions[0].name: Invalid value: \"V1\": a DNS-1035",
            "spec.version: Invalid value: \"V1\": a DNS-1035",
        ],
    );
    version(
        "schema",
        json!({}),
        &["spec.versions[0].schema.openAPIV3Schema: Required value"],
    );
}

#[test]
fn stored_versions_are_served_versions() {
    update(
        |object| add_version(object, json!({})),
        |object| {
            object["spec"]["versions"][0]["storage"] = false.into();
            object["spec"]["versions"][1]["storage"] = true.into();
        },
        &[],
    );
    update(
        |object| add_version(object, json!({})),
        |object| {
            object["spec"]["versions"].as_array_mut().unwrap().remove(0);
            object["spec"]["versions"][0]["storage"] = true.into();
        },
        &[
            "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage version, and must remain",
        ],
    );
}

#[test]
fn deprecation_warning_is_a_short_text() {
    let warn = |warning: &str, expected: &[&str]| {
        create(
            |object| {
                object["spec"]["versions"][0]["deprecated"] = true.into();
                object["spec"]["versions"][0]["deprecationWarning"] = warning.into();
            },
            expected,
        );
    };
    let at = "spec.versions[0].deprecationWarning: Invalid value: ";
    warn("use v2: \"it\\'s\" näher e\u{301}", &[]);
    warn("", &[&format!("{at}\"\": must not be an empty string")]);
    warn(
        "a\u{7}",
        &[&format!(
            "{at}\"a\\a\": must only contain printable UTF-8 characters; non-printable character found at index 1"
        )],
    );
    warn(&"x".repeat(257), &[at]);
    version(
        "deprecationWarning",
        json!("x"),
        &[&format!(
            "{at}\"x\": can only be set for deprecated versions"
        )],
    );
}

#[test]
fn schemas_are_checked_at_the_path_of_the_older_form() {
    let schema =
        |node: Value| json!({"openAPIV3Schema": {"type": "object", "properties": {"a": node}}});
    version(
        "schema",
        schema(json!({})),
        &[
            "spec.validation.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields",
        ],
    );
    create(
        |object| {
            add_version(
                object,
                json!({"schema": schema(json!({"type": "string", "default": 1}))}),
            )
        },
        &[
            "spec.versions[1].schema.openAPIV3Schema.properties[a].default: Invalid value: \"integer\":  in body must be of type string: \"integer\"",
        ],
    );
    version(
        "schema",
        schema(
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object", "additionalProperties": {"type": "string"}, "default": {"a": "-"}}}}}}),
        ),
        &[
            "spec.validation.openAPIV3Schema.properties[a].properties[metadata].properties[labels].default: Invalid value: {\"a\":\"-\"}: must result in valid metadata: metadata.labels: Invalid value: \"-\": a valid label must",
        ],
    );
    create(
        |object| {
            object["spec"]["versions"][0]["subresources"] = json!({"status": {}});
            object["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["maxProperties"] = 3.into();
        },
        &["spec.validation.openAPIV3Schema: Invalid value: "],
    );
}

#[test]
fn paths_of_scale_are_in_spec_and_status() {
    let scale = |scale: Value, expected: &[&str]| {
        version("subresources", json!({"scale": scale}), expected)
    };
    let at = "spec.subresources.scale.";
    scale(
        json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.s"}),
        &[],
    );
    scale(
        json!({}),
        &[
            &format!("{at}specReplicasPath: Required value"),
            &format!("{at}statusReplicasPath: Required value"),
        ],
    );
    scale(
        json!({"specReplicasPath": ".status.x", "statusReplicasPath": "status.x", "labelSelectorPath": ".metadata.x"}),
        &[
            &format!(
                "{at}specReplicasPath: Invalid value: \".status.x\": should be a json path under .spec"
            ),
            &format!(
                "{at}statusReplicasPath: Invalid value: \"status.x\": must be a simple json path starting with ."
            ),
            &format!(
                "{at}labelSelectorPath: Invalid value: \".metadata.x\": should be a json path under either .spec or .status"
            ),
        ],
    );
}

#[test]
fn printer_columns_have_name_type_and_path() {
    let column = |column: Value, expected: &[&str]| {
        version("additionalPrinterColumns", json!([column]), expected)
    };
    let at = "spec.additionalPrinterColumns[0].";
    column(
        json!({"name": "Color", "type": "string", "jsonPath": ".spec.color", "format": "password"}),
        &[],
    );
    column(
        json!({}),
        &[
            &format!("{at}name: Required value"),
            &format!("{at}type: Required value: must be one of boolean,date,integer,number,string"),
            &format!("{at}JSONPath: Required value"),
        ],
    );
    column(
        json!({"name": "C", "type": "text", "format": "x", "jsonPath": "spec"}),
        &[
            &format!(
                "{at}type: Invalid value: \"text\": must be one of boolean,date,integer,number,string"
            ),
            &format!(
                "{at}format: Invalid value: \"x\": must be one of byte,date,date-time,double,float,int32,int64,password"
            ),
            &format!(
                "{at}JSONPath: Invalid value: \"spec\": must be a simple json path starting with ."
            ),
        ],
    );
}

#[test]
fn selectable_fields_are_scalars_of_the_schema() {
    let field = |path: &str, expected: &[&str]| {
        version("selectableFields", json!([{"jsonPath": path}]), expected)
    };
    let at = "spec.selectableFields[0].jsonPath: ";
    field(".spec.color", &[]);
    field("", &[&format!("{at}Required value")]);
    field(
        ".spec.size",
        &[&format!(
            "{at}Invalid value: \".spec.size\": is an invalid path: does not refer to a valid field"
        )],
    );
    field(
        ".spec['color']",
        &[&format!(
            "{at}Invalid value: \".spec['color']\": is an invalid path: array notation is not allowed"
        )],
    );
    field(
        ".spec.list",
        &[&format!(
            "{at}Invalid value: \".spec.list\": must point to a field of type string, boolean or integer."
        )],
    );
    version(
        "selectableFields",
        json!([{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.color"}]),
        &["spec.selectableFields[1].jsonPath: Duplicate value: \".spec.color\""],
    );
}

#[test]
fn selectable_fields_are_checked_without_a_usable_schema() {
    create(
        |object| {
            let version = &mut object["spec"]["versions"][0];
            version["schema"]["openAPIV3Schema"]["definitions"] = json!({"a": {}});
            version["selectableFields"] =
                json!([{"jsonPath": "color"}, {"jsonPath": ".spec.color"}]);
        },
        &[
            "spec.validation.openAPIV3Schema.definitions: Forbidden: ",
            "spec.schema.openAPIV3Schema: Invalid value: \"\": ",
            "spec.selectableFields[0].jsonPath: Invalid value: \"color\": is an invalid path: expected [ or . but got: color",
            "spec.selectableFields[1].jsonPath: Invalid value: \".spec.color\": is an invalid path: does not refer to a valid field",
        ],
    );
}

#[test]
fn at_most_eight_fields_are_selectable() {
    let many = |object: &mut Value| {
        for i in 0..9 {
            let field = format!("f{i}");
            object["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
                [field.as_str()] = json!({"type": "string"});
        }
        let all: Vec<Value> = (0..9)
            .map(|i| json!({"jsonPath": format!(".spec.f{i}")}))
            .collect();
        object["spec"]["versions"][0]["selectableFields"] = all.into();
    };
    create(
        many,
        &["spec.selectableFields: Too many: 9: must have at most 8 items"],
    );
    update(
        many,
        |object| object["spec"]["names"]["categories"] = json!(["all"]),
        &[],
    );
}

#[test]
fn groups_of_kubernetes_need_an_approval() {
    let approve = |annotation: Option<&str>, expected: &[&str]| {
        create(
            |object| {
                object["spec"]["group"] = "x.k8s.io".into();
                object["metadata"]["name"] = "widgets.x.k8s.io".into();
                if let Some(annotation) = annotation {
                    object["metadata"]["annotations"] = json!({APPROVAL_ANNOTATION: annotation});
                }
            },
            expected,
        );
    };
    let at = "metadata.annotations[api-approved.kubernetes.io]: ";
    let text = "protected groups must have approval annotation \"api-approved.kubernetes.io\"";
    approve(Some("https://github.com/kubernetes/kubernetes/pull/1"), &[]);
    approve(Some("unapproved, experimental"), &[]);
    approve(
        None,
        &[&format!(
            "{at}Required value: {text}, see https://github.com/kubernetes/enhancements/pull/1111"
        )],
    );
    approve(
        Some("yes"),
        &[&format!(
            "{at}Invalid value: \"yes\": {text} with either a URL or a reason starting with \"unapproved\", see"
        )],
    );
}

#[test]
fn missing_approval_of_an_old_definition_is_kept() {
    update(
        |object| {
            object["spec"]["group"] = "x.k8s.io".into();
            object["metadata"]["name"] = "widgets.x.k8s.io".into();
        },
        |object| object["spec"]["names"]["categories"] = json!(["all"]),
        &[],
    );
}

#[test]
fn unknown_fields_are_preserved_by_schemas_only() {
    let text = "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
    spec("preserveUnknownFields", json!(true), &[text]);
    update(
        |object| object["spec"]["preserveUnknownFields"] = true.into(),
        |_| {},
        &[],
    );
    update(
        |_| {},
        |object| object["spec"]["preserveUnknownFields"] = true.into(),
        &[text],
    );
}

#[test]
fn preserved_fields_exclude_defaults_and_conversion() {
    update(
        |object| object["spec"]["preserveUnknownFields"] = true.into(),
        |object| {
            object["spec"]["conversion"] = webhook(json!({}));
            object["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["default"] =
                json!({});
        },
        &[
            "spec.preserveUnknownFields: Invalid value: true: must be false in order to use defaults in the schema",
            "spec.conversion.strategy: Invalid value: \"Webhook\": must be None if spec.preserveUnknownFields is true",
        ],
    );
}

#[test]
fn identity_of_a_definition_is_fixed() {
    update(
        |_| {},
        |object| object["spec"]["names"]["plural"] = "gadgets".into(),
        &["spec.names.plural: Invalid value: \"gadgets\": field is immutable"],
    );
    update(
        |_| {},
        |object| object["spec"]["group"] = "other.com".into(),
        &["spec.group: Invalid value: \"other.com\": field is immutable"],
    );
    update(
        |_| {},
        |object| object["spec"]["scope"] = "Cluster".into(),
        &[],
    );
    let mut old = build(|_| {});
    establish(&mut old);
    let mut new = old.clone();
    new["spec"]["scope"] = "Cluster".into();
    new["spec"]["names"]["kind"] = "Gadget".into();
    let mut errors = Errors::default();
    (DEFINITION.update)(&new, &old, &mut errors);
    compare(
        &errors,
        &[
            "spec.scope: Invalid value: \"Cluster\": field is immutable",
            "spec.names.kind: Invalid value: \"Gadget\": field is immutable",
        ],
        &new,
    );
}

#[test]
fn old_problems_of_schemas_may_remain() {
    let unpruned = |object: &mut Value| {
        object["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["a"] =
            json!({"type": "object", "default": {"x": 1}});
    };
    create(
        unpruned,
        &[
            "spec.validation.openAPIV3Schema.properties[a].default: Invalid value: {\"x\":1}: must not have unknown fields",
        ],
    );
    update(
        unpruned,
        |object| object["spec"]["names"]["categories"] = json!(["all"]),
        &[],
    );
}

#[test]
fn status_names_are_labels() {
    let mut new = build(|_| {});
    new["status"]["acceptedNames"] = json!({"plural": "W", "kind": "Widget"});
    let mut errors = Errors::default();
    (DEFINITION.sub)("status", &new, &new, &mut errors);
    compare(
        &errors,
        &["status.acceptedNames.plural: Invalid value: \"W\": a DNS-1035"],
        &new,
    );
}
