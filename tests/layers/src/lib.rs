//! Rules of the sources: the layer table (`layers.toml`) checked against `cargo metadata`, see
//! `tests/layers.rs`; the word list (`words.toml`) checked against comments, documents and commits,
//! see `tests/words.rs`; circles of modules, blocking calls and one style of equal things, see the
//! other files of `tests`. This library holds what they share.
#![allow(clippy::expect_used)]

use std::path::{Path, PathBuf};

/// Returns the root of the workspace.
pub fn workspace_root() -> PathBuf {
    // Not the folder that this was compiled in: clones may share what they build.
    let folder = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this");
    let root = Path::new(&folder).join("../..");
    root.canonicalize().expect("the workspace")
}

/// Returns the Rust files below a folder, in a fixed order, without generated ones.
pub fn list_sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.ends_with("src/generated") {
            continue;
        }
        if path.is_dir() {
            files.extend(list_sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}
