//! Walks the nodes of a schema as JSON.

use crate::parse::MAX_DEPTH;
use api_meta::tree::{get, list};
use serde_json::Value;

/// Calls `visit` with each node of a schema until it returns true. Returns whether it did.
pub fn visit_schemas(schema: &Value, visit: &mut dyn FnMut(&Value) -> bool) -> bool {
    visit_node(schema, 0, visit)
}

fn visit_node(node: &Value, depth: usize, visit: &mut dyn FnMut(&Value) -> bool) -> bool {
    if !node.is_object() || depth > MAX_DEPTH {
        return false;
    }
    if visit(node) {
        return true;
    }
    for keyword in ["items", "not", "additionalProperties", "additionalItems"] {
        if visit_node(get(node, keyword), depth + 1, visit) {
            return true;
        }
    }
    for keyword in ["items", "allOf", "anyOf", "oneOf"] {
        for inner in list(node, keyword) {
            if visit_node(inner, depth + 1, visit) {
                return true;
            }
        }
    }
    for keyword in [
        "properties",
        "patternProperties",
        "definitions",
        "dependencies",
    ] {
        for (_, inner) in get(node, keyword).as_object().into_iter().flatten() {
            if visit_node(inner, depth + 1, visit) {
                return true;
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn all_nodes_are_visited() {
        let node = |name: &str| json!({"title": name});
        let schema = json!({"title": "root", "items": node("items"), "not": node("not"),
            "additionalProperties": node("additional"), "properties": {"a": node("property")},
            "allOf": [node("all")], "anyOf": [node("any")], "oneOf": [{"title": "one", "items": [node("item")]}],
            "patternProperties": {"a": node("pattern")}, "definitions": {"a": node("definition")},
            "dependencies": {"a": node("dependency"), "b": ["a"]}, "additionalItems": node("more")});
        let mut seen = Vec::new();
        assert!(!visit_schemas(&schema, &mut |node| {
            seen.push(node["title"].as_str().unwrap_or_default().to_owned());
            false
        }));
        seen.sort();
        let expected = [
            "additional",
            "all",
            "any",
            "definition",
            "dependency",
            "item",
            "items",
            "more",
            "not",
            "one",
            "pattern",
            "property",
            "root",
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn visit_ends_at_the_first_match() {
        let mut visits = 0;
        let schema = json!({"properties": {"a": {"title": "x"}, "b": {}}});
        assert!(visit_schemas(&schema, &mut |node| {
            visits += 1;
            node["title"] == "x"
        }));
        assert_eq!(visits, 2);
    }
}
