#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;

fn matches(pattern: &str, text: &str) -> bool {
    Pattern::new(pattern)
        .is_match(text)
        .unwrap_or_else(|error| panic!("{pattern}: {error}"))
}

#[test]
fn patterns_match_as_in_go() {
    let cases = [
        (r"^[a-z]([-a-z0-9]*[a-z0-9])?$", "my-name", true),
        (r"^[a-z]([-a-z0-9]*[a-z0-9])?$", "My", false),
        (r"^\d+$", "123", true),
        // Digits, words and spaces are ASCII.
        (r"^\d+$", "١٢", false),
        (r"^\w+$", "é", false),
        (r"^[\w.]+$", "a.b", true),
        (r"^\s$", "\u{a0}", false),
        (r"^[^\s]$", "\u{a0}", true),
        (r"^[\D]$", "x", true),
        (r"\bfoo\b", "a foo b", true),
        (r"\bfoo\b", "éfoo", true),
        (r"a\Bb", "ab", true),
        // Anchors, groups and flags.
        (r"\Aa\z", "a\n", false),
        (r"(?i)ABC", "abc", true),
        (r"(?i:a)B", "AB", true),
        (r"(?s).", "\n", true),
        (r".", "\n", false),
        (r"(?m)^b$", "a\nb", true),
        (r"(?P<x>a)(?<y>b)", "ab", true),
        (r"(|a)b", "b", true),
        (r"a||b", "", true),
        // Characters that mean something in the regex crate only.
        (r"^[a&&b]+$", "a&b", true),
        (r"^[a~~b-]+$", "~a-", true),
        (r"^[[]$", "[", true),
        (r"^[[a]]$", "a]", true),
        (r"^[]a]+$", "]a", true),
        (r"^[^]a]$", "]", false),
        (r"^\<a\>$", "<a>", true),
        (r"^a{,2}$", "a{,2}", true),
        (r"^a{$", "a{", true),
        (r"^a{01}$", "a{01}", true),
        (r"^#a $", "#a ", true),
        (r"^\Qa.b\E+$", "a.bb", true),
        (r"^\Qa.b", "axb", false),
        (r"^\/\_\-$", "/_-", true),
        // Codes.
        (r"^\x41\x{1F600}\101\060$", "A\u{1F600}A0", true),
        (r"^[\x41-\x43]$", "B", true),
        (r"^\t\n\v\f\r\a$", "\t\n\x0b\x0c\r\x07", true),
        // Classes.
        (r"^[[:alpha:]_]+$", "a_b", true),
        (r"^[[:^alpha:]]$", "1", true),
        (r"^\pL\p{Greek}\PN\p{^Greek}$", "aαxx", true),
        (r"^[\p{Lu}\d]+$", "A1", true),
        (r"^.{3}$", "äöü", true),
        (r"a{2,3}?$", "aaa", true),
        (r"^(a{2})*$", "aaaa", true),
    ];
    for (pattern, text, expected) in cases {
        assert_eq!(matches(pattern, text), expected, "{pattern} on {text:?}");
    }
}

#[test]
fn patterns_that_go_rejects_are_rejected() {
    let cases = [
        ("(", "missing closing ): `(`"),
        (")", "unexpected ): `)`"),
        ("[a", "missing closing ]: `[a`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("(*a)", "missing argument to repetition operator: `*`"),
        ("a|*", "missing argument to repetition operator: `*`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a*+", "invalid nested repetition operator: `*+`"),
        ("a{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("a{3,2}", "invalid repeat count: `{3,2}`"),
        ("a\\", "trailing backslash at end of expression: ``"),
        (r"\1", "invalid escape sequence: `\\1`"),
        (r"\Z", "invalid escape sequence: `\\Z`"),
        (r"\h", "invalid escape sequence: `\\h`"),
        (r"\x{110000}", "invalid escape sequence: `\\x`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?x)a", "invalid or unsupported Perl syntax: `(?x`"),
        ("(?<!a)", "invalid named capture: `(?<!a)`"),
        ("[a--]", "invalid character class range: `a--`"),
        ("[b-a]", "invalid character class range: `b-a`"),
        (r"[a-\d]", "invalid escape sequence: `\\d`"),
        ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
        (
            r"\p{Script=Greek}",
            "invalid character class range: `\\p{Script=Greek}`",
        ),
    ];
    for (pattern, message) in cases {
        let error = Pattern::new(pattern).check().expect_err(pattern);
        assert_eq!(
            error.to_string(),
            format!("error parsing regexp: {message}"),
            "{pattern}"
        );
    }
}

#[test]
fn size_and_nesting_are_limited() {
    let nested = format!("{}a{}", "(".repeat(10_000), ")".repeat(10_000));
    let large = r"\pL{1000}".repeat(4);
    for pattern in [nested, large, "(".repeat(300_000)] {
        assert_eq!(Pattern::new(&pattern).check(), Err(PatternError::TooLarge));
    }
    assert!(
        Pattern::new(&format!("{}a{}", "(".repeat(90), ")".repeat(90)))
            .check()
            .is_ok()
    );
}

#[test]
fn matching_takes_linear_time() {
    // Exponential for a backtracking engine.
    assert!(!matches("^(a+)+$", &format!("{}b", "a".repeat(50_000))));
}

#[test]
fn unusable_pattern_reports_its_error_on_use() {
    let pattern = Pattern::new("(?=a)");
    assert!(matches!(
        pattern.is_match("a"),
        Err(PatternError::Syntax(_))
    ));
    assert_eq!(pattern.source(), "(?=a)");
}
