//! Modules of a crate do not import each other in a circle: each can be read, and moved, with only
//! the modules that it imports.
//!
//! The compiler accepts circles, so this test follows the imports between the files of each crate.
//! `circles.toml` lists the circles that remain, each with its reason; they may only shrink.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use layers::workspace_root;
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

const LIST: &str = "tests/layers/circles.toml";

/// Path of a module below the crate; empty for the root.
type Module = Vec<String>;
/// Names that a module takes from others, by module.
type Imports = BTreeMap<Module, BTreeMap<Module, BTreeSet<String>>>;

/// Replaces comments and strings by spaces and removes test modules.
fn production_code(source: &str) -> String {
    static OTHER: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r##"(?s)//[^\n]*|/\*.*?\*/|r#".*?"#|"(?:\\.|[^"\\])*"|'(?:\\.|[^\\'\n])'"##)
            .unwrap()
    });
    // rustfmt puts the end of a module at the start of a line.
    static TESTS: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r"(?s)#\[cfg\((?:test|any\(test[^\]]*)\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([a-z]+\))?\s+)?mod\s+\w+\s*(?:;|\{.*?\n\})",
        )
        .unwrap()
    });
    let blank = |found: &regex::Captures<'_>| found[0].replace(|c| c != '\n', " ");
    let code = OTHER.replace_all(source, blank);
    TESTS.replace_all(&code, "").into_owned()
}

/// Returns the names of child modules that have a file.
fn declared_modules(code: &str) -> Vec<String> {
    static DECLARATION: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(?m)^(?:pub(?:\([a-z: ]+\))?\s+)?mod\s+(\w+)\s*;").unwrap());
    let names = DECLARATION.captures_iter(code);
    names.map(|found| found[1].to_owned()).collect()
}

fn load_modules(file: &Path, children: &Path, path: &Module, into: &mut BTreeMap<Module, String>) {
    let code = production_code(&std::fs::read_to_string(file).unwrap());
    for name in declared_modules(&code) {
        let child = [path.as_slice(), std::slice::from_ref(&name)].concat();
        let nested = children.join(&name);
        let files = [children.join(format!("{name}.rs")), nested.join("mod.rs")];
        if let Some(file) = files.iter().find(|file| file.exists()) {
            load_modules(file, &nested, &child, into);
        }
    }
    into.insert(path.clone(), code);
}

