//! Checks that dependencies point down the table in `layers.toml`, and that every crate is in it
//! and inherits the lints.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Debug)]
struct Table {
    folders: BTreeMap<String, Vec<String>>,
    exceptions: BTreeMap<String, Vec<String>>,
    alone: BTreeMap<String, Vec<String>>,
}

fn section(doc: &toml::Table, name: &str) -> BTreeMap<String, Vec<String>> {
    let entries = doc[name].as_table().expect("a table");
    let words = |v: &toml::Value| {
        v.as_array()
            .unwrap()
            .iter()
            .map(|w| w.as_str().unwrap().to_owned())
            .collect()
    };
    entries.iter().map(|(k, v)| (k.clone(), words(v))).collect()
}

fn table() -> Table {
    let doc: toml::Table = include_str!("../layers.toml")
        .parse()
        .expect("layers.toml is TOML");
    Table {
        folders: section(&doc, "folders"),
        exceptions: section(&doc, "exceptions"),
        alone: section(&doc, "alone"),
    }
}

fn metadata() -> Metadata {
    // Not the directory of the compilation: clones may share their build directory.
    let folder = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this");
    let manifest = Path::new(&folder).join("../../Cargo.toml");
    MetadataCommand::new()
        .manifest_path(manifest)
        .no_deps()
        .exec()
        .expect("cargo metadata")
}

/// Returns (`crates`, `kv`) for `crates/kv/engine`; (`bins`, `kubelet`) for `bins/kubelet`.
fn place(package: &Package, root: &Path) -> (String, String) {
    let path = package
        .manifest_path
        .as_std_path()
        .strip_prefix(root)
        .expect("inside the workspace");
    let mut parts = path.iter().map(|p| p.to_string_lossy().into_owned());
    (parts.next().unwrap(), parts.next().unwrap())
}

#[test]
fn dependencies_point_down_the_table() {
    let (table, metadata) = (table(), metadata());
    let root = metadata.workspace_root.as_std_path().to_owned();
    let places: BTreeMap<String, (String, String)> = metadata
        .packages
        .iter()
        .map(|p| (p.name.to_string(), place(p, &root)))
        .collect();
    let mut wrong = Vec::new();
    for package in &metadata.packages {
        let (top, folder) = &places[package.name.as_str()];
        let excepted = table
            .exceptions
            .get(package.name.as_str())
            .cloned()
            .unwrap_or_default();
        for dependency in package
            .dependencies
            .iter()
            .filter(|d| d.kind != DependencyKind::Development)
        {
            if let Some(owners) = table.alone.get(&dependency.name)
                && !owners.contains(&package.name.to_string())
            {
                wrong.push(format!(
                    "{} uses {}, which only {owners:?} may",
                    package.name, dependency.name
                ));
            }
            let Some((_, to)) = places.get(&dependency.name) else {
                continue;
            };
            if excepted.contains(&dependency.name) {
                continue;
            }
            let allowed = match top.as_str() {
                "bins" | "tests" => to != "testkit" || top == "tests",
                _ => {
                    to == folder
                        || table
                            .folders
                            .get(folder)
                            .is_some_and(|down| down.contains(to))
                }
            };
            if !allowed {
                wrong.push(format!(
                    "{} ({folder}) may not use {} ({to})",
                    package.name, dependency.name
                ));
            }
        }
        if top == "crates" && !table.folders.contains_key(folder) {
            wrong.push(format!("crates/{folder} is not in layers.toml"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_table_has_no_cycle_and_no_unknown_name() {
    let table = table();
    let mut done: Vec<&String> = Vec::new();
    while done.len() < table.folders.len() {
        let next = table
            .folders
            .iter()
            .find(|(f, down)| !done.contains(f) && down.iter().all(|d| done.contains(&d)));
        let (folder, _) = next.expect("a cycle, or a folder that the table does not have");
        done.push(folder);
    }
}

#[test]
fn every_crate_inherits_the_lints() {
    for package in metadata().packages {
        let manifest = std::fs::read_to_string(&package.manifest_path).unwrap();
        let doc: toml::Table = manifest.parse().unwrap();
        let inherited = doc
            .get("lints")
            .and_then(|l| l.get("workspace"))
            .and_then(toml::Value::as_bool);
        assert_eq!(
            inherited,
            Some(true),
            "{} lacks [lints] workspace = true",
            package.name
        );
    }
}

/// A crate's own `clippy.toml` replaces that of the workspace, so it must repeat its rows.
#[test]
fn clippy_files_of_crates_have_the_rows_of_the_workspace() {
    let metadata = metadata();
    let rows = |folder: &Path| -> Option<Vec<toml::Value>> {
        let text = std::fs::read_to_string(folder.join("clippy.toml")).ok()?;
        let doc: toml::Table = text.parse().expect("clippy.toml is TOML");
        Some(doc["disallowed-methods"].as_array().unwrap().clone())
    };
    let all = rows(metadata.workspace_root.as_std_path()).expect("a clippy.toml");
    for package in &metadata.packages {
        let folder = package.manifest_path.parent().unwrap();
        let Some(own) = rows(folder.as_std_path()) else {
            continue;
        };
        let missing: Vec<_> = all.iter().filter(|row| !own.contains(row)).collect();
        assert!(
            missing.is_empty(),
            "{folder}/clippy.toml lacks {missing:#?}"
        );
    }
}
