//! Objects of built-in kinds, and patches of them.

use crate::choices::Choices;
use crate::values::build_value;
use api_schema::{Field, Message, Shape, Type};
use serde_json::{Map, Value, json};

/// Kinds whose lists are merged in all the ways that there are.
const KINDS: [(&str, &str, &str); 6] = [
    ("", "v1", "Pod"),
    ("", "v1", "Service"),
    ("", "v1", "ConfigMap"),
    ("apps", "v1", "Deployment"),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
    ("networking.k8s.io", "v1", "Ingress"),
];

/// Returns the message of a kind.
pub(crate) fn pick_message(choices: &mut Choices<'_>) -> Option<&'static Message> {
    let at = choices.below(KINDS.len());
    let (group, version, kind) = KINDS.get(at)?;
    api_kinds::find_kind(group, version, kind)?.schema.message()
}

/// Builds an object of a message. With `directives`, it is a strategic merge patch.
pub(crate) fn build_object(
    choices: &mut Choices<'_>,
    message: &'static Message,
    depth: usize,
    directives: bool,
) -> Value {
    if depth == 0 || choices.hits(25) {
        return build_value(choices, depth.min(3));
    }
    if message.shape != Shape::Struct {
        return match choices.below(3) {
            0 => json!("10"),
            1 => json!(8080),
            _ => build_value(choices, 3),
        };
    }
    let mut members = Map::new();
    let count = choices.below(6);
    for _ in 0..count {
        let at = choices.below(message.fields.len());
        let Some(field) = message
            .fields
            .get(at)
            .filter(|field| !field.json.is_empty())
        else {
            continue;
        };
        let value = build_field(choices, &field.ty, depth - 1, directives);
        members.insert(field.json.to_owned(), value);
        if directives && choices.hits(3) {
            add_directive(choices, field, &mut members);
        }
    }
    Value::Object(members)
}

fn build_field(
    choices: &mut Choices<'_>,
    field: &'static Type,
    depth: usize,
    directives: bool,
) -> Value {
    if choices.hits(20) {
        return Value::Null;
    }
    match field {
        Type::Message(_) => match field.message() {
            Some(message) => build_object(choices, message, depth, directives),
            None => Value::Null,
        },
        Type::List(inner) => {
            let length = choices.below(4);
            (0..length)
                .map(|_| build_field(choices, inner, depth, directives))
                .collect()
        }
        Type::Map(inner) => {
            let key = choices.pick(&["a", "b", "$patch", "c.d/e"]).to_owned();
            json!({key: build_field(choices, inner, depth, directives)})
        }
        Type::String => json!(choices.pick(&["", "a", "b", "TCP", "UDP", "x"])),
        Type::Bool => json!(choices.hits(2)),
        _ => json!(choices.below(3)),
    }
}

fn add_directive(choices: &mut Choices<'_>, field: &Field, members: &mut Map<String, Value>) {
    let name = field.json;
    let (key, value) = match choices.below(5) {
        0 => (
            "$patch".to_owned(),
            json!(choices.pick(&["delete", "replace", "merge", "odd"])),
        ),
        1 => ("$retainKeys".to_owned(), json!([name, "a"])),
        2 => (
            format!("$deleteFromPrimitiveList/{name}"),
            json!(["a", choices.below(3)]),
        ),
        3 => (
            format!("$setElementOrder/{name}"),
            json!(["b", "a", {"name": "a"}, {"name": "b"}]),
        ),
        _ => (format!("$setElementOrder/{name}"), build_value(choices, 2)),
    };
    members.insert(key, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choices::random_bytes;

    #[test]
    fn all_kinds_have_messages() {
        for at in 0..KINDS.len() {
            let bytes = [u8::try_from(at).unwrap_or(0)];
            assert!(pick_message(&mut Choices::new(&bytes)).is_some(), "{at}");
        }
    }

    #[test]
    fn only_patches_have_directives() {
        let count = |directives| {
            let texts = (0..300).filter_map(|seed| {
                let bytes = random_bytes(seed);
                let mut choices = Choices::new(&bytes);
                let message = pick_message(&mut choices)?;
                Some(build_object(&mut choices, message, 9, directives).to_string())
            });
            texts
                .filter(|text| text.contains("$setElementOrder"))
                .count()
        };
        assert_eq!(count(false), 0);
        assert!(count(true) > 10);
    }
}
