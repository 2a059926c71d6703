//! The part of the OpenAPI v2 document that an extension server serves.

use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

const DEFINITIONS: &str = "#/definitions/";
const PARAMETERS: &str = "#/parameters/";
/// The kinds that a definition describes.
const KINDS: &str = "x-kubernetes-group-version-kind";

/// Maximum size of all parameters that are written out where they are referred to. Those of
/// upstream's servers have some 60 kB.
const MAX_PARAMETERS: usize = 1 << 20;
/// Maximum number of objects and lists in a document. Each takes some 600 bytes while it is read,
/// however short its text is.
const MAX_OBJECTS: usize = 1 << 16;
/// Maximum number of kinds that one definition describes.
const MAX_KINDS: usize = 64;

/// The paths of one group version, and the definitions that they refer to, as JSON: it is read only
/// when this server's document is built.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RemotePaths(Vec<u8>);

/// The parts of a document that are merged.
#[derive(Default, serde::Serialize, serde::Deserialize)]
struct Parts {
    paths: Map<String, Value>,
    definitions: Map<String, Value>,
}

/// Reasons why the document of an extension server is not merged.
#[derive(Debug, thiserror::Error)]
pub enum RemotePathsError {
    /// The text is no JSON.
    #[error("the OpenAPI v2 document is not JSON: {0}")]
    Syntax(#[from] serde_json::Error),
    /// There are too many objects and lists.
    #[error("the OpenAPI v2 document has over {MAX_OBJECTS} objects and lists")]
    Objects,
    /// The parameters are too large when they are written out.
    #[error(
        "the parameters of the OpenAPI v2 document, written out, have over {MAX_PARAMETERS} bytes"
    )]
    Parameters,
}

impl RemotePaths {
    /// Takes the paths of `group` and `version` from the document of an extension server, and the
    /// definitions that they refer to. Parameters are written out, as in this server's document.
    ///
    /// Neither describes kinds of other groups: a client that looks for one would take the schema
    /// of the extension server.
    ///
    /// # Errors
    /// A document that can't be read, or that is too large.
    pub fn extract(text: &[u8], group: &str, version: &str) -> Result<Self, RemotePathsError> {
        if text.iter().filter(|byte| b"{[".contains(byte)).count() > MAX_OBJECTS {
            return Err(RemotePathsError::Objects);
        }
        let mut document: Value = serde_json::from_slice(text)?;
        let prefix = format!("/apis/{group}/{version}/");
        let mut paths = take_object(&mut document, "paths");
        paths.retain(|path, _| path.starts_with(&prefix));
        let mut written = WrittenParameters::new(take_object(&mut document, "parameters"));
        paths
            .values_mut()
            .try_for_each(|item| written.write_out(item))?;
        let own = GroupVersion { group, version };
        for operation in paths.values_mut().filter_map(Value::as_object_mut) {
            operation
                .values_mut()
                .for_each(|value| own.keep_kind(value));
        }
        let mut definitions = take_object(&mut document, "definitions");
        let used: BTreeSet<String> = find_used(&paths, &definitions);
        definitions.retain(|name, _| used.contains(name));
        definitions
            .values_mut()
            .for_each(|definition| own.keep_kinds(definition));
        Ok(RemotePaths(serde_json::to_vec(&Parts {
            paths,
            definitions,
        })?))
    }

    /// Adds the paths to a document, which keeps its own. A definition with the name of a different
    /// one gets another name.
    pub fn merge_into(&self, document: &mut Value) {
        // It was written by this type.
        let Parts { paths, definitions } = serde_json::from_slice(&self.0).unwrap_or_default();
        let is_new = |path: &str| document["paths"].get(path).is_none();
        if !paths.keys().any(|path| is_new(path)) {
            return;
        }
        let mut renames = BTreeMap::new();
        for (name, value) in &definitions {
            let new_name = free_name(&document["definitions"], &definitions, name, value);
            if new_name != *name {
                renames.insert(
                    format!("{DEFINITIONS}{name}"),
                    format!("{DEFINITIONS}{new_name}"),
                );
            }
        }
        for (name, mut value) in definitions {
            let reference = format!("{DEFINITIONS}{name}");
            let name = renames.get(&reference).unwrap_or(&reference);
            rename_references(&mut value, &renames);
            let name = name.strip_prefix(DEFINITIONS).unwrap_or(name);
            insert_definition(&mut document["definitions"], name, value);
        }
        for (path, mut item) in paths {
            if document["paths"].get(&path).is_none() {
                rename_references(&mut item, &renames);
                document["paths"][path] = item;
            }
        }
    }
}

