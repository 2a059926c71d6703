//! Comments, documents and commit subjects use the project's terms: `words.toml` lists the words
//! that they do not use.
//!
//! Files that are still to be done are on its `allow` list, which may only shrink.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use layers::workspace_root;
use regex::{Regex, RegexBuilder};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

const LIST: &str = "tests/layers/words.toml";
/// The page that explains the words, and so contains them.
const GLOSSARY: &str = "docs/glossary.md";
const FOLDERS: [&str; 5] = ["crates", "bins", "tests", "tools", "docs"];
/// Maximum length of a commit's subject in characters.
const SUBJECT: usize = 72;
/// Maximum number of commits to check.
const COMMITS: &str = "200";

struct Word {
    find: Regex,
    instead: String,
    comments_only: bool,
}

/// The part of a file in which a phrase may span lines: a block of comment lines, or a whole
/// document.
struct Block {
    line: usize,
    text: String,
    is_comment: bool,
}

fn list() -> toml::Table {
    std::fs::read_to_string(workspace_root().join(LIST))
        .unwrap()
        .parse()
        .expect("words.toml is TOML")
}

fn compile(find: &str) -> Regex {
    let (start, body) = match find.strip_prefix("\\A") {
        Some(body) => ("\\A", body),
        None => ("\\b", find),
    };
    let pattern = format!("{start}(?:{})\\b", body.replace(' ', "\\s+"));
    RegexBuilder::new(&pattern)
        .case_insensitive(true)
        .build()
        .unwrap_or_else(|error| panic!("{find}: {error}"))
}

