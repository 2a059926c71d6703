//! Paths into a schema: `fieldPath` of rules and `jsonPath` of selectable fields.

use crate::model::{Additional, Schema};

/// Notations that a path may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathSyntax {
    /// `.spec.field` only
    Dots,
    /// `.spec.field` and `.spec['field']`
    DotsAndBrackets,
}

/// Returns the segments of a path and the schema of the field that it leads to.
pub fn resolve_field_path<'s>(
    path: &str,
    schema: &'s Schema,
    syntax: PathSyntax,
) -> Result<(Vec<String>, Option<&'s Schema>), String> {
    let mut tokens = Tokens { rest: path };
    let mut segments = Vec::new();
    let mut at = Some(schema);
    while let Some(token) = tokens.next_token()? {
        let name = match token {
            "." => tokens.require_token()?.to_owned(),
            "[" if syntax == PathSyntax::Dots => {
                return Err("array notation is not allowed".to_owned());
            }
            "[" => {
                let name = unquote(tokens.require_token()?)?;
                match tokens.require_token()? {
                    "]" => name,
                    other => return Err(format!("expected ] but got {other}")),
                }
            }
            other => return Err(format!("expected [ or . but got: {other}")),
        };
        at = descend(at, &name)?;
        segments.push(name);
    }
    Ok((segments, at))
}

// A map of any values has entries without a schema.
fn descend<'s>(schema: Option<&'s Schema>, name: &str) -> Result<Option<&'s Schema>, String> {
    let invalid = || "does not refer to a valid field".to_owned();
    let schema = schema.ok_or_else(invalid)?;
    if !schema.properties.is_empty() {
        return schema
            .property(name)
            .map(|inner| Some(&**inner))
            .ok_or_else(invalid);
    }
    match &schema.additional {
        Some(Additional::Schema(inner)) => Ok(Some(inner)),
        Some(Additional::Allowed(_)) => Ok(None),
        None => Err(invalid()),
    }
}

struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    /// Returns the next delimiter (`.`, `[`, `]`), quoted text or text up to a delimiter.
    fn next_token(&mut self) -> Result<Option<&'a str>, String> {
        let end = match self.rest.chars().next() {
            None => return Ok(None),
            Some('.' | '[' | ']') => 1,
            Some('\'') => find_closing_quote(self.rest).unwrap_or(self.rest.len()),
            Some(_) => self.rest.find(['.', '[', ']']).unwrap_or(self.rest.len()),
        };
        let (token, rest) = self.rest.split_at(end);
        self.rest = rest;
        Ok(Some(token))
    }

    fn require_token(&mut self) -> Result<&'a str, String> {
        self.next_token()?
            .ok_or_else(|| "unexpected end of JSON path".to_owned())
    }
}

/// Returns the length of a quoted text, quotes included.
fn find_closing_quote(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let closing = |i: &usize| bytes.get(*i) == Some(&b'\'') && bytes.get(i - 1) != Some(&b'\\');
    (1..bytes.len()).find(closing).map(|i| i + 1)
}

fn unquote(token: &str) -> Result<String, String> {
    let inside = token
        .strip_prefix('\'')
        .and_then(|rest| rest.strip_suffix('\''));
    let Some(inside) = inside else {
        return Err(format!("expected single quoted string but got {token}"));
    };
    let mut out = String::with_capacity(inside.len());
    let mut chars = inside.chars();
    while let Some(c) = chars.next() {
        match c {
            '\'' => return Err("invalid string literal: unexpected single quote".to_owned()),
            '\\' => match chars.next() {
                Some(c @ ('\\' | '\'')) => out.push(c),
                Some('n') => out.push('\n'),
                Some('r') => out.push('\r'),
                Some('t') => out.push('\t'),
                _ => return Err("invalid string literal: unknown escape sequence".to_owned()),
            },
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::model::ValueType;
    use crate::parse::parse_unchecked;
    use serde_json::json;

    #[test]
    fn paths_lead_to_fields() {
        let schema = parse_unchecked(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"color": {"type": "string"}, "a.b": {"type": "integer"}}},
            "labels": {"type": "object", "additionalProperties": {"type": "boolean"}},
            "free": {"type": "object", "additionalProperties": true}}}))
        .unwrap();
        let all = PathSyntax::DotsAndBrackets;
        let cases = [
            (".spec.color", Ok(Some(ValueType::String))),
            (".spec['a.b']", Ok(Some(ValueType::Integer))),
            ("['spec']['color']", Ok(Some(ValueType::String))),
            (".labels.any", Ok(Some(ValueType::Boolean))),
            (".labels['it\\'s']", Ok(Some(ValueType::Boolean))),
            (".free.x", Ok(None)),
            (".free.x.y", Err("does not refer to a valid field")),
            (".spec.size", Err("does not refer to a valid field")),
            (".spec.color.x", Err("does not refer to a valid field")),
            ("spec", Err("expected [ or . but got: spec")),
            (".", Err("unexpected end of JSON path")),
            (
                ".spec[color]",
                Err("expected single quoted string but got color"),
            ),
            (".spec['color'", Err("unexpected end of JSON path")),
            (".spec['color'.x", Err("expected ] but got .")),
            ("['", Err("expected single quoted string but got '")),
        ];
        for (path, expected) in cases {
            let found = resolve_field_path(path, &schema, all)
                .map(|(_, schema)| schema.and_then(|s| s.value_type));
            assert_eq!(found, expected.map_err(str::to_owned), "{path}");
        }
        let (segments, _) = resolve_field_path(".spec['a.b']", &schema, all).unwrap();
        assert_eq!(segments, ["spec", "a.b"]);
    }

    #[test]
    fn brackets_are_not_for_selectable_fields() {
        let schema = parse_unchecked(&json!({"properties": {"a": {"type": "string"}}})).unwrap();
        assert!(resolve_field_path(".a", &schema, PathSyntax::Dots).is_ok());
        let error = resolve_field_path("['a']", &schema, PathSyntax::Dots).unwrap_err();
        assert_eq!(error, "array notation is not allowed");
    }
}
