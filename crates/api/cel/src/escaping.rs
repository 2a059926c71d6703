//! Escaping of field names that are no identifiers of the language.

use std::borrow::Cow;

/// Words that no identifier and, unless escaped, no field of an object may be.
pub const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

const ESCAPES: [(&str, &str); 4] = [
    ("underscores", "__"),
    ("dot", "."),
    ("dash", "-"),
    ("slash", "/"),
];

/// Returns the identifier by which expressions reach a field; `None` if the name cannot be escaped.
pub fn escape(name: &str) -> Option<Cow<'_, str>> {
    // An identifier can't start with a digit, and Kubernetes has no escape for one.
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__").into());
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/');
    if !name.chars().all(allowed) {
        return None;
    }
    // Most names need no escape and thus no copy.
    if !name.contains("__") && !name.contains(['.', '-', '/']) {
        return Some(name.into());
    }
    let mut escaped = String::with_capacity(name.len() + 16);
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let found = ESCAPES.iter().find(|(_, plain)| rest.starts_with(plain));
        match found {
            Some((word, plain)) => {
                escaped.push_str("__");
                escaped.push_str(word);
                escaped.push_str("__");
                rest = rest.get(plain.len()..).unwrap_or_default();
            }
            None => {
                escaped.push(first);
                rest = rest.get(first.len_utf8()..).unwrap_or_default();
            }
        }
    }
    Some(escaped.into())
}

/// Returns the field name of an escaped identifier; `None` if it holds an unknown escape.
pub fn unescape(identifier: &str) -> Option<Cow<'_, str>> {
    if !identifier.contains("__") {
        return Some(identifier.into());
    }
    let mut name = String::with_capacity(identifier.len());
    let mut rest = identifier;
    while let Some((before, after)) = rest.split_once("__") {
        name.push_str(before);
        // An escape is two underscores, a word without any, and two more.
        let word = after.split('_').next().unwrap_or_default();
        let closed = after
            .get(word.len()..)
            .is_some_and(|tail| tail.starts_with("__"));
        if word.is_empty() || !closed {
            // The second underscore may open an escape, so only the first is consumed.
            name.push('_');
            rest = rest.get(before.len() + 1..).unwrap_or_default();
            continue;
        }
        let plain = ESCAPES
            .iter()
            .find(|(escape, _)| *escape == word)
            .map(|(_, plain)| *plain);
        // A reserved word is escaped as a whole name only, never as a part of one.
        let whole = word.len() + 4 == identifier.len();
        let reserved = || {
            RESERVED
                .iter()
                .find(|reserved| **reserved == word && whole)
                .copied()
        };
        name.push_str(plain.or_else(reserved)?);
        rest = after.get(word.len() + 2..).unwrap_or_default();
    }
    name.push_str(rest);
    Some(name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_escape_to_identifiers_and_back() {
        let cases = [
            ("", None),
            ("4ab", None),
            ("a b", None),
            ("é", None),
            ("a", Some("a")),
            ("a_b", Some("a_b")),
            ("namespace", Some("__namespace__")),
            ("in", Some("__in__")),
            ("$", None),
            ("a__b", Some("a__underscores__b")),
            ("x.y-z/w", Some("x__dot__y__dash__z__slash__w")),
            ("a___b", Some("a__underscores___b")),
            (".", Some("__dot__")),
            ("int", Some("int")),
        ];
        for (name, expected) in cases {
            assert_eq!(escape(name).as_deref(), expected, "{name}");
            if let Some(escaped) = expected {
                assert_eq!(unescape(escaped).as_deref(), Some(name), "{escaped}");
            }
        }
    }

    #[test]
    fn unknown_escapes_are_rejected() {
        for identifier in ["__illegal__", "a__foo__b", "a__namespace__b"] {
            assert_eq!(unescape(identifier), None, "{identifier}");
        }
    }

    #[test]
    fn underscores_that_are_no_escape_stay() {
        for identifier in ["__", "a__", "__a", "a__b", "_____"] {
            assert_eq!(unescape(identifier).as_deref(), Some(identifier));
        }
    }
}
