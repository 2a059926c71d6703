//! Async code calls no function of `std::fs` outside of `base_task::blocking` and `spawn_blocking`:
//! it would keep other tasks of the thread from running for as long as the disk takes.
//!
//! clippy can't tell async code from other code, so this test searches the sources. `blocking.toml`
//! has the number of such calls that a crate still has; it may only shrink.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use layers::{list_sources, workspace_root};
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

const LIST: &str = "tests/layers/blocking.toml";

/// Replaces comments, strings and characters by spaces, so that braces in them do not count.
fn code_only(source: &str) -> String {
    static OTHER: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r##"(?s)//[^\n]*|/\*.*?\*/|r#".*?"#|"(?:\\.|[^"\\])*"|'(?:\\.|[^\\'\n])'"##)
            .unwrap()
    });
    let blank = |found: &regex::Captures<'_>| found[0].replace(|c| c != '\n', " ");
    OTHER.replace_all(source, blank).into_owned()
}

/// Returns the length of the text up to the end of its first pair of brackets.
fn bracketed(code: &str, open: char, close: char) -> usize {
    let mut depth = 0;
    for (at, c) in code.char_indices() {
        if c == open {
            depth += 1;
        } else if c == close {
            depth -= 1;
            if depth == 0 {
                return at;
            }
        }
    }
    code.len()
}

/// Returns the ranges of the arguments of calls that may block.
fn blocking_ranges(code: &str) -> Vec<std::ops::Range<usize>> {
    static CALL: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\b(?:spawn_blocking|blocking|block_in_place)\(").unwrap());
    CALL.find_iter(code)
        .map(|call| {
            let start = call.end() - 1;
            start..start + bracketed(&code[start..], '(', ')')
        })
        .collect()
}

/// Returns the lines of calls that block async code.
fn find_blocking_calls(source: &str) -> BTreeSet<usize> {
    static ASYNC: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\basync\s+(?:move\b\s*)?(?:fn\b|\||\{)").unwrap());
    static CALL: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\bstd::fs::\w+|\bstd::fs::File::\w+").unwrap());
    let code = code_only(source);
    let code = match code.find("#[cfg(test)]\nmod ") {
        Some(tests) => &code[..tests],
        None => &code,
    };
    let may_block = blocking_ranges(code);
    let mut lines = BTreeSet::new();
    for found in ASYNC.find_iter(code) {
        let head = &code[found.start()..];
        let Some(body) = head.find('{').filter(|at| !head[..*at].contains(';')) else {
            continue;
        };
        let start = found.start() + body;
        let end = start + bracketed(&code[start..], '{', '}');
        for call in CALL.find_iter(&code[start..end]) {
            let at = start + call.start();
            if !may_block.iter().any(|range| range.contains(&at)) {
                lines.insert(code[..at].matches('\n').count() + 1);
            }
        }
    }
    lines
}

#[test]
fn async_code_does_not_wait_for_the_disk() {
    let root = workspace_root();
    let list: toml::Table = std::fs::read_to_string(root.join(LIST))
        .unwrap()
        .parse()
        .unwrap();
    let mut calls: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for top in ["crates", "bins"] {
        for path in list_sources(&root.join(top)) {
            let place = path.strip_prefix(&root).unwrap().to_string_lossy();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let Some((crate_folder, _)) = place.split_once("/src/") else {
                continue;
            };
            if name.contains("test") {
                continue;
            }
            let lines = find_blocking_calls(&std::fs::read_to_string(&path).unwrap());
            if !lines.is_empty() {
                let found = calls.entry(crate_folder.to_owned()).or_default();
                found.extend(lines.iter().map(|line| format!("{place}:{line}")));
            }
        }
    }
    let left = list["calls"].as_table().unwrap();
    let allowed = |crate_folder: &String| {
        let number = left.get(crate_folder).and_then(toml::Value::as_integer);
        usize::try_from(number.unwrap_or(0)).expect("a number of calls")
    };
    let more: Vec<_> = calls
        .iter()
        .filter(|(crate_folder, found)| found.len() > allowed(crate_folder))
        .map(|(crate_folder, found)| format!("{crate_folder} = {}: {found:#?}", found.len()))
        .collect();
    assert!(
        more.is_empty(),
        "more calls of std::fs in async code than in {LIST}; use base_task::blocking for new ones: {}",
        more.join("\n")
    );
    let stale: Vec<_> = left
        .keys()
        .filter(|name| !calls.contains_key(*name))
        .collect();
    assert!(
        stale.is_empty(),
        "{LIST} lists crates without such calls: {stale:?}"
    );
}

#[test]
fn only_calls_in_async_code_are_found() {
    let source = r#"
fn plain() { std::fs::read("a"); }
async fn direct() {
    std::fs::read("b"); // std::fs::read
    let text = "std::fs::read";
    tokio::fs::read("c").await;
}
fn later() -> impl Future {
    async move { std::fs::write("}", "d") }
}
async fn off() {
    tokio::task::spawn_blocking(move || std::fs::read("e")).await;
    base_task::blocking(|| std::fs::read("f"));
}
trait T { async fn declared(&self); }
fn after() { std::fs::read("g"); }
"#;
    assert_eq!(find_blocking_calls(source), BTreeSet::from([4, 9]));
}