/// Splits a tree of imports into its paths. Aliases are dropped.
fn expand_imports(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((prefix, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        return vec![path.split_whitespace().collect()];
    };
    let rest = &rest[..rest.rfind('}').unwrap_or(rest.len())];
    let mut paths = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (at, c) in rest.char_indices().chain([(rest.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !rest[start..at].trim().is_empty() {
                    paths.extend(expand_imports(&format!("{prefix}{}", &rest[start..at])));
                }
                start = at + 1;
            }
            _ => {}
        }
    }
    paths
}

/// Returns a path below the crate, or `None` if it leads to another crate.
fn resolve_path(path: &str, module: &Module, modules: &BTreeMap<Module, String>) -> Option<Module> {
    let mut words = path.split("::").map(str::to_owned).peekable();
    let mut at = module.clone();
    match words.peek()?.as_str() {
        "crate" => {
            words.next();
            at.clear();
        }
        "self" => {
            words.next();
        }
        "super" => {
            while words.next_if(|word| word == "super").is_some() {
                at.pop()?;
            }
        }
        child => {
            let child = [module.as_slice(), &[child.to_owned()]].concat();
            modules.get(&child)?;
        }
    }
    at.extend(words.filter(|word| word != "self"));
    Some(at)
}

struct Import {
    path: Module,
    /// The import is part of the module's interface.
    public: bool,
}

/// Returns the imports of a module, and its code without imports and declarations of modules.
fn imports_of(module: &Module, modules: &BTreeMap<Module, String>) -> (Vec<Import>, String) {
    static USE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(?m)^\s*(pub(?:\([a-z: ]+\))?\s+)?use\s+([^;]+);").unwrap());
    static DECLARATION: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\bmod\s+\w+\s*;").unwrap());
    let code = &modules[module];
    let mut found = Vec::new();
    for import in USE.captures_iter(code) {
        for path in expand_imports(&import[2]) {
            if let Some(path) = resolve_path(&path, module, modules) {
                let public = import.get(1).is_some();
                found.push(Import { path, public });
            }
        }
    }
    let rest = USE.replace_all(code, "");
    (found, DECLARATION.replace_all(&rest, "").into_owned())
}

/// Returns the module that defines what a path names: re-exports are followed.
fn defining_module(
    path: &Module,
    modules: &BTreeMap<Module, String>,
    exports: &BTreeMap<Module, Module>,
) -> (Module, String) {
    let mut path = path.clone();
    // Each step follows one re-export; a limit instead of a search for loops.
    for _ in 0..20 {
        let length = (0..=path.len())
            .rev()
            .find(|n| modules.contains_key(&path[..*n]));
        let length = length.unwrap_or(0);
        let next = path.get(..=length).and_then(|name| exports.get(name));
        match next {
            Some(next) if *next != path[..=length] => {
                path = [next.as_slice(), &path[length + 1..]].concat();
            }
            _ => return (path[..length].to_vec(), path[length..].join("::")),
        }
    }
    (path, String::new())
}

fn find_imports(modules: &BTreeMap<Module, String>) -> Imports {
    static PATH: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(?:^|[^:\w])([a-z_][a-z_0-9]*(?:::\w+)+)").unwrap());
    static WORD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\w+").unwrap());
    let read: BTreeMap<_, _> = modules
        .keys()
        .map(|module| (module, imports_of(module, modules)))
        .collect();
    let mut exports = BTreeMap::new();
    for (module, (imports, _)) in &read {
        for import in imports {
            if let Some(name) = import.path.last() {
                let exported = [module.as_slice(), std::slice::from_ref(name)].concat();
                exports.insert(exported, import.path.clone());
            }
        }
    }
    let mut all = Imports::new();
    for (module, (imports, code)) in &read {
        let words: BTreeSet<&str> = WORD.find_iter(code).map(|word| word.as_str()).collect();
        // A re-export that the module itself does not use ties it to nothing.
        let used = imports.iter().filter(|import| {
            let name = import.path.last().map_or("", String::as_str);
            !import.public || words.contains(name)
        });
        let inline = PATH.captures_iter(code);
        // A path may begin with an imported module: `use crate::a;` and then `a::b::function`.
        let through_import = |path: &str| {
            let (first, rest) = path.split_once("::")?;
            let imported = exports.get(&[module.as_slice(), &[first.to_owned()]].concat())?;
            let rest: Module = rest.split("::").map(str::to_owned).collect();
            Some([imported.as_slice(), &rest].concat())
        };
        let inline = inline.filter_map(|found| {
            resolve_path(&found[1], module, modules).or_else(|| through_import(&found[1]))
        });
        for path in used.map(|import| import.path.clone()).chain(inline) {
            let (from, name) = defining_module(&path, modules, &exports);
            if from != **module {
                let imports = all.entry((*module).clone()).or_default();
                imports.entry(from).or_default().insert(name);
            }
        }
    }
    all
}

/// Returns the modules that can be reached by one or more imports.
fn reachable(start: &Module, imports: &Imports) -> BTreeSet<Module> {
    let mut seen = BTreeSet::new();
    let mut waiting = vec![start];
    while let Some(module) = waiting.pop() {
        for next in imports.get(module).into_iter().flat_map(BTreeMap::keys) {
            if seen.insert(next.clone()) {
                waiting.push(next);
            }
        }
    }
    seen
}

/// Returns the largest sets of modules that all reach each other.
fn find_circles(imports: &Imports) -> BTreeSet<BTreeSet<Module>> {
    let reach: BTreeMap<_, _> = imports
        .keys()
        .map(|module| (module, reachable(module, imports)))
        .collect();
    let in_circle = |module: &Module| reach[module].contains(module);
    let circle_of = |module: &Module| -> BTreeSet<Module> {
        let reaches_back = |other: &Module| {
            let back = reach.get(other);
            back.is_some_and(|back| back.contains(module))
        };
        let others = reach[module].iter();
        others
            .filter(|other| reaches_back(other))
            .cloned()
            .collect()
    };
    imports
        .keys()
        .filter(|module| in_circle(module))
        .map(circle_of)
        .collect()
}

fn name_of(module: &Module) -> String {
    match module.as_slice() {
        [] => "lib".to_owned(),
        names => names.join("::"),
    }
}

fn describe_circle(circle: &BTreeSet<Module>, imports: &Imports) -> String {
    let mut lines = String::new();
    for from in circle {
        for (to, names) in imports.get(from).into_iter().flatten() {
            if circle.contains(to) {
                let names: Vec<_> = names
                    .iter()
                    .map(|name| {
                        if name.is_empty() {
                            "the module"
                        } else {
                            name.as_str()
                        }
                    })
                    .collect();
                let (from, to) = (name_of(from), name_of(to));
                lines += &format!("  {from} imports from {to}: {}\n", names.join(", "));
            }
        }
    }
    lines
}

fn find_crates(folder: &Path, crates: &mut Vec<PathBuf>) {
    if folder.join("Cargo.toml").exists() {
        crates.push(folder.to_path_buf());
        return;
    }
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            find_crates(&entry.path(), crates);
        }
    }
}

