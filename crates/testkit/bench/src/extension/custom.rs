//! CustomResourceDefinitions about as large as those of cert-manager, and their objects.

use serde_json::{Map, Value, json};

/// API group of the custom resources.
pub const GROUP: &str = "extension-bench.example.com";

/// Label of everything that a measurement creates.
pub const SELECTOR: &str = "bench%3Dextension";

/// Size of a schema as JSON, in bytes.
const SCHEMA_BYTES: usize = 30_000;

const WORDS: [&str; 24] = [
    "the",
    "name",
    "of",
    "a",
    "resource",
    "that",
    "is",
    "used",
    "to",
    "store",
    "issued",
    "keys",
    "if",
    "set",
    "this",
    "field",
    "must",
    "match",
    "an",
    "existing",
    "secret",
    "in",
    "same",
    "namespace",
];

/// Returns the labels of an object.
pub fn build_labels() -> Value {
    json!({"bench": "extension"})
}

/// Returns the path of a collection in the namespace `default`.
pub fn collection_path(index: usize) -> String {
    format!("/apis/{GROUP}/v1/namespaces/default/widgets{index}s")
}

/// Returns a definition. No two of them share names of fields.
pub fn build_definition(index: usize) -> Value {
    let (plural, singular) = (format!("widgets{index}s"), format!("widgets{index}"));
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}"), "labels": build_labels()},
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {"plural": plural, "singular": singular, "kind": format!("Widgets{index}")},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    {"name": "Ready", "type": "string",
                        "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
                "schema": {"openAPIV3Schema": build_schema(index)},
            }],
        },
    })
}

fn build_schema(index: usize) -> Value {
    let mut sections = Map::new();
    let mut length = 0;
    while length < SCHEMA_BYTES {
        let number = sections.len();
        let section = build_section(index, number);
        length += section.to_string().len();
        sections.insert(format!("section{index}x{number}"), section);
    }
    json!({"type": "object", "description": build_description(index), "required": ["spec"], "properties": {
        "apiVersion": {"type": "string"}, "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": {"type": "object", "description": build_description(index + 1), "properties": sections},
        "status": {"type": "object", "properties": {"conditions": build_conditions()}},
    }})
}

fn build_conditions() -> Value {
    json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
    "items": {"type": "object", "required": ["type", "status"], "properties": {
        "type": {"type": "string"}, "reason": {"type": "string"}, "message": {"type": "string"},
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "lastTransitionTime": {"type": "string", "format": "date-time"},
    }}})
}

fn build_section(index: usize, number: usize) -> Value {
    let text = |offset: usize| build_description(index * 131 + number * 17 + offset);
    let string = |offset: usize| json!({"type": "string", "description": text(offset)});
    let mut properties = Map::new();
    for (i, field) in [
        "commonName",
        "secretName",
        "duration",
        "server",
        "email",
        "class",
    ]
    .iter()
    .enumerate()
    {
        properties.insert(format!("{field}{index}"), string(i));
    }
    let rest = json!({
        "mode": {"type": "string", "description": text(7), "enum": ["Always", "Never"],
            "default": "Always"},
        "size": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 8192,
            "description": text(8)},
        "pattern": {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            "maxLength": 63},
        "selector": {"type": "object", "additionalProperties": {"type": "string"},
            "x-kubernetes-map-type": "atomic", "description": text(9)},
        "names": {"type": "array", "items": {"type": "string"}, "description": text(10)},
        "reference": {"type": "object", "description": text(11), "required": ["name"],
            "properties": {"name": string(12), "kind": string(13), "group": string(14)}},
        "solvers": {"type": "array", "description": text(15), "items": {"type": "object",
            "properties": {"http": {"type": "object", "properties": {
                "class": string(16), "port": {"x-kubernetes-int-or-string": true,
                    "anyOf": [{"type": "integer"}, {"type": "string"}]}}}, "dns": string(17)}}},
    });
    properties.extend(rest.as_object().cloned().unwrap_or_default());
    json!({"type": "object", "description": text(18), "properties": properties})
}

/// Returns a sentence that depends on a number.
fn build_description(number: usize) -> String {
    let words =
        (0..24).filter_map(|i| WORDS.get((number * 7 + i * (number % 5 + 1)) % WORDS.len()));
    words.copied().collect::<Vec<_>>().join(" ")
}

/// Returns a custom object of the first definition.
pub fn build_object(number: usize) -> Value {
    let section = |part: usize| {
        json!({"commonName0": format!("host{number}.part{part}.example.com"),
            "secretName0": format!("secret-{number}-{part}"), "mode": "Always", "size": 2048,
            "selector": {"app": "bench", "part": part.to_string()},
            "names": ["a.example.com", "b.example.com"],
            "reference": {"name": "issuer", "kind": "ClusterIssuer", "group": "example.com"}})
    };
    let sections: Map<String, Value> = (0..3)
        .map(|part| (format!("section0x{part}"), section(part)))
        .collect();
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Widgets0",
        "metadata": {"name": format!("bench-{number}"), "labels": build_labels()}, "spec": sections})
}

/// Returns a ConfigMap whose JSON is `extra` bytes longer than that of the custom object.
pub fn build_config_map(number: usize, extra: usize) -> Value {
    let mut map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": format!("bench-{number}"), "labels": build_labels()}, "data": {}});
    let missing =
        (build_object(number).to_string().len() + extra).saturating_sub(map.to_string().len());
    // Ten values, as a ConfigMap of settings has. Each costs the punctuation of its key, 10 bytes.
    let data: Map<String, Value> = (0..10)
        .map(|i| {
            let length = missing / 10 + usize::from(i < missing % 10);
            (
                format!("key{i}"),
                json!("v".repeat(length.saturating_sub(10))),
            )
        })
        .collect();
    if let Some(map) = map.as_object_mut() {
        map.insert("data".to_owned(), Value::Object(data));
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schema_is_as_large_as_those_of_cert_manager() {
        let length = build_schema(7).to_string().len();
        assert!((30_000..40_000).contains(&length), "{length}");
    }

    #[test]
    fn config_map_is_as_long_as_the_custom_object() {
        let length = build_object(77).to_string().len();
        for extra in [0, 488] {
            let found = build_config_map(77, extra).to_string().len();
            assert!(found.abs_diff(length + extra) <= 1, "{found}");
        }
    }

    #[test]
    fn no_two_definitions_share_fields() {
        let names = |index| {
            let schema = build_schema(index);
            let spec = &schema["properties"]["spec"]["properties"];
            spec.as_object()
                .map(|fields| fields.keys().cloned().collect::<Vec<_>>())
        };
        let (first, second) = (names(1).unwrap_or_default(), names(2).unwrap_or_default());
        assert!(!first.is_empty() && first.iter().all(|name| !second.contains(name)));
    }

    #[test]
    fn object_sets_only_fields_of_the_first_definition() {
        let (schema, object) = (build_schema(0), build_object(5));
        let sections = object["spec"].as_object().into_iter().flatten();
        for (name, section) in sections {
            let known = &schema["properties"]["spec"]["properties"][name]["properties"];
            for field in section.as_object().into_iter().flatten() {
                assert!(known.get(field.0).is_some(), "{name}.{}", field.0);
            }
        }
    }
}