/// The group and version whose kinds a document may describe.
struct GroupVersion<'a> {
    group: &'a str,
    version: &'a str,
}

impl GroupVersion<'_> {
    fn has(&self, kind: &Value) -> bool {
        kind["group"] == self.group && kind["version"] == self.version
    }

    /// Removes the kinds of other groups and versions from a definition.
    fn keep_kinds(&self, definition: &mut Value) {
        let Some(definition) = definition.as_object_mut() else {
            return;
        };
        let Some(Value::Array(all)) = definition.remove(KINDS) else {
            return;
        };
        let mut kinds: Vec<Value> = Vec::new();
        for kind in all.into_iter().filter(|kind| self.has(kind)) {
            if kinds.len() < MAX_KINDS && !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        if !kinds.is_empty() {
            definition.insert(KINDS.to_owned(), kinds.into());
        }
    }

    /// Removes the kind of another group or version from an operation.
    fn keep_kind(&self, operation: &mut Value) {
        if let Some(operation) = operation.as_object_mut()
            && operation.get(KINDS).is_some_and(|kind| !self.has(kind))
        {
            operation.remove(KINDS);
        }
    }
}

/// Writes parameters out where a path refers to them.
struct WrittenParameters {
    all: Map<String, Value>,
    sizes: BTreeMap<String, usize>,
    left: usize,
}

impl WrittenParameters {
    fn new(all: Map<String, Value>) -> Self {
        let size = |(name, value): (&String, &Value)| (name.clone(), value.to_string().len());
        WrittenParameters {
            sizes: all.iter().map(size).collect(),
            all,
            left: MAX_PARAMETERS,
        }
    }

    fn write_out(&mut self, value: &mut Value) -> Result<(), RemotePathsError> {
        match value {
            Value::Object(map) => map.values_mut().try_for_each(|value| self.write_out(value)),
            Value::Array(list) => {
                // A reference to nothing can't be written out.
                list.retain(|value| {
                    name_of_parameter(value).is_none_or(|name| self.all.contains_key(name))
                });
                list.iter_mut().try_for_each(|value| {
                    match name_of_parameter(value).map(str::to_owned) {
                        Some(name) => self.replace(value, &name),
                        None => self.write_out(value),
                    }
                })
            }
            _ => Ok(()),
        }
    }

    fn replace(&mut self, value: &mut Value, name: &str) -> Result<(), RemotePathsError> {
        let size = self.sizes.get(name).copied().unwrap_or_default();
        let left = self.left.checked_sub(size);
        self.left = left.ok_or(RemotePathsError::Parameters)?;
        *value = self.all.get(name).cloned().unwrap_or_default();
        Ok(())
    }
}

/// Returns the name of the parameter that a value refers to.
fn name_of_parameter(value: &Value) -> Option<&str> {
    value.get("$ref")?.as_str()?.strip_prefix(PARAMETERS)
}

/// Returns the names of the definitions to which the paths refer, directly or by others.
fn find_used(paths: &Map<String, Value>, definitions: &Map<String, Value>) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    let mut pending: Vec<&Value> = paths.values().collect();
    while let Some(value) = pending.pop() {
        let mut references = Vec::new();
        collect_references(value, &mut references);
        for name in references
            .into_iter()
            .filter_map(|reference| reference.strip_prefix(DEFINITIONS))
        {
            if let Some(definition) = definitions.get(name)
                && used.insert(name.to_owned())
            {
                pending.push(definition);
            }
        }
    }
    used
}

