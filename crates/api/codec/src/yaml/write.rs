//! Encodes trees as YAML that has the same meaning in YAML 1.1 and 1.2.
//!
//! The library's writer only supports 1.2: it leaves `yes` and `0644` unquoted, which Go's reader
//! interprets as a boolean and a number.

use serde_json::Value;

/// Encodes a tree: keys in the tree's order, lists at the indentation of their key.
pub fn encode(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => write_block(&mut out, value, 0),
        Value::Array(list) if !list.is_empty() => write_block(&mut out, value, 0),
        _ => write_leaf(&mut out, value, 0),
    }
    out
}

/// Writes a non-empty map or list at the start of a line.
fn write_block(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(map) => {
            for (index, (key, member)) in map.iter().enumerate() {
                // The first line of a map in a list follows the list's dash.
                if index > 0 || !out.ends_with("- ") {
                    write_indent(out, depth);
                }
                write_text(out, key, None);
                out.push(':');
                // A list stands at the indentation of its key, as Go's writer places it in
                // kubectl's output.
                match member {
                    Value::Object(map) if !map.is_empty() => write_nested(out, member, depth + 1),
                    Value::Array(list) if !list.is_empty() => write_nested(out, member, depth),
                    _ => {
                        out.push(' ');
                        write_leaf(out, member, depth + 1);
                    }
                }
            }
        }
        Value::Array(list) => {
            for (index, item) in list.iter().enumerate() {
                if index > 0 || !out.ends_with("- ") {
                    write_indent(out, depth);
                }
                out.push_str("- ");
                match item {
                    Value::Object(map) if !map.is_empty() => write_block(out, item, depth + 1),
                    Value::Array(list) if !list.is_empty() => write_block(out, item, depth + 1),
                    _ => write_leaf(out, item, depth + 1),
                }
            }
        }
        _ => write_leaf(out, value, depth),
    }
}

fn write_nested(out: &mut String, value: &Value, depth: usize) {
    out.push('\n');
    write_block(out, value, depth);
}

fn write_indent(out: &mut String, depth: usize) {
    out.extend(std::iter::repeat_n("  ", depth));
}

/// Writes a value on the same line, or a text as a block.
fn write_leaf(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&number.to_string()),
        Value::String(value) => write_text(out, value, Some(depth)),
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
    }
    out.push('\n');
}

fn write_text(out: &mut String, value: &str, lines_at: Option<usize>) {
    if let Some(depth) = lines_at.filter(|_| fits_lines(value)) {
        return write_lines(out, value, depth.max(1));
    }
    if is_plain(value) {
        out.push_str(value);
    } else {
        write_quoted(out, value);
    }
}

/// Writes a quoted string: JSON's form, with YAML's unprintable characters escaped too.
fn write_quoted(out: &mut String, value: &str) {
    for c in Value::from(value).to_string().chars() {
        // JSON may contain characters that YAML rejects even in quotes.
        if c == '\t' || is_printable(c) {
            out.push(c);
        } else {
            out.push_str(&format!("\\u{:04x}", u32::from(c)));
        }
    }
}

/// Returns whether a text can be written as a block without losing anything.
fn fits_lines(value: &str) -> bool {
    let body = value.strip_suffix('\n').unwrap_or(value);
    // A block cannot show leading blanks or blanks at the ends of lines without further indicators.
    body.contains('\n')
        && !body.starts_with([' ', '\n', '\t'])
        && !body.ends_with('\n')
        && body
            .lines()
            .all(|line| line == line.trim_end() && line.chars().all(is_printable))
        && !body.contains('\r')
}

fn write_lines(out: &mut String, value: &str, depth: usize) {
    out.push_str(if value.ends_with('\n') { "|" } else { "|-" });
    for line in value.strip_suffix('\n').unwrap_or(value).split('\n') {
        out.push('\n');
        if !line.is_empty() {
            write_indent(out, depth);
            out.push_str(line);
        }
    }
}

/// Returns whether a character is printable and no line break in both versions of YAML.
fn is_printable(c: char) -> bool {
    c == '\t'
        || (!c.is_control()
            && !matches!(
                c,
                '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
            ))
}

