use super::*;
use crate::macros;

fn parse_all(source: &str) -> Result<Parsed, CompileError> {
    let mut settings = Settings {
        optional_syntax: true,
        ..Settings::default()
    };
    settings.macros = macros::STANDARD.to_vec();
    settings.macros.extend(macros::OPTIONAL);
    parse(source, &settings)
}

fn error(source: &str) -> String {
    parse_all(source)
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default()
}

#[test]
fn syntax_errors_name_the_token_and_its_position() {
    let start = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, \
                 NUM_UINT, STRING, BYTES, IDENTIFIER}";
    let cases = [
        (
            "1 +",
            format!(
                "ERROR: <input>:1:4: Syntax error: mismatched input '<EOF>' expecting {start}\n \
                 | 1 +\n | ...^"
            ),
        ),
        (
            "a b",
            "ERROR: <input>:1:3: Syntax error: extraneous input 'b' expecting <EOF>\n | a b\n | ..^"
                .to_owned(),
        ),
        (
            "a && for",
            "ERROR: <input>:1:6: reserved identifier: for\n | a && for\n | .....^".to_owned(),
        ),
        (
            "9223372036854775808",
            "ERROR: <input>:1:1: invalid int literal\n | 9223372036854775808\n | ^".to_owned(),
        ),
        (
            "[1].map(1, x)",
            "ERROR: <input>:1:9: argument is not an identifier\n | [1].map(1, x)\n | ........^"
                .to_owned(),
        ),
        (
            "has(a)",
            "ERROR: <input>:1:5: invalid argument to has() macro\n | has(a)\n | ....^".to_owned(),
        ),
        (
            "a.`b`",
            "ERROR: <input>:1:3: unsupported syntax: '`'\n | a.`b`\n | ..^".to_owned(),
        ),
    ];
    for (source, expected) in cases {
        assert_eq!(error(source), expected, "{source}");
    }
}

#[test]
fn unknown_characters_are_reported() {
    assert!(error("a # b").contains("Syntax error: token recognition error at: '#'"));
    assert!(error("'abc").contains("token recognition error"));
    assert!(error(r"'\q'").contains(r"token recognition error at: ''\q'"));
    assert!(error(r"'\ud800'").contains("invalid unicode code point"));
}

#[test]
fn depth_and_length_are_bounded() {
    let nested = |open: &str, close: &str, count: usize| {
        format!("{}1{}", open.repeat(count), close.repeat(count))
    };
    let cases = [
        nested("(", ")", 251),
        nested("[", "]", 251),
        nested("{1:", "}", 251),
        nested("f(", ")", 251),
        nested("!(", ")", 251),
        format!("a{}", ".b".repeat(251)),
        format!("a{}", "[0]".repeat(251)),
        format!("1{}", " + 1".repeat(251)),
        format!("1{}", " ? 1 : 1".repeat(251)),
        nested("[1].map(x, ", ")", 70),
    ];
    for source in cases {
        let text = error(&source);
        assert!(
            text.contains("expression recursion limit exceeded: 250"),
            "{source:.40}: {text}"
        );
    }
    let long = "a".repeat(MAX_LENGTH + 1);
    assert!(error(&long).contains("size exceeds limit: size: 100001, limit 100000"));
}

#[test]
fn long_chains_of_logical_operators_are_balanced() {
    let source = vec!["a"; 10_000].join(" || ");
    assert!(parse_all(&source).is_ok());
    assert!(parse_all(&source.replace("||", "&&")).is_ok());
}

#[test]
fn reserved_words_are_field_names() {
    assert!(parse_all("a.namespace").is_ok());
    assert!(!error("a.in").is_empty());
}

#[test]
fn repeated_optional_maps_do_not_grow_exponentially() {
    let source = format!("x{}", ".optMap(y, y)".repeat(60));
    let parsed = parse_all(&source);
    assert!(parsed.is_ok_and(|parsed| parsed.positions.len() < 50_000));
}
