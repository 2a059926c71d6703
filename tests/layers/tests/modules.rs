//! Every source file is compiled: a file that no module includes looks like code and is none.
#![allow(clippy::unwrap_used)]

use layers::{list_sources, workspace_root};
use regex::Regex;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Returns the files that cargo compiles by their names.
fn find_roots(folder: &Path) -> impl Iterator<Item = PathBuf> {
    ["lib.rs", "main.rs"]
        .into_iter()
        .map(|name| folder.join(name))
}

/// Returns the files that `source`, the text of `file`, includes as modules.
fn find_included(file: &Path, source: &str) -> Vec<PathBuf> {
    let declaration = Regex::new(
        r#"(?m)^[ \t]*(?:#\[path = "([^"]+)"\]\s*)?(?:pub(?:\([a-z: ]+\))?\s+)?mod\s+(\w+)\s*;"#,
    )
    .unwrap();
    let folder = file.parent().unwrap();
    let stem = file.file_stem().unwrap().to_string_lossy();
    let children = match &*stem {
        "lib" | "main" | "mod" => folder.to_owned(),
        stem => folder.join(stem),
    };
    let declared = declaration.captures_iter(source);
    declared
        .map(|found| match found.get(1) {
            Some(path) => folder.join(path.as_str()),
            None => children.join(format!("{}.rs", &found[2])),
        })
        .collect()
}

#[test]
fn every_source_file_belongs_to_a_module() {
    let root = workspace_root();
    let (mut all, mut included) = (BTreeSet::new(), BTreeSet::new());
    for top in ["crates", "bins"] {
        for file in list_sources(&root.join(top)) {
            if !file.components().any(|part| part.as_os_str() == "src") {
                continue;
            }
            let source = std::fs::read_to_string(&file).unwrap();
            included.extend(find_included(&file, &source));
            included.extend(find_roots(file.parent().unwrap()));
            all.insert(file);
        }
    }
    assert!(all.len() > 1_000, "{} files", all.len());
    let left: Vec<_> = all.difference(&included).collect();
    assert!(left.is_empty(), "no module includes {left:?}");
}

#[test]
fn modules_are_found_by_name_and_by_path() {
    let source = "mod a;\n#[cfg(test)]\n#[path = \"plan_tests.rs\"]\nmod tests;\npub(crate) mod c;\nmod inner {}\n";
    let included = find_included(Path::new("src/plan.rs"), source);
    let names = ["src/plan/a.rs", "src/plan_tests.rs", "src/plan/c.rs"];
    assert_eq!(included, names.map(PathBuf::from));
}
