//! JSON values that a schema types, and object types.
#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;

use api_cel::escaping::{escape, unescape};
use api_cel::schema::{JsonForm, JsonSchema};
use api_cel::{Budget, Environment, EvalError, Type, TypeProvider, Value};
use serde_json::json;

#[derive(Debug, Clone)]
struct Node {
    form: JsonForm,
    fields: Vec<(&'static str, Node)>,
    inner: Option<Box<Node>>,
    keys: Vec<String>,
}

fn leaf(form: JsonForm) -> Node {
    Node {
        form,
        fields: Vec::new(),
        inner: None,
        keys: Vec::new(),
    }
}

fn list(form: JsonForm, inner: Node) -> Node {
    Node {
        inner: Some(Box::new(inner)),
        keys: vec!["name".into()],
        ..leaf(form)
    }
}

impl JsonSchema for Node {
    fn form(&self) -> JsonForm {
        self.form
    }

    fn property(&self, name: &str) -> Option<&dyn JsonSchema> {
        let (_, node) = self.fields.iter().find(|(found, _)| *found == name)?;
        Some(node)
    }

    fn items(&self) -> Option<&dyn JsonSchema> {
        self.inner.as_deref().map(|node| node as &dyn JsonSchema)
    }

    fn values(&self) -> Option<&dyn JsonSchema> {
        self.items()
    }

    fn list_keys(&self) -> &[String] {
        &self.keys
    }
}

impl Node {
    fn cel_type(&self) -> Type {
        let inner = || {
            self.inner
                .as_ref()
                .map_or(Type::Dyn, |node| node.cel_type())
        };
        match self.form {
            JsonForm::Dynamic => Type::Dyn,
            JsonForm::Int => Type::Int,
            JsonForm::Double => Type::Double,
            JsonForm::String => Type::String,
            JsonForm::Bytes => Type::Bytes,
            JsonForm::Date | JsonForm::DateTime => Type::Timestamp,
            JsonForm::Duration => Type::Duration,
            JsonForm::List | JsonForm::Set | JsonForm::MapList => Type::list(inner()),
            JsonForm::Object => Type::object("element"),
            JsonForm::Map => Type::map(Type::String, inner()),
        }
    }
}

/// The fields of one object type, and those of list elements.
struct Fields(Node);

impl TypeProvider for Fields {
    fn find_field(&self, type_name: &str, field: &str) -> Option<Type> {
        let name = unescape(field)?;
        match type_name {
            "root" => self
                .0
                .fields
                .iter()
                .find(|(n, _)| *n == name)
                .map(|(_, n)| n.cel_type()),
            "element" if name == "name" => Some(Type::String),
            _ => None,
        }
    }

    fn has_type(&self, type_name: &str) -> bool {
        type_name == "root"
    }
}

fn schema() -> Node {
    let element = Node {
        fields: vec![
            ("name", leaf(JsonForm::String)),
            ("value", leaf(JsonForm::Int)),
        ],
        ..leaf(JsonForm::Object)
    };
    let fields = vec![
        ("count", leaf(JsonForm::Int)),
        ("ratio", leaf(JsonForm::Double)),
        ("data", leaf(JsonForm::Bytes)),
        ("day", leaf(JsonForm::Date)),
        ("time", leaf(JsonForm::DateTime)),
        ("wait", leaf(JsonForm::Duration)),
        ("foo-bar", leaf(JsonForm::String)),
        ("namespace", leaf(JsonForm::String)),
        ("port", leaf(JsonForm::Dynamic)),
        ("set", list(JsonForm::Set, leaf(JsonForm::Int))),
        ("other", list(JsonForm::Set, leaf(JsonForm::Int))),
        ("maps", list(JsonForm::MapList, element.clone())),
        ("others", list(JsonForm::MapList, element)),
        ("labels", list(JsonForm::Map, leaf(JsonForm::String))),
    ];
    Node {
        fields,
        ..leaf(JsonForm::Object)
    }
}

fn environment() -> Environment {
    Environment::new(36, [])
        .with_provider(Arc::new(Fields(schema())))
        .with_variable("self", Type::object("root"))
}

fn evaluate(source: &str) -> Result<bool, EvalError> {
    let schema = schema();
    let object = json!({
        "count": 5, "ratio": 2, "data": "aGk=", "day": "2026-01-31",
        "time": "2026-01-31T10:00:00Z", "wait": "1h30m", "foo-bar": "x", "namespace": "n",
        "port": "http", "set": [1, 2, 3], "other": [3, 1, 2],
        "maps": [{"name": "a", "value": 1}, {"name": "b", "value": 2}],
        "others": [{"name": "b", "value": 2}, {"name": "a", "value": 1}],
        "labels": {"a": "1"}, "hidden": 1,
    });
    let program = environment()
        .compile(source)
        .map_err(|e| EvalError::message(e.to_string()))?;
    let variables = [("self", Value::from_json(&object, Some(&schema)))];
    match program.evaluate(&variables, &mut Budget::new(1_000))? {
        Value::Bool(value) => Ok(value),
        other => Err(EvalError::message(format!("{other:?}"))),
    }
}

#[test]
fn fields_have_the_types_of_their_formats() {
    let cases = [
        "self.count + 1 == 6",
        "self.ratio / 4.0 == 0.5",
        "self.data == b'hi'",
        "self.day.getDate() == 31",
        "self.time - self.day == duration('10h')",
        "self.wait.getMinutes() == 90",
        "self.foo__dash__bar == 'x' && has(self.foo__dash__bar)",
        "self.__namespace__ == 'n'",
        "type(self.port) == string",
        "self.labels.a == '1' && self.labels.all(k, k == 'a')",
        "self.labels == {'a': '1'}",
        "!has(self.labels.b) && !('b' in self.labels)",
        "type(self.count) == int && type(self.ratio) == double",
    ];
    for source in cases {
        assert_eq!(evaluate(source), Ok(true), "{source}");
    }
}

#[test]
fn lists_of_type_set_and_map_have_no_order() {
    let cases = [
        "self.set == self.other",
        "self.maps == self.others",
        "size(self.set + [3, 4]) == 4",
        "size(self.maps + self.others) == 2",
        "self.set != [1, 2]",
    ];
    for source in cases {
        assert_eq!(evaluate(source), Ok(true), "{source}");
    }
}

#[test]
fn undeclared_fields_do_not_exist() {
    let text = environment()
        .compile("self.hidden == 1")
        .unwrap_err()
        .to_string();
    assert_eq!(
        text,
        "ERROR: <input>:1:5: undefined field 'hidden'\n | self.hidden == 1\n | ....^"
    );
    assert_eq!(evaluate("has(dyn(self).hidden)"), Ok(false));
}

#[test]
fn json_numbers_without_a_schema_keep_their_kind() {
    let object = json!({"i": 1, "d": 1.5, "u": u64::MAX, "n": null});
    let environment = Environment::new(36, []).with_variable("o", Type::Dyn);
    for source in [
        "o.i == 1",
        "type(o.d) == double",
        "type(o.u) == double",
        "o.n == null",
    ] {
        let program = environment.compile(source).unwrap();
        let variables = [("o", Value::from_json(&object, None))];
        let result = program.evaluate(&variables, &mut Budget::new(1_000));
        assert!(matches!(result, Ok(Value::Bool(true))), "{source}");
    }
}

#[test]
fn escaped_names_are_those_of_fields() {
    assert_eq!(escape("foo-bar").as_deref(), Some("foo__dash__bar"));
}
