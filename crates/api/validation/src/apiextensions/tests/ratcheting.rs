//! Limits of the rules of a changed definition.

use super::{add_version, update};
use serde_json::{Value, json};

/// Sets a rule of the first version that costs more than a rule may, and less than a schema may.
fn set_costly(object: &mut Value) {
    let list = json!({"type": "array", "maxItems": 3_000_000, "items": {"type": "string",
        "maxLength": 10, "x-kubernetes-validations": [{"rule": "self.contains('x')"}]}});
    let schema = &mut object["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["costly"] = list;
}

#[test]
fn limit_of_a_rule_holds_for_changed_schemas_only() {
    let rule = ".openAPIV3Schema.properties[costly].items.x-kubernetes-validations[0].rule: \
                Forbidden: estimated rule cost exceeds budget by factor of";
    let shared = format!("spec.validation{rule}");
    let first = format!("spec.versions[0].schema{rule}");
    let schema = "/spec/versions/0/schema/openAPIV3Schema";
    // Added to a definition.
    update(|_| {}, set_costly, &[&shared]);
    // In an unchanged schema, shared by all versions or not.
    let describe = |object: &mut Value| object["spec"]["names"]["shortNames"] = json!(["w"]);
    update(set_costly, describe, &[]);
    let with_second = |object: &mut Value| {
        set_costly(object);
        add_version(object, json!({}));
        let second = &mut object["spec"]["versions"][1];
        second["schema"] = json!({"openAPIV3Schema": {"type": "object"}});
    };
    update(with_second, describe, &[]);
    let second = |object: &mut Value| {
        let second = &mut object["spec"]["versions"][1];
        second["schema"]["openAPIV3Schema"]["description"] = json!("changed");
    };
    update(with_second, second, &[]);
    // In a changed one.
    let change = |object: &mut Value| {
        object.pointer_mut(schema).unwrap()["description"] = json!("changed");
    };
    update(set_costly, change, &[&shared]);
    update(with_second, change, &[&first]);
}