fn take_object(document: &mut Value, key: &str) -> Map<String, Value> {
    match document.get_mut(key).map(Value::take) {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

/// Adds the texts of all references in `value`.
fn collect_references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(map) => {
            // A property may have this name; its value is a schema.
            found.extend(map.get("$ref").and_then(Value::as_str));
            map.values()
                .for_each(|value| collect_references(value, found));
        }
        Value::Array(list) => list
            .iter()
            .for_each(|value| collect_references(value, found)),
        _ => {}
    }
}

fn rename_references(value: &mut Value, renames: &BTreeMap<String, String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value.as_str().and_then(|reference| renames.get(reference)) {
                    Some(new_name) if key == "$ref" => *value = new_name.as_str().into(),
                    _ => rename_references(value, renames),
                }
            }
        }
        Value::Array(list) => list
            .iter_mut()
            .for_each(|value| rename_references(value, renames)),
        _ => {}
    }
}

/// Returns whether both are equal but for the kinds that they describe.
fn are_equal(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else {
        return a == b;
    };
    let count = |map: &Map<String, Value>| map.len() - usize::from(map.contains_key(KINDS));
    count(a) == count(b)
        && a.iter()
            .all(|(key, value)| key == KINDS || b.get(key) == Some(value))
}

/// Returns `name`, or the first name with a number behind it that no different value has.
fn free_name(existing: &Value, own: &Map<String, Value>, name: &str, value: &Value) -> String {
    let is_free = |name: &str| {
        existing
            .get(name)
            .is_none_or(|other| are_equal(other, value))
    };
    if is_free(name) {
        return name.to_owned();
    }
    let numbered = (2..).map(|number: u64| format!("{name}_v{number}"));
    let mut free = numbered.filter(|name| is_free(name) && !own.contains_key(name));
    // The numbers are endless.
    free.next().unwrap_or_default()
}

