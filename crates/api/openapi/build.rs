//! Collects the descriptions of types and fields from the sources of k8s-openapi into one
//! compressed text.
//!
//! The descriptions are not stored in this repository, because they are part of a dependency. If
//! its sources can't be found, the build fails: a server without descriptions must be requested
//! explicitly.

use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Environment variable that allows a build without descriptions.
const WITHOUT: &str = "IRONCLAD_WITHOUT_DESCRIPTIONS";

fn main() {
    println!("cargo::rerun-if-env-changed={WITHOUT}");
    println!("cargo::rerun-if-changed=build.rs");
    // Another version of k8s-openapi, and with it other descriptions, shows in the lock file only.
    println!("cargo::rerun-if-changed=../../../Cargo.lock");
    let mut lines = Vec::new();
    match sources() {
        Some(folder) => collect(&folder, &mut lines),
        None if std::env::var_os(WITHOUT).is_some() => {}
        None => println!(
            "cargo::error=the sources of k8s-openapi were not found; run `cargo fetch`, or set {WITHOUT}=1 to build OpenAPI \
             documents without descriptions"
        ),
    }
    // The order of directory entries varies, and equal sources must result in equal builds.
    lines.sort();
    lines.dedup();
    let out =
        PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default()).join("descriptions.gz");
    let written = fs::File::create(&out).and_then(|file| {
        let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::best());
        encoder.write_all(lines.join("\n").as_bytes())?;
        encoder.finish()
    });
    if let Err(error) = written {
        println!("cargo::error=cannot write {}: {error}", out.display());
    }
}

/// Returns the directory of the generated types: where cargo unpacks the version in the lock file,
/// or the path that `cargo metadata` reports (vendored sources). The former works without the
/// workspace's other packages.
fn sources() -> Option<PathBuf> {
    unpacked().or_else(described)
}

fn unpacked() -> Option<PathBuf> {
    let lock = fs::read_to_string(
        Path::new(&std::env::var_os("CARGO_MANIFEST_DIR")?).join("../../../Cargo.lock"),
    )
    .ok()?;
    let (_, rest) = lock.split_once("name = \"k8s-openapi\"")?;
    let folder = format!("k8s-openapi-{}/src/v1_36", rest.split('"').nth(1)?);
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))?;
    let registries = fs::read_dir(home.join("registry/src")).ok()?;
    registries
        .flatten()
        .map(|registry| registry.path().join(&folder))
        .find(|path| path.is_dir())
}

fn described() -> Option<PathBuf> {
    let manifest = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?).join("Cargo.toml");
    let cargo = std::env::var_os("CARGO")?;
    let output = Command::new(cargo)
        // A build script must not depend on the network.
        .args(["metadata", "--format-version=1", "--offline"])
        .arg("--manifest-path")
        .arg(manifest)
        .output()
        .ok()?;
    let metadata: Value = serde_json::from_slice(&output.stdout).ok()?;
    let package = metadata["packages"]
        .as_array()?
        .iter()
        .find(|package| package["name"] == "k8s-openapi")?;
    let manifest = Path::new(package["manifest_path"].as_str()?);
    let folder = manifest.parent()?.join("src/v1_36");
    folder.is_dir().then_some(folder)
}

fn collect(folder: &Path, lines: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, lines);
        } else if let Ok(text) = fs::read_to_string(&path) {
            read_schema(&text, lines);
        }
    }
}

/// Parses the literal in `json_schema`, which is generated code with one member per line, indented
/// by depth. A line of the result is `TYPE<tab>TEXT` or `TYPE.FIELD<tab>TEXT`, with escapes
/// unchanged.
fn read_schema(text: &str, lines: &mut Vec<String>) {
    let Some((_, text)) = text.split_once("fn schema_name()") else {
        return;
    };
    let Some(name) = text.split('"').nth(1) else {
        return;
    };
    let mut field = String::new();
    for line in text.lines() {
        let body = line.trim_start();
        let depth = (line.len() - body.len()) / 4;
        let key = body
            .strip_prefix('"')
            .and_then(|rest| rest.split_once("\": "));
        match (depth, key) {
            (3, Some(("description", value))) => lines.push(format!("{name}\t{}", literal(value))),
            (4, Some((key, _))) => key.clone_into(&mut field),
            (5, Some(("description", value))) => {
                lines.push(format!("{name}.{field}\t{}", literal(value)))
            }
            // A field with a reference gets its description from a call that is generated around
            // it.
            (5, None) => {
                if let Some((_, value)) = body.split_once("insert(\"description\".into(), ") {
                    lines.push(format!("{name}.{field}\t{}", literal(value)));
                }
            }
            _ => {}
        }
    }
}

/// Returns the text between the first and the last quote.
fn literal(value: &str) -> &str {
    let start = value.find('"').map_or(0, |at| at + 1);
    let end = value.rfind('"').unwrap_or(value.len());
    value.get(start..end).unwrap_or_default()
}
