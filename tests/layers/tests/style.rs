//! Equal things look equal: sections of doc comments have one form, clones of an `Arc` have one
//! spelling.
#![allow(clippy::unwrap_used)]

use layers::{list_sources, workspace_root};
use regex::Regex;
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// Files that need `Arc::clone(x)`, each with the reason; there is none.
const ARC_CLONES: [(&str, &str); 0] = [];

/// Runs a check on each file of the production code and its unit tests: (line, problem).
fn check_sources(check: impl Fn(&str, &str) -> Vec<(usize, String)>) -> Vec<String> {
    let root = workspace_root();
    let mut problems = Vec::new();
    for top in ["crates", "bins"] {
        for file in list_sources(&root.join(top)) {
            let place = file.strip_prefix(&root).unwrap().to_string_lossy();
            let found = check(&place, &std::fs::read_to_string(&file).unwrap());
            problems.extend(
                found
                    .iter()
                    .map(|(line, what)| format!("{place}:{line}: {what}")),
            );
        }
    }
    problems
}

/// Returns the text of a line of an item's doc comment.
fn doc_text(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("///")
}

/// Returns the sections of doc comments that do not have the form of CONTRIBUTING.md.
fn find_section_problems(source: &str) -> Vec<(usize, String)> {
    static SECTION: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?i)^ *(?:#+ *(?:errors?|panics?|safety)\b|[*_]*(?:errors?|panics?)[*_]*:)")
            .unwrap()
    });
    let lines: Vec<&str> = source.lines().collect();
    let text = |at: usize| lines.get(at).copied().and_then(doc_text);
    let mut problems = Vec::new();
    for at in 0..lines.len() {
        let Some(heading) = text(at).filter(|text| SECTION.is_match(text)) else {
            continue;
        };
        let before = at.checked_sub(1).and_then(text);
        let body = text(at + 1).unwrap_or_default().trim();
        let problem = if ![" # Errors", " # Panics", " # Safety"].contains(&heading) {
            "the heading is exactly `# Errors`, `# Panics` or `# Safety`"
        } else if before.is_none_or(|line| !line.is_empty()) {
            "an empty line and a summary come before the heading"
        } else if body.is_empty() || body.starts_with('#') {
            "the text starts on the line after the heading"
        } else {
            continue;
        };
        problems.push((at + 1, problem.to_owned()));
    }
    problems
}

#[test]
fn sections_of_doc_comments_have_one_form() {
    let problems = check_sources(|_, source| find_section_problems(source));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn arcs_are_cloned_as_methods() {
    let problems = check_sources(|place, source| {
        let lines = source.lines().zip(1..);
        let clones = lines.filter(|(line, _)| line.contains("Arc::clone("));
        clones
            .filter(|_| ARC_CLONES.iter().all(|(file, _)| *file != place))
            .map(|(_, at)| (at, "write `x.clone()`".to_owned()))
            .collect()
    });
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn section_of_another_form_is_found() {
    for (source, lines) in [
        (
            "/// Reads.\n///\n/// # Errors\n/// The file is absent.",
            &[][..],
        ),
        (
            "/// Reads.\n///\n/// # Safety\n/// The pointer is valid.",
            &[],
        ),
        ("/// Reads. Errors: none.\n// # Errors", &[]),
        (
            "/// Reads.\n///\n/// # Error\n/// The file is absent.",
            &[3],
        ),
        (
            "/// Reads.\n///\n/// ## Errors\n/// The file is absent.",
            &[3],
        ),
        ("/// Reads.\n/// # Errors\n/// The file is absent.", &[2]),
        ("/// # Errors\n/// The file is absent.", &[1]),
        (
            "/// Reads.\n///\n/// # Errors\n///\n/// The file is absent.",
            &[3],
        ),
        ("/// Reads.\n///\n/// # Errors\nfn read() {}", &[3]),
        ("/// Reads.\n///\n/// Errors: the file is absent.", &[3]),
        ("/// Reads.\n///\n/// **Panics**: never.", &[3]),
    ] {
        let found = find_section_problems(source);
        let found: BTreeSet<usize> = found.into_iter().map(|(line, _)| line).collect();
        assert_eq!(found, lines.iter().copied().collect(), "{source}");
    }
}

/// Returns the lines of comments that are longer than rustfmt lets code be. A table or an address
/// can't be wrapped.
fn find_long_comments(source: &str) -> Vec<(usize, String)> {
    let is_long = |line: &str| {
        let text = line.trim_start();
        let can_wrap =
            text.trim_start_matches(['/', '!', ' ']).contains(' ') && !text.contains('|');
        text.starts_with("//") && can_wrap && line.chars().count() > 100
    };
    let lines = source.lines().enumerate();
    let long = lines.filter(|(_, line)| is_long(line));
    long.map(|(at, _)| (at + 1, "a comment has 100 columns at most".to_owned()))
        .collect()
}

#[test]
fn comments_have_the_width_of_code() {
    let long = format!("    // {}", "word ".repeat(20));
    let address = format!("// https://example.com/{}", "x".repeat(100));
    for (line, expected) in [(long.as_str(), 1), ("// word", 0), (&address, 0)] {
        assert_eq!(find_long_comments(line).len(), expected, "{line}");
    }
    let problems = check_sources(|place, source| match place.contains("/generated/") {
        true => Vec::new(),
        false => find_long_comments(source),
    });
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
