//! Printer columns of custom resources.

use crate::json_path::{JsonPath, PathError};
use crate::number::{GoNumber, format_float};
use api_meta::tree::{int, text};
use serde_json::Value;

/// A printer column.
#[derive(Clone, Debug)]
pub struct Column {
    /// Header.
    pub name: Box<str>,
    /// `integer`, `number`, `string`, `boolean` or `date`.
    pub value_type: Box<str>,
    /// Format, for clients.
    pub format: Box<str>,
    /// Description; generated if the definition has none.
    pub description: Box<str>,
    /// Columns with a priority above 0 are shown in wide output only.
    pub priority: i64,
    /// Path of the value.
    pub path: JsonPath,
}

impl Column {
    /// Parses an element of `additionalPrinterColumns`.
    pub fn parse(column: &Value) -> Result<Self, PathError> {
        let path = text(column, "jsonPath");
        let description = match text(column, "description") {
            "" => format!("Custom resource definition column (in JSONPath format): {path}"),
            description => description.to_owned(),
        };
        Ok(Self {
            name: text(column, "name").into(),
            value_type: text(column, "type").into(),
            format: text(column, "format").into(),
            description: description.into(),
            priority: int(column, "priority").unwrap_or(0),
            path: JsonPath::parse(path)?,
        })
    }
}

/// Returns the cell of an object; null if it has no value of the column's type. `show_age` returns
/// the age since a time of RFC 3339, or nothing if the text is no time.
pub fn read_cell(
    column: &Column,
    object: &Value,
    show_age: &dyn Fn(&str) -> Option<String>,
) -> Value {
    let Some(value) = column.path.find_first(object) else {
        return Value::Null;
    };
    match (&*column.value_type, value) {
        ("string", value) => print_text(value).into(),
        ("integer", Value::Number(number)) => match GoNumber::from_json(number) {
            GoNumber::Int(n) => n.into(),
            GoNumber::Float(f) => (f as i64).into(),
        },
        ("number", Value::Number(number)) => GoNumber::from_json(number).to_float().into(),
        ("boolean", Value::Bool(flag)) => (*flag).into(),
        ("date", Value::String(time)) => show_age(time)
            .unwrap_or_else(|| "<invalid>".to_owned())
            .into(),
        _ => Value::Null,
    }
}

/// Returns a value as `kubectl` prints it.
pub fn print_text(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match GoNumber::from_json(number) {
            GoNumber::Int(n) => n.to_string(),
            GoNumber::Float(f) => format_float(f),
        },
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use serde_json::json;

    fn cell(value_type: &str, path: &str) -> Value {
        let object = json!({"i": 3, "f": 2.5, "b": true, "s": "text", "n": null, "l": [1, "a"], "t": "2024-01-01T00:00:00Z"});
        let column =
            Column::parse(&json!({"name": "C", "type": value_type, "jsonPath": path})).unwrap();
        read_cell(&column, &object, &|time| {
            time.ends_with('Z').then(|| "5m".to_owned())
        })
    }

    #[test]
    fn cells_have_the_type_of_their_column() {
        let cases = [
            ("integer", ".i", json!(3)),
            ("integer", ".f", json!(2)),
            ("integer", ".s", json!(null)),
            ("number", ".i", json!(3.0)),
            ("number", ".f", json!(2.5)),
            ("boolean", ".b", json!(true)),
            ("boolean", ".i", json!(null)),
            ("string", ".s", json!("text")),
            ("string", ".i", json!("3")),
            ("string", ".b", json!("true")),
            ("string", ".l", json!("[1,\"a\"]")),
            ("string", ".n", json!("<no value>")),
            ("string", ".missing", json!(null)),
            ("date", ".t", json!("5m")),
            ("date", ".s", json!("<invalid>")),
            ("date", ".i", json!(null)),
        ];
        for (value_type, path, expected) in cases {
            assert_eq!(cell(value_type, path), expected, "{value_type} {path}");
        }
    }

    #[test]
    fn columns_have_a_description() {
        let column =
            Column::parse(&json!({"name": "C", "type": "string", "jsonPath": ".a"})).unwrap();
        assert_eq!(
            &*column.description,
            "Custom resource definition column (in JSONPath format): .a"
        );
        assert_eq!(column.priority, 0);
        assert!(Column::parse(&json!({"jsonPath": ".a["})).is_err());
    }
}