/// Inserts a definition; an equal one gets its kinds.
fn insert_definition(definitions: &mut Value, name: &str, value: Value) {
    let Some(existing) = definitions.get_mut(name) else {
        definitions[name] = value;
        return;
    };
    for kind in value[KINDS].as_array().into_iter().flatten() {
        match existing[KINDS].as_array_mut() {
            Some(kinds) if kinds.contains(kind) => {}
            Some(kinds) => kinds.push(kind.clone()),
            None => existing[KINDS] = vec![kind.clone()].into(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn kind(group: &str, kind: &str) -> Value {
        json!({"group": group, "version": "v1", "kind": kind})
    }

    fn path(definition: &str) -> Value {
        json!({"get": {"schema": {"$ref": format!("{DEFINITIONS}{definition}")}}})
    }

    fn local() -> Value {
        json!({"swagger": "2.0", "paths": {"/api/v1/pods": path("Pod")}, "definitions": {
            "Pod": {"type": "object", KINDS: [kind("", "Pod")]},
            "Options": {"type": "object", KINDS: [kind("", "Options")]}}})
    }

    fn extract(document: &Value, group: &str) -> Result<RemotePaths, RemotePathsError> {
        RemotePaths::extract(document.to_string().as_bytes(), group, "v1")
    }

    fn merge(document: &Value, group: &str) -> Value {
        let mut merged = local();
        extract(document, group).unwrap().merge_into(&mut merged);
        merged
    }

    fn remote(definitions: Value) -> Value {
        json!({"paths": {"/apis/g.io/v1/flunders": path("Flunder"),
            "/apis/other.io/v1/things": path("Thing"), "/apis/g.io/v10/flunders": path("Thing")},
            "definitions": definitions})
    }

    #[test]
    fn paths_of_the_group_version_are_merged_with_their_definitions() {
        let document = remote(json!({
            "Flunder": {"properties": {"$ref": {"type": "string"}, "self": {"$ref": "#/definitions/Flunder"},
                "list": {"items": {"$ref": "#/definitions/Inner"}}}},
            "Inner": {"type": "string"}, "Thing": {"type": "object"}}));
        let merged = merge(&document, "g.io");
        let names = |key: &str| {
            merged[key]
                .as_object()
                .unwrap()
                .keys()
                .cloned()
                .collect::<Vec<_>>()
        };
        assert_eq!(names("paths"), ["/api/v1/pods", "/apis/g.io/v1/flunders"]);
        assert_eq!(names("definitions"), ["Flunder", "Inner", "Options", "Pod"]);
    }

    #[test]
    fn local_definitions_are_kept_and_conflicting_ones_renamed() {
        let document = remote(json!({
            "Flunder": {"properties": {"pod": {"$ref": "#/definitions/Pod"}, "o": {"$ref": "#/definitions/Options"}}},
            "Pod": {"type": "string", KINDS: [kind("", "Pod")]},
            "Options": {"type": "object", KINDS: [kind("g.io", "Options"), kind("", "Node")]}}));
        let found = extract(&document, "g.io").unwrap();
        let mut merged = local();
        found.merge_into(&mut merged);
        let definitions = &merged["definitions"];
        assert_eq!(definitions["Pod"], local()["definitions"]["Pod"]);
        assert_eq!(definitions["Pod_v2"], json!({"type": "string"}));
        assert_eq!(
            definitions["Flunder"]["properties"]["pod"]["$ref"],
            "#/definitions/Pod_v2"
        );
        // An equal definition is shared, and describes the server's own kinds as well.
        assert_eq!(
            definitions["Options"][KINDS],
            json!([kind("", "Options"), kind("g.io", "Options")])
        );
        assert_eq!(merged["paths"]["/apis/g.io/v1/flunders"], path("Flunder"));
        let once = merged.clone();
        found.merge_into(&mut merged);
        assert_eq!(merged, once, "merged again, nothing changes");
    }

    #[test]
    fn operations_and_definitions_describe_kinds_of_their_own_group_only() {
        let operation = |kind: Value| json!({"patch": {KINDS: kind, "consumes": ["x"]}});
        let many: Vec<Value> = (0..100).map(|n| kind("g.io", &format!("K{n}"))).collect();
        let many = [many.clone(), many].concat();
        let document = json!({"paths": {"/apis/g.io/v1/a": operation(kind("apps", "Deployment")),
            "/apis/g.io/v1/b": operation(kind("g.io", "B")), "/apis/g.io/v1/c": path("Many")},
            "definitions": {"Many": {KINDS: many}}});
        let merged = merge(&document, "g.io");
        let kind_of =
            |name: &str| merged["paths"][format!("/apis/g.io/v1/{name}")]["patch"][KINDS].clone();
        assert_eq!(
            (kind_of("a"), kind_of("b")),
            (Value::Null, kind("g.io", "B"))
        );
        let kinds = merged["definitions"]["Many"][KINDS].as_array().unwrap();
        assert_eq!(kinds.len(), MAX_KINDS);
    }

    #[test]
    fn parameters_are_written_out_within_a_limit() {
        let document = |size: usize| {
            let big = json!({"name": "a", "description": "x".repeat(size)});
            let mut uses = vec![json!({"$ref": "#/parameters/a"}); 3];
            uses.push(json!({"$ref": "#/parameters/absent"}));
            json!({"parameters": {"a": big}, "paths": {"/apis/g.io/v1/x": {"parameters": uses}}})
        };
        let merged = merge(&document(1), "g.io");
        let written = &merged["paths"]["/apis/g.io/v1/x"]["parameters"];
        assert_eq!(
            written,
            &json!(vec![json!({"name": "a", "description": "x"}); 3])
        );
        let too_large = extract(&document(MAX_PARAMETERS / 2), "g.io");
        assert!(matches!(too_large, Err(RemotePathsError::Parameters)));
    }

    #[test]
    fn documents_with_too_many_objects_are_not_read() {
        let text = format!("[{}0]", "{},".repeat(MAX_OBJECTS));
        let refused = RemotePaths::extract(text.as_bytes(), "g.io", "v1");
        assert!(matches!(refused, Err(RemotePathsError::Objects)));
    }

    #[test]
    fn documents_of_another_form_add_nothing() {
        for (document, group) in [
            (json!(null), "g.io"),
            (json!([]), "g.io"),
            (json!({"paths": 1, "definitions": []}), "g.io"),
            (local(), ""),
        ] {
            assert_eq!(merge(&document, group), local());
        }
    }
}