/// A circle of `circles.toml`: crate and modules.
fn listed_circles(root: &Path) -> Vec<(String, BTreeSet<String>)> {
    let text = std::fs::read_to_string(root.join(LIST)).unwrap();
    let list: toml::Table = text.parse().unwrap();
    let circles = list.get("circle").and_then(toml::Value::as_array);
    let read = |circle: &toml::Value| {
        let reason = circle["reason"].as_str().unwrap();
        assert!(!reason.trim().is_empty(), "{LIST}: {circle} has no reason");
        let modules = circle["modules"].as_array().unwrap().iter();
        let modules: BTreeSet<String> = modules
            .map(|module| module.as_str().unwrap().to_owned())
            .collect();
        (circle["crate"].as_str().unwrap().to_owned(), modules)
    };
    circles.into_iter().flatten().map(read).collect()
}

#[test]
fn modules_do_not_import_each_other_in_circles() {
    let root = workspace_root();
    let listed = listed_circles(&root);
    let mut crates = Vec::new();
    for top in ["crates", "bins"] {
        find_crates(&root.join(top), &mut crates);
    }
    assert!(crates.len() > 50, "only {} crates found", crates.len());
    let mut found_listed = BTreeSet::new();
    let mut new = String::new();
    for folder in &crates {
        let place = folder.strip_prefix(&root).unwrap().to_string_lossy();
        let source = folder.join("src");
        for start in ["lib.rs", "main.rs"] {
            let file = source.join(start);
            if !file.exists() {
                continue;
            }
            let mut modules = BTreeMap::new();
            load_modules(&file, &source, &Vec::new(), &mut modules);
            let imports = find_imports(&modules);
            for circle in find_circles(&imports) {
                let names: BTreeSet<String> = circle.iter().map(name_of).collect();
                // A part of a listed circle is what remains after it was partly broken.
                let known = listed
                    .iter()
                    .position(|(in_crate, modules)| *in_crate == place && names.is_subset(modules));
                match known {
                    Some(at) => {
                        found_listed.insert(at);
                    }
                    None => {
                        let ties = describe_circle(&circle, &imports);
                        new += &format!("{place}: circle of {names:?}\n{ties}");
                    }
                }
            }
        }
    }
    assert!(
        new.is_empty(),
        "modules import each other. Move the type, constant or function that ties them to a module \
         below both, named for what it holds, or to where its data lives. If the circle has a reason, \
         list it with the reason in {LIST}.\n{new}"
    );
    let stale: Vec<_> = (0..listed.len())
        .filter(|at| !found_listed.contains(at))
        .map(|at| &listed[at])
        .collect();
    assert!(
        stale.is_empty(),
        "{LIST} lists circles that are broken: {stale:?}"
    );
}

fn circles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let modules: BTreeMap<Module, String> = files
        .iter()
        .map(|(path, source)| {
            let path = path.split("::").filter(|word| !word.is_empty());
            (path.map(str::to_owned).collect(), production_code(source))
        })
        .collect();
    let circles = find_circles(&find_imports(&modules));
    let names = |circle: &BTreeSet<Module>| circle.iter().map(name_of).collect();
    circles.iter().map(names).collect()
}

#[test]
fn circle_through_each_form_of_import_is_found() {
    for (a, b) in [
        ("use crate::b::B;", "use crate::a::A;"),
        ("use super::b::{self, B};", "use super::{a::A, c};"),
        ("fn f() { crate::b::g() }", "fn g() { super::a::f() }"),
        // By way of a re-export of the crate.
        ("use crate::B;", "use crate::a::A as C;"),
    ] {
        let files = [("", "mod a;\nmod b;\npub use b::B;"), ("a", a), ("b", b)];
        assert_eq!(circles_of(&files), [["a", "b"]], "{a} {b}");
    }
}

#[test]
fn circle_of_a_module_and_its_child_is_found() {
    let files = [
        ("", "mod a;"),
        ("a", "mod child;\nuse child::build;\npub struct A;"),
        ("a::child", "use super::A;"),
    ];
    assert_eq!(circles_of(&files), [["a", "a::child"]]);
    let moved = [
        ("", "mod a;"),
        (
            "a",
            "mod child;\nmod part;\nuse child::build;\npub use part::A;",
        ),
        ("a::child", "use super::A;"),
        ("a::part", "pub struct A;"),
    ];
    assert_eq!(circles_of(&moved), [[""; 0]; 0]);
}

#[test]
fn imports_of_tests_comments_and_other_crates_are_no_circle() {
    let files = [
        ("", "mod a;\nmod b;"),
        ("a", "use crate::b::B;\nuse other::a::X;"),
        (
            "b",
            "/// See [`crate::a::A`].\npub struct B;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}",
        ),
    ];
    assert_eq!(circles_of(&files), [[""; 0]; 0]);
}
