//! Converts every recorded object to each of its other encodings, byte for byte.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    missing_docs
)]

use std::path::PathBuf;

use api_codec::transcode::{TypeMeta, write_json};
use api_codec::{Strictness, cbor, envelope, json, proto, yaml};
use api_schema::{Message, schema};
use serde_json::Value;

fn folder() -> Option<PathBuf> {
    let shared = std::env::var_os("IRONCLAD_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../../shared"),
        PathBuf::from,
    );
    let folder = shared.join("golden/objects");
    folder.is_dir().then_some(folder)
}

/// Removes white space between tokens of JSON text.
fn compact(text: &str) -> String {
    let (mut out, mut inside, mut escaped) = (String::new(), false, false);
    for c in text.chars() {
        if inside || !c.is_whitespace() {
            out.push(c);
        }
        inside = if c == '"' && !escaped {
            !inside
        } else {
            inside
        };
        escaped = inside && c == '\\' && !escaped;
    }
    out
}

/// Returns the message of a file such as `apps.v1.Deployment`.
fn message(stem: &str) -> Option<&'static Message> {
    let (rest, kind) = stem.rsplit_once('.')?;
    let (group, version) = rest.rsplit_once('.')?;
    let package = match group {
        "internal.apiserver.k8s.io" => "apiserverinternal",
        group => group.split('.').next().unwrap_or_default(),
    };
    let names = [
        format!("k8s.io.api.{package}.{version}.{kind}"),
        format!("k8s.io.apiextensions_apiserver.pkg.apis.{package}.{version}.{kind}"),
        format!("k8s.io.kube_aggregator.pkg.apis.{package}.{version}.{kind}"),
        format!("k8s.io.apimachinery.pkg.apis.meta.{version}.{kind}"),
    ];
    names.iter().find_map(|name| schema().message(name))
}

#[test]
fn golden_objects_round_trip() {
    let Some(folder) = folder() else {
        println!("skipped: no golden objects (set IRONCLAD_SHARED)");
        return;
    };
    let (mut count, mut failures) = (0, Vec::new());
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            count += 1;
            if let Err(text) = round_trip(&path) {
                failures.push(format!(
                    "{}: {text}",
                    path.file_stem().unwrap().to_string_lossy()
                ));
            }
        }
    }
    failures.sort();
    assert!(
        failures.is_empty(),
        "{} of {count} fail:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(count >= 189, "only {count} objects");
}

fn round_trip(path: &std::path::Path) -> Result<(), String> {
    let text = std::fs::read_to_string(path).unwrap();
    let recorded_json = compact(&text);
    let recorded_proto = std::fs::read(path.with_extension("pb")).unwrap();
    let message = message(&path.file_stem().unwrap().to_string_lossy()).ok_or("no schema")?;

    let (tree, problems) = json::decode(message, text.as_bytes(), Strictness::Strict)
        .map_err(|error| error.to_string())?;
    if !problems.is_empty() {
        return Err(format!("{problems:?}"));
    }
    same_text(
        "JSON from JSON",
        &String::from_utf8(json::encode(message, &tree)).unwrap(),
        &recorded_json,
    )?;
    same_bytes(
        "protobuf from JSON",
        &proto::encode_object(message, &tree),
        &recorded_proto,
    )?;
    let from_proto =
        proto::decode_object(message, &recorded_proto).map_err(|error| error.to_string())?;
    same_text(
        "JSON from protobuf",
        &String::from_utf8(json::encode(message, &from_proto)).unwrap(),
        &recorded_json,
    )?;
    same_tree("protobuf", &from_proto, &tree)?;
    same_text(
        "JSON written from protobuf",
        &transcode(message, &recorded_proto)?,
        &recorded_json,
    )?;
    let yaml_text = std::fs::read(path.with_extension("yaml")).unwrap();
    let (from_yaml, problems) =
        yaml::decode(message, &yaml_text, Strictness::Strict).map_err(|error| error.to_string())?;
    if !problems.is_empty() {
        return Err(format!("{problems:?}"));
    }
    same_tree("YAML", &from_yaml, &tree)?;
    let (from_cbor, problems) = cbor::decode(
        message,
        &cbor::mark(&cbor::encode(message, &tree)),
        Strictness::Strict,
    )
    .map_err(|error| error.to_string())?;
    if !problems.is_empty() {
        return Err(format!("{problems:?}"));
    }
    same_tree("CBOR", &from_cbor, &tree)?;
    let (again, _) =
        yaml::parse(yaml::encode(&tree).as_bytes()).map_err(|error| error.to_string())?;
    same_tree("YAML written", &again, &tree)
}

fn transcode(message: &'static Message, object: &[u8]) -> Result<String, String> {
    let frame = envelope::unwrap(object).map_err(|error| error.to_string())?;
    let type_meta = TypeMeta {
        kind: frame.kind,
        api_version: frame.api_version,
    };
    let mut out = Vec::new();
    write_json(message, frame.raw, type_meta, &mut out).map_err(|error| error.to_string())?;
    String::from_utf8(out).map_err(|error| error.to_string())
}

fn same_tree(what: &str, got: &Value, want: &Value) -> Result<(), String> {
    if got == want {
        Ok(())
    } else {
        same_text(what, &got.to_string(), &want.to_string())
    }
}

fn same_text(what: &str, got: &str, want: &str) -> Result<(), String> {
    same_bytes(what, got.as_bytes(), want.as_bytes())
}

fn same_bytes(what: &str, got: &[u8], want: &[u8]) -> Result<(), String> {
    if got == want {
        return Ok(());
    }
    let at = got
        .iter()
        .zip(want)
        .position(|(a, b)| a != b)
        .unwrap_or(got.len().min(want.len()));
    let around = |bytes: &[u8]| {
        String::from_utf8_lossy(&bytes[at.saturating_sub(40)..bytes.len().min(at + 60)])
            .escape_debug()
            .to_string()
    };
    Err(format!(
        "{what} differs at {at}: {} / {}",
        around(got),
        around(want)
    ))
}
