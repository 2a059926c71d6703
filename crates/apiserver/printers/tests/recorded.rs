//! Column names, types and priorities equal those recorded from a v1.36 server.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::path::PathBuf;

use serde_json::{Value, json};

#[test]
fn columns_equal_the_recorded_ones() {
    let shared = std::env::var_os("IRONCLAD_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../../shared"),
        PathBuf::from,
    );
    let Ok(text) = std::fs::read_to_string(shared.join("accept/api_checks/data/columns.json"))
    else {
        println!("skipped: no recorded columns (set IRONCLAD_SHARED)");
        return;
    };
    let recorded: Value = serde_json::from_str(&text).unwrap();
    for (name, want) in recorded.as_object().unwrap() {
        let name = name.strip_suffix(".v2").unwrap_or(name);
        let resource = api_kinds::served()
            .find(|resource| resource.group_resource() == name)
            .unwrap();
        let got: Vec<Value> = apiserver_printers::table_columns(resource)
            .into_iter()
            .map(|column| json!([column.name, column.ty, column.format, column.priority]))
            .collect();
        assert_eq!(Value::Array(got), want["columns"], "{name}");
    }
}
