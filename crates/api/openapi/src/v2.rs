//! OpenAPI version 2: a single document, built from the parts of version 3.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::custom::CustomResources;
use crate::custom_schema::{Form, add_schemas};
use crate::descriptions::Descriptions;
use crate::operations::Operations;
use crate::v3;

/// Returns the hash of the document, for its entity tag. `remote` has the hashes of the documents
/// of extension servers.
pub fn hash<'a>(custom: &CustomResources, remote: impl Iterator<Item = &'a str>) -> String {
    let mut hasher = Sha256::new();
    for entry in v3::index_paths(custom).values() {
        hasher.update(entry.to_string());
    }
    remote.for_each(|hash| hasher.update(hash));
    v3::to_hexadecimal(&hasher.finalize())
}

/// Returns the document of `/openapi/v2`.
pub fn document(custom: &CustomResources) -> Value {
    let descriptions = Descriptions::load();
    let (mut paths, mut definitions) = (Map::new(), Map::new());
    let all: Vec<(&str, &str)> = v3::list_built_in(custom).collect();
    // One document for all groups. kubectl older than 1.27 reads nothing else.
    for (group, version) in v3::list_versions(custom) {
        let mut operations = Operations::new(group, version, custom);
        // Later versions overwrite shared definitions with equal ones.
        definitions.extend(
            v3::build_components(&operations, &all, &descriptions)
                .into_iter()
                .map(|(name, schema)| (name, convert_definition(schema))),
        );
        let of_version = std::mem::take(&mut operations.paths);
        paths.extend(
            of_version
                .into_iter()
                .map(|(path, item)| (path, path_item(item))),
        );
    }
    // Behind all others: a custom resource can't replace the definition of a built-in type.
    let mut added = Map::new();
    for version in custom.iter() {
        add_schemas(version, Form::Version2, &descriptions, &mut added);
    }
    for (name, schema) in added {
        let entry = definitions.entry(name);
        entry.or_insert_with(|| convert_definition(schema));
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.36.0"},
        "paths": paths,
        "definitions": definitions,
        "securityDefinitions": {"BearerToken": {
            "type": "apiKey", "in": "header", "name": "authorization", "description": "Bearer Token authentication",
        }},
        "security": [{"BearerToken": []}],
    })
}

/// Converts a schema: version 2 has no `allOf` around references and no `oneOf`; text represents
/// numbers or strings.
fn convert_definition(schema: Value) -> Value {
    let Value::Object(map) = schema else {
        return schema;
    };
    let mut out = Map::new();
    for (key, value) in map {
        match (key.as_str(), value) {
            // The wrapper of version 3 exists for keywords beside a reference, which stand together
            // here.
            ("allOf", Value::Array(list)) => {
                if let Some(Value::Object(reference)) = list.into_iter().next() {
                    out.extend(
                        reference
                            .into_iter()
                            .map(|(key, value)| (key, convert_reference(value))),
                    );
                }
            }
            ("oneOf", Value::Array(_)) => {
                // Swagger has no union. Upstream publishes `int-or-string` and quantities as
                // strings here.
                drop(out.insert("type".to_owned(), Value::from("string")))
            }
            ("$ref", value) => drop(out.insert(key, convert_reference(value))),
            ("properties", Value::Object(members)) => {
                let members: Map<String, Value> = members
                    .into_iter()
                    .map(|(name, schema)| (name, convert_definition(schema)))
                    .collect();
                out.insert(key, Value::Object(members));
            }
            ("items" | "additionalProperties", value) => {
                drop(out.insert(key, convert_definition(value)))
            }
            (_, value) => drop(out.insert(key, value)),
        }
    }
    Value::Object(out)
}

fn convert_reference(reference: Value) -> Value {
    match reference.as_str() {
        Some(text) => Value::from(text.replace("#/components/schemas/", "#/definitions/")),
        None => reference,
    }
}

fn path_item(item: Value) -> Value {
    let Value::Object(map) = item else {
        return item;
    };
    let convert = |(method, value): (String, Value)| match (method.as_str(), value) {
        ("parameters", Value::Array(list)) => (
            method,
            Value::Array(list.into_iter().map(convert_parameter).collect()),
        ),
        (_, value) => (method, convert_operation(value)),
    };
    map.into_iter().map(convert).collect::<Map<_, _>>().into()
}

/// Converts a parameter: version 2 has no separate schema in it.
fn convert_parameter(parameter: Value) -> Value {
    let Value::Object(mut map) = parameter else {
        return parameter;
    };
    if let Some(Value::Object(schema)) = map.remove("schema") {
        map.extend(schema);
    }
    Value::Object(map)
}

fn convert_operation(operation: Value) -> Value {
    let Value::Object(mut map) = operation else {
        return operation;
    };
    let mut parameters: Vec<Value> = match map.remove("parameters") {
        Some(Value::Array(list)) => list.into_iter().map(convert_parameter).collect(),
        _ => Vec::new(),
    };
    // Version 2 needs the list at each operation, and upstream has this one without a body.
    let mut consumes = vec!["*/*".to_owned()];
    if let Some(body) = map.remove("requestBody") {
        consumes = list_formats(&body);
        let schema = first_schema(&body).map(convert_definition);
        let required = body.get("required").is_some();
        let mut entry = json!({"in": "body", "name": "body", "schema": schema});
        if let (Value::Object(entry), true) = (&mut entry, required) {
            entry.insert("required".to_owned(), Value::Bool(true));
        }
        // The body is a parameter in version 2, and upstream lists it before the others.
        parameters.insert(0, entry);
    }
    let mut produces = Vec::new();
    if let Some(Value::Object(responses)) = map.get_mut("responses") {
        for response in responses.values_mut() {
            // The types belong to the operation in version 2. Its first response has a body, that
            // of 401 has none.
            if produces.is_empty() {
                produces = list_formats(response);
            }
            *response = self::convert_response(response);
        }
    }
    if !parameters.is_empty() {
        map.insert("parameters".to_owned(), Value::Array(parameters));
    }
    map.insert("consumes".to_owned(), json!(consumes));
    map.insert("produces".to_owned(), json!(produces));
    // The API server has no plain HTTP, so clients must not try it.
    map.insert("schemes".to_owned(), json!(["https"]));
    Value::Object(map)
}

fn list_formats(body: &Value) -> Vec<String> {
    body.get("content")
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|content| content.keys().cloned())
        .collect()
}

fn first_schema(body: &Value) -> Option<Value> {
    body.get("content")?
        .as_object()?
        .values()
        .next()?
        .get("schema")
        .cloned()
}

fn convert_response(response: &Value) -> Value {
    let mut out = json!({"description": response.get("description")});
    if let (Value::Object(map), Some(schema)) = (&mut out, first_schema(response)) {
        map.insert("schema".to_owned(), convert_definition(schema));
    }
    out
}
