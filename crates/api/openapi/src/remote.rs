//! The part of the OpenAPI v2 document that an extension server serves.

use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

const DEFINITIONS: &str = "#/definitions/";
const PARAMETERS: &str = "#/parameters/";
/// The kinds that a definition describes.
const KINDS: &str = "x-kubernetes-group-version-kind";

/// Maximum size of all parameters that are written out where they are referred to.
const MAX_PARAMETERS: usize = 8 << 20;

/// The paths of one group version, and what they refer to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RemotePaths {
    paths: Map<String, Value>,
    definitions: Map<String, Value>,
}

/// The parameters of a document, written out, are too large.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the parameters of the OpenAPI v2 document, written out, have over {MAX_PARAMETERS} bytes")]
pub struct TooLarge;

impl RemotePaths {
    /// Takes the paths of `group` and `version` from the document of an extension server, and the
    /// definitions that they refer to. Parameters are written out, as in this server's document.
    ///
    /// Definitions describe no kinds of other groups: a client that looks for one would take the
    /// schema of this server.
    ///
    /// # Errors
    /// Parameters that are too large when they are written out.
    pub fn extract(mut document: Value, group: &str, version: &str) -> Result<Self, TooLarge> {
        let prefix = format!("/apis/{group}/{version}/");
        let mut paths = take_object(&mut document, "paths");
        paths.retain(|path, _| path.starts_with(&prefix));
        let mut written = WrittenParameters::new(take_object(&mut document, "parameters"));
        paths
            .values_mut()
            .try_for_each(|item| written.write_out(item))?;
        let mut definitions = take_object(&mut document, "definitions");
        let used: BTreeSet<String> = find_used(&paths, &definitions);
        definitions.retain(|name, _| used.contains(name));
        for definition in definitions.values_mut() {
            keep_kinds(definition, group, version);
        }
        Ok(RemotePaths { paths, definitions })
    }

    /// Adds the paths to a document, which keeps its own. A definition with the name of a different
    /// one gets another name.
    pub fn merge_into(&self, document: &mut Value) {
        let is_new = |path: &str| document["paths"].get(path).is_none();
        if !self.paths.keys().any(|path| is_new(path)) {
            return;
        }
        let mut renames = BTreeMap::new();
        for (name, value) in &self.definitions {
            let new_name = free_name(&document["definitions"], &self.definitions, name, value);
            if new_name != *name {
                renames.insert(
                    format!("{DEFINITIONS}{name}"),
                    format!("{DEFINITIONS}{new_name}"),
                );
            }
        }
        for (name, value) in &self.definitions {
            let reference = format!("{DEFINITIONS}{name}");
            let name = renames.get(&reference).unwrap_or(&reference);
            let mut value = value.clone();
            rename_references(&mut value, &renames);
            let name = name.strip_prefix(DEFINITIONS).unwrap_or(name);
            insert_definition(&mut document["definitions"], name, value);
        }
        for (path, item) in &self.paths {
            if document["paths"].get(path).is_none() {
                let mut item = item.clone();
                rename_references(&mut item, &renames);
                document["paths"][path] = item;
            }
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

    fn write_out(&mut self, value: &mut Value) -> Result<(), TooLarge> {
        let reference = value.get("$ref").and_then(Value::as_str);
        let name = reference.and_then(|reference| reference.strip_prefix(PARAMETERS));
        if let Some(name) = name {
            let size = self.sizes.get(name).copied().unwrap_or_default();
            self.left = self.left.checked_sub(size).ok_or(TooLarge)?;
            let parameter = self.all.get(name).cloned();
            *value = parameter.unwrap_or_default();
            return Ok(());
        }
        match value {
            Value::Object(map) => map.values_mut().try_for_each(|value| self.write_out(value)),
            Value::Array(list) => list.iter_mut().try_for_each(|value| self.write_out(value)),
            _ => Ok(()),
        }
    }
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

/// Removes the kinds of other groups and versions.
fn keep_kinds(definition: &mut Value, group: &str, version: &str) {
    let Some(Value::Array(kinds)) = definition.get_mut(KINDS) else {
        return;
    };
    kinds.retain(|kind| kind["group"] == group && kind["version"] == version);
    if kinds.is_empty()
        && let Some(map) = definition.as_object_mut()
    {
        map.remove(KINDS);
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

    fn remote(definitions: Value) -> RemotePaths {
        let document = json!({"paths": {"/apis/g.io/v1/flunders": path("Flunder"),
            "/apis/other.io/v1/things": path("Thing"), "/apis/g.io/v10/flunders": path("Thing")},
            "definitions": definitions});
        RemotePaths::extract(document, "g.io", "v1").unwrap()
    }

    #[test]
    fn paths_of_the_group_version_come_with_what_they_refer_to() {
        let found = remote(json!({
            "Flunder": {"properties": {"$ref": {"type": "string"}, "self": {"$ref": "#/definitions/Flunder"},
                "list": {"items": {"$ref": "#/definitions/Inner"}}}},
            "Inner": {"type": "string"}, "Thing": {"type": "object"}}));
        assert_eq!(
            found.paths.keys().collect::<Vec<_>>(),
            ["/apis/g.io/v1/flunders"]
        );
        assert_eq!(
            found.definitions.keys().collect::<Vec<_>>(),
            ["Flunder", "Inner"]
        );
    }

    #[test]
    fn what_is_there_stays_and_what_conflicts_is_renamed() {
        let found = remote(json!({
            "Flunder": {"properties": {"pod": {"$ref": "#/definitions/Pod"}, "o": {"$ref": "#/definitions/Options"}}},
            "Pod": {"type": "string", KINDS: [kind("", "Pod")]},
            "Options": {"type": "object", KINDS: [kind("g.io", "Options"), kind("", "Node")]}}));
        let mut document = local();
        found.merge_into(&mut document);
        let definitions = &document["definitions"];
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
        assert_eq!(document["paths"]["/apis/g.io/v1/flunders"], path("Flunder"));
        let once = document.clone();
        found.merge_into(&mut document);
        assert_eq!(document, once, "merged again, nothing changes");
    }

    #[test]
    fn parameters_are_written_out_within_a_limit() {
        let document = |size: usize| {
            let big = json!({"name": "a", "description": "x".repeat(size)});
            let uses = vec![json!({"$ref": "#/parameters/a"}); 3];
            json!({"parameters": {"a": big}, "paths": {"/apis/g.io/v1/x": {"parameters": uses}}})
        };
        let mut merged = local();
        let found = RemotePaths::extract(document(1), "g.io", "v1").unwrap();
        found.merge_into(&mut merged);
        let written = &merged["paths"]["/apis/g.io/v1/x"]["parameters"];
        assert_eq!(written[2], json!({"name": "a", "description": "x"}));
        let too_large = RemotePaths::extract(document(MAX_PARAMETERS / 2), "g.io", "v1");
        assert_eq!(too_large, Err(TooLarge));
    }

    #[test]
    fn documents_of_another_form_add_nothing() {
        for (document, group) in [
            (json!(null), "g.io"),
            (json!([]), "g.io"),
            (json!({"paths": 1, "definitions": []}), "g.io"),
            (local(), ""),
        ] {
            let mut merged = local();
            let found = RemotePaths::extract(document, group, "v1").unwrap();
            found.merge_into(&mut merged);
            assert_eq!(merged, local());
        }
    }
}
