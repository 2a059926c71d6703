//! Compares paths and schemas with those recorded from a v1.36 server, as far as clients rely on
//! them.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::path::PathBuf;

use serde_json::Value;

fn golden(name: &str) -> Option<Value> {
    let shared = std::env::var_os("IRONCLAD_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../../shared"),
        PathBuf::from,
    );
    let text = std::fs::read_to_string(shared.join("golden/openapi").join(name)).ok()?;
    serde_json::from_str(&text).ok()
}

const MARKERS: [&str; 8] = [
    "type",
    "format",
    "default",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-patch-strategy",
    "x-kubernetes-map-type",
];

#[test]
fn version_3_equals_the_recorded_documents() {
    let custom = api_openapi::CustomResources::default();
    let mut problems = Vec::new();
    for path in api_openapi::v3::index_paths(&custom).keys() {
        let name = format!("v3/{}_openapi.json", path.replace('/', "__"));
        let Some(want) = golden(&name) else {
            println!("skipped: no recorded {name} (set IRONCLAD_SHARED)");
            continue;
        };
        let got = api_openapi::v3::document(path, &custom).unwrap();
        compare_paths(path, &want["paths"], &got["paths"], &mut problems);
        compare_schemas(
            path,
            &want["components"]["schemas"],
            &got["components"]["schemas"],
            &mut problems,
        );
    }
    let count = problems.len();
    problems.truncate(60);
    assert!(
        problems.is_empty(),
        "{count} differences:\n{}",
        problems.join("\n")
    );
}

fn compare_paths(document: &str, want: &Value, got: &Value, problems: &mut Vec<String>) {
    for (path, item) in want.as_object().unwrap() {
        for (method, operation) in item
            .as_object()
            .unwrap()
            .iter()
            .filter(|(_, operation)| operation.is_object())
        {
            for member in [
                "operationId",
                "x-kubernetes-action",
                "x-kubernetes-group-version-kind",
            ] {
                if got[path][method][member] != operation[member] {
                    let got = &got[path][method][member];
                    problems.push(format!(
                        "{document} {path} {method} {member}: {got} for {}",
                        operation[member]
                    ));
                }
            }
        }
    }
}

fn compare_schemas(document: &str, want: &Value, got: &Value, problems: &mut Vec<String>) {
    for (name, schema) in want.as_object().unwrap() {
        let Some(found) = got.get(name) else {
            problems.push(format!("{document} {name} is missing"));
            continue;
        };
        let names = |schema: &Value| {
            schema["properties"]
                .as_object()
                .map(|map| map.keys().cloned().collect::<Vec<_>>())
        };
        if names(found) != names(schema) {
            problems.push(format!(
                "{document} {name} properties: {:?} for {:?}",
                names(found),
                names(schema)
            ));
        }
        let required = |schema: &Value| {
            let mut list = schema["required"].as_array().cloned().unwrap_or_default();
            list.sort_by_key(ToString::to_string);
            list
        };
        if required(found) != required(schema) {
            problems.push(format!(
                "{document} {name} required: {:?} for {:?}",
                required(found),
                required(schema)
            ));
        }
        for (property, detail) in schema["properties"].as_object().into_iter().flatten() {
            for marker in MARKERS {
                if found["properties"][property][marker] != detail[marker] {
                    let got = &found["properties"][property][marker];
                    problems.push(format!(
                        "{document} {name}.{property} {marker}: {got} for {}",
                        detail[marker]
                    ));
                }
            }
        }
    }
}

#[test]
fn version_2_has_every_definition() {
    let Some(want) = golden("swagger.json") else {
        println!("skipped: no recorded swagger.json (set IRONCLAD_SHARED)");
        return;
    };
    let got = api_openapi::v2::document(&api_openapi::CustomResources::default());
    let is_stable = |name: &&String| {
        name.starts_with("io.k8s.api.") && !name.contains("alpha") && !name.contains("beta")
    };
    for name in want["definitions"]
        .as_object()
        .unwrap()
        .keys()
        .filter(is_stable)
    {
        let names = |document: &Value| {
            document["definitions"][name]["properties"]
                .as_object()
                .map(|map| map.keys().cloned().collect::<Vec<_>>())
        };
        assert_eq!(names(&got), names(&want), "{name}");
    }
    println!("{} bytes", got.to_string().len());
}
