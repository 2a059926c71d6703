//! Columns of custom resources.

use crate::printer::NAME;
use crate::view::View;
use api_kinds::CustomSchema;
use api_meta::time;
use api_structural::read_cell;
use serde_json::{Value, json};

/// Returns the column definitions: the name, and what the version declares.
pub(crate) fn define_columns(schema: &CustomSchema) -> Vec<Value> {
    let declared = schema.columns.iter().map(|column| {
        json!({"name": column.name, "type": column.value_type, "format": column.format,
            "description": column.description, "priority": column.priority})
    });
    let name = json!({"name": NAME.name, "type": NAME.ty, "format": NAME.format,
        "description": NAME.description, "priority": NAME.priority});
    std::iter::once(name).chain(declared).collect()
}

/// Returns the cells of an object.
pub(crate) fn read_cells(schema: &CustomSchema, view: &View<'_>) -> Vec<Value> {
    let age = |moment: &str| time::parse(moment).map(|_| view.ago(moment));
    let declared = schema
        .columns
        .iter()
        .map(|column| read_cell(column, view.object, &age));
    std::iter::once(view.name()).chain(declared).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn print(columns: Value, object: &Value) -> (Vec<Value>, Vec<Value>) {
        let version = json!({"name": "v1", "additionalPrinterColumns": columns});
        let schema = CustomSchema::parse(&json!({}), &version).unwrap();
        let view = View {
            resource: api_kinds::find("", "v1", "configmaps").unwrap(),
            object,
            now: "2024-01-01T00:05:00Z".parse().unwrap(),
        };
        (define_columns(&schema), read_cells(&schema, &view))
    }

    #[test]
    fn columns_have_the_type_and_priority_of_their_definition() {
        let columns = json!([
            {"name": "N", "type": "integer", "jsonPath": ".spec.n", "priority": 1, "description": "d"},
            {"name": "S", "type": "string", "jsonPath": ".spec.s"},
            {"name": "D", "type": "date", "jsonPath": ".spec.at"}]);
        let object = json!({"metadata": {"name": "a"},
            "spec": {"n": 3, "s": "x", "at": "2024-01-01T00:00:00Z"}});
        let (definitions, cells) = print(columns, &object);
        assert_eq!(
            definitions[1],
            json!({"name": "N", "type": "integer", "format": "", "description": "d", "priority": 1})
        );
        assert_eq!(
            definitions[2]["description"],
            "Custom resource definition column (in JSONPath format): .spec.s"
        );
        assert_eq!(cells, [json!("a"), json!(3), json!("x"), json!("5m")]);
    }

    #[test]
    fn absent_and_wrong_values_have_no_cell() {
        let columns = json!([{"name": "N", "type": "integer", "jsonPath": ".spec.n"},
            {"name": "D", "type": "date", "jsonPath": ".spec.at"}, {"name": "X", "type": "string", "jsonPath": ".x"}]);
        let object = json!({"metadata": {"name": "a"}, "spec": {"n": "3", "at": "soon"}});
        let (_, cells) = print(columns, &object);
        assert_eq!(
            cells,
            [json!("a"), Value::Null, json!("<invalid>"), Value::Null]
        );
    }

    #[test]
    fn objects_without_columns_show_their_age() {
        let object =
            json!({"metadata": {"name": "a", "creationTimestamp": "2024-01-01T00:00:00Z"}});
        let (definitions, cells) = print(json!([]), &object);
        assert_eq!(
            (&definitions[1]["name"], &definitions[1]["type"]),
            (&json!("Age"), &json!("date"))
        );
        assert_eq!(cells, [json!("a"), json!("5m")]);
    }
}