/// Returns whether a text needs no quotes: names, paths and sentences without YAML syntax that
/// can't be mistaken for another value.
fn is_plain(value: &str) -> bool {
    let mut chars = value.chars();
    let Some(first) = chars.next() else {
        return false;
    };
    // Numbers have many forms in YAML 1.1 (octal, sexagesimal), and only addresses are common
    // enough to be recognised.
    if first.is_ascii_digit() {
        return value.parse::<std::net::Ipv4Addr>().is_ok();
    }
    let starts = first.is_ascii_alphabetic() || matches!(first, '/' | '_' | '.');
    let goes_on = |c: char| c.is_ascii_alphanumeric() || " _./-+@()=,$;<>".contains(c) || c == ':';
    starts
        && chars.all(goes_on)
        && !value.ends_with([' ', ':'])
        && !value.contains(": ")
        && !is_other_value(value)
}

/// Returns whether a reader would interpret the text as null, a boolean or a number.
fn is_other_value(value: &str) -> bool {
    const WORDS: [&str; 11] = [
        "y", "yes", "n", "no", "on", "off", "true", "false", "null", "nan", "inf",
    ];
    let lower = value.to_ascii_lowercase();
    WORDS.contains(&lower.as_str())
        || value.starts_with('.') && value.chars().skip(1).all(|c| !c.is_alphabetic())
        || matches!(lower.as_str(), ".nan" | ".inf")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn yaml_has_the_form_of_kubectl() {
        let tree = json!({"kind": "Pod", "metadata": {"labels": {"a": "yes", "b": "0644", "yes": "on"}, "empty": {}},
            "spec": {"containers": [{"name": "c", "args": ["-v", "a b"], "ports": []}, {"name": "d"}], "x": null, "n": [[1], [2.5]]},
            "data": {"text": "one\n\n  two\n", "cut": "a\nb", "odd": "a \nb"}});
        let want = "\
data:
  cut: |-
    a
    b
  odd: \"a \\nb\"
  text: |
    one

      two
kind: Pod
metadata:
  empty: {}
  labels:
    a: \"yes\"
    b: \"0644\"
    \"yes\": \"on\"
spec:
  containers:
  - args:
    - \"-v\"
    - a b
    name: c
    ports: []
  - name: d
  \"n\":
  - - 1
  - - 2.5
  x: null
";
        let got = encode(&tree);
        assert_eq!(got, want);
        assert_eq!(crate::yaml::parse(got.as_bytes()).unwrap().0, tree);
    }

    #[test]
    fn every_text_round_trips_through_yaml() {
        for text in [
            "",
            " ",
            "a",
            "yes",
            "No",
            "~",
            "null",
            "1",
            "1.5",
            "0x1f",
            "1e3",
            ".5",
            ".inf",
            "-",
            "- a",
            "a: b",
            "a:",
            "#",
            "a #b",
            "a#b",
            "'a'",
            "\"",
            "\\",
            "[a]",
            "{a}",
            "&a",
            "*a",
            "!a",
            "|",
            ">",
            "%",
            "@",
            "`",
            "a\nb",
            "a\n",
            "\na",
            "a\n\nb\n",
            " a\nb",
            "a\tb\nc",
            "10.96.0.1",
            "2024-01-01T00:00:00Z",
            "12:30:45",
            "=",
            "<<",
            "é",
            "\u{1f600}",
            "\u{85}",
            "a\rb\nc",
            "\u{2028}\nb",
            "a\n\n",
            "?",
            "? a",
            "---",
            "...",
            "kubernetes.io/x:y",
            "a=b,c",
            "0644",
            "+1",
            "y",
            "# a\nb",
            "- a\n- b\n",
            "a: b\nc",
            "\tx\ny",
        ] {
            for tree in [
                json!({"a": text}),
                json!([text, {"b": [text]}]),
                json!({"k": {(text): "v"}}),
                json!(text),
            ] {
                let written = encode(&tree);
                assert_eq!(
                    crate::yaml::parse(written.as_bytes()).unwrap().0,
                    tree,
                    "{written:?}"
                );
            }
        }
    }
}