fn words(list: &toml::Table) -> Vec<Word> {
    let rows = list["word"].as_array().expect("[[word]] rows");
    let text = |row: &toml::Value, key: &str| {
        row.get(key)
            .and_then(toml::Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let word = |row: &toml::Value| Word {
        find: compile(&text(row, "find")),
        instead: text(row, "use"),
        comments_only: row.get("comments").and_then(toml::Value::as_bool) == Some(true),
    };
    rows.iter().map(word).collect()
}

fn allowed(list: &toml::Table) -> Vec<String> {
    let files = list["allow"]["files"].as_array().expect("a list of files");
    files
        .iter()
        .map(|file| file.as_str().expect("a path").to_owned())
        .collect()
}

/// Replaces code blocks and code spans by spaces, so that identifiers are not searched and lines
/// keep their numbers.
fn without_code(text: &str) -> String {
    static CODE: LazyLock<Regex> = LazyLock::new(|| Regex::new("(?s)```.*?```|`[^`]*`").unwrap());
    let blank = |found: &regex::Captures<'_>| found[0].replace(|c| c != '\n', " ");
    CODE.replace_all(text, blank).into_owned()
}

/// Returns the blocks of consecutive comment lines of the same kind, split at empty comment lines.
fn comment_blocks(source: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open = "";
    for (number, line) in source.lines().enumerate() {
        let line = line.trim_start();
        let Some(mark) = ["///", "//!", "//"]
            .into_iter()
            .find(|mark| line.starts_with(mark))
        else {
            open = "";
            continue;
        };
        let text = line[mark.len()..].trim();
        match blocks.last_mut() {
            Some(block) if open == mark && !text.is_empty() => {
                block.text.push('\n');
                block.text.push_str(text);
            }
            _ => blocks.push(Block {
                line: number + 1,
                text: text.to_owned(),
                is_comment: true,
            }),
        }
        open = mark;
    }
    blocks
}

/// Returns `line: phrase -> replacement` for each phrase.
fn search(blocks: Vec<Block>, words: &[Word]) -> Vec<String> {
    let mut found = Vec::new();
    for block in blocks {
        let text = without_code(&block.text);
        for word in words
            .iter()
            .filter(|word| block.is_comment || !word.comments_only)
        {
            found.extend(word.find.find_iter(&text).map(|phrase| {
                let line = block.line + text[..phrase.start()].matches('\n').count();
                let phrase = phrase
                    .as_str()
                    .split_whitespace()
                    .collect::<Vec<_>>()
                    .join(" ");
                format!("{line}: {phrase:?} -> {}", word.instead)
            }));
        }
    }
    found
}

fn blocks(path: &str, text: String) -> Vec<Block> {
    if path.ends_with(".rs") {
        comment_blocks(&text)
    } else if path.starts_with("docs/") && path.ends_with(".md") && path != GLOSSARY {
        vec![Block {
            line: 1,
            text,
            is_comment: false,
        }]
    } else {
        Vec::new()
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir()
            && entry.file_name() != "target"
            && !entry.path().ends_with("src/generated")
        {
            collect(&entry.path(), files);
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
}

/// Writes past libtest's capture, so that a skip is visible in a successful run.
fn print(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[test]
fn comments_and_documents_use_the_terms_of_the_glossary() {
    let (root, list) = (workspace_root(), list());
    let (words, allowed) = (words(&list), allowed(&list));
    let mut files = Vec::new();
    FOLDERS
        .iter()
        .for_each(|folder| collect(&root.join(folder), &mut files));
    files.sort();
    let (mut wrong, mut pending) = (Vec::new(), Vec::new());
    for file in files {
        let path = file
            .strip_prefix(&root)
            .unwrap()
            .to_string_lossy()
            .into_owned();
        let Ok(text) = std::fs::read_to_string(&file) else {
            continue;
        };
        let found = search(blocks(&path, text), &words);
        if !found.is_empty() && allowed.contains(&path) {
            pending.push(path);
        } else {
            wrong.extend(found.iter().map(|found| format!("{path}:{found}")));
        }
    }
    let done: Vec<&String> = allowed
        .iter()
        .filter(|path| !pending.contains(path))
        .collect();
    if std::env::var_os("UPDATE_WORDS").is_some() {
        shrink(&root.join(LIST), &done);
    } else {
        wrong.extend(
            done.iter()
                .map(|path| format!("{LIST}: {path} is done: remove it from [allow]")),
        );
    }
    assert!(
        wrong.is_empty(),
        "{}\nThe terms: {GLOSSARY}",
        wrong.join("\n")
    );
}

/// Removes entries from the allow list, which has one entry per line.
fn shrink(list: &Path, done: &[&String]) {
    let text = std::fs::read_to_string(list).unwrap();
    let is_done = |line: &&str| {
        done.iter()
            .any(|path| line.trim() == format!("\"{path}\","))
    };
    let kept: Vec<&str> = text.lines().filter(|line| !is_done(line)).collect();
    std::fs::write(list, kept.join("\n") + "\n").unwrap();
}

/// Returns what is wrong with a commit's subject.
fn subject_problem(subject: &str) -> Option<&'static str> {
    let form = Regex::new(r"^[\w./-]+(, [\w./-]+)*: \S").unwrap();
    let verb = subject
        .split_once(": ")
        .and_then(|(_, summary)| summary.split(' ').next())
        .unwrap_or_default();
    let inflected = [
        "adds", "added", "changes", "changed", "fixes", "fixed", "makes", "made", "moves", "moved",
        "removes",
    ];
    let inflected = [
        &inflected[..],
        &[
            "removed", "renames", "renamed", "updates", "updated", "uses", "used",
        ],
    ]
    .concat();
    if subject.chars().count() > SUBJECT {
        Some("is longer than 72 characters")
    } else if !form.is_match(subject) {
        Some("has no form `area: summary`")
    } else if subject.ends_with('.') {
        Some("ends with a full stop")
    } else if verb.ends_with("ing") || inflected.contains(&verb) {
        Some("has no verb in the imperative (add, fix, rename)")
    } else {
        None
    }
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(workspace_root())
        .args(args)
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns hash and subject of the commits to check: those after the commit that added the list,
/// and after the newest tag.
fn commits() -> Result<Vec<(String, String)>, &'static str> {
    git(&["rev-parse", "HEAD"]).ok_or("there is no git repository")?;
    let added = git(&["log", "--diff-filter=A", "--format=%H %ct", "--", LIST]).unwrap_or_default();
    let (first, time) = added
        .lines()
        .last()
        .and_then(|line| line.split_once(' '))
        .ok_or("the list is not committed")?;
    // Parallel branches have earlier commits that the first one does not contain.
    let (since, before) = (format!("--since={time}"), format!("^{first}"));
    let tag = git(&["describe", "--tags", "--abbrev=0"]).map(|tag| format!("^{tag}"));
    let mut args = vec![
        "log",
        "--no-merges",
        "--format=%h %s",
        "-n",
        COMMITS,
        &since,
        "HEAD",
        &before,
    ];
    args.extend(tag.as_deref());
    let log = git(&args).ok_or("git log failed")?;
    Ok(log
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(h, s)| (h.to_owned(), s.to_owned()))
        .collect())
}

#[test]
fn commit_subjects_are_short_and_use_the_terms_of_the_glossary() {
    let commits = match commits() {
        Ok(commits) => commits,
        Err(reason) => return print(&format!("skip layers/commits: {reason}")),
    };
    let words = words(&list());
    let mut wrong = Vec::new();
    for (hash, subject) in commits {
        wrong.extend(
            subject_problem(&subject).map(|problem| format!("{hash}: {subject:?} {problem}")),
        );
        let block = Block {
            line: 1,
            text: subject.clone(),
            is_comment: false,
        };
        wrong.extend(
            search(vec![block], &words)
                .iter()
                .map(|found| format!("{hash}: {subject:?}:{found}")),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn search_names_line_phrase_and_replacement() {
    let words = [
        Word {
            find: compile("goes? on"),
            instead: "continue".to_owned(),
            comments_only: false,
        },
        Word {
            find: compile("\\Awhat"),
            instead: "a verb".to_owned(),
            comments_only: true,
        },
    ];
    for (path, text, expect) in [
        (
            "a.rs",
            "/// Runs, and goes\n    /// on.\n",
            &["1: \"goes on\" -> continue"][..],
        ),
        (
            "a.rs",
            "let a = 1;\n\n// It `goes on`.\n// Going on.\n",
            &[],
        ),
        ("a.rs", "fn goes_on() {} // goes on\n", &[]),
        (
            "a.rs",
            "//! What it is.\n//!\n//! Not what.\n//!\n//! What.\n",
            &["1: \"What\" -> a verb"],
        ),
        (
            "docs/a.md",
            "What\n\n```\ngoes on\n```\ngoes  on\n",
            &["6: \"goes on\" -> continue"],
        ),
        (GLOSSARY, "goes on", &[]),
        ("README.md", "goes on", &[]),
    ] {
        assert_eq!(
            search(blocks(path, text.to_owned()), &words),
            expect,
            "{path} {text:?}"
        );
    }
}

#[test]
fn subject_problem_accepts_only_area_and_imperative() {
    for (subject, good) in [
        ("kv-raft: bound how long a transfer blocks proposals", true),
        ("docs/adr, tests: add a record", true),
        ("Bound how long a transfer blocks proposals", false),
        ("kv-raft: fixes a race", false),
        ("kv-raft: fixing a race", false),
        ("kv-raft: fix a race.", false),
        (
            "kv-raft: fix a race between the elections of a member and the removal of that one",
            false,
        ),
    ] {
        assert_eq!(subject_problem(subject).is_none(), good, "{subject}");
    }
}

#[test]
fn replacements_are_not_in_the_list_themselves() {
    let words = words(&list());
    for word in &words {
        let block = Block {
            line: 1,
            text: word.instead.clone(),
            is_comment: false,
        };
        assert_eq!(
            search(vec![block], &words),
            [] as [String; 0],
            "{}",
            word.instead
        );
    }
}
