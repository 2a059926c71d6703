//! Storage versions and their migrations.

use serde_json::{Value, json};

use crate::printer::{AGE, Column, NAME, Printer, text_column};
use crate::view::{View, text_of};

/// Servers that are shown.
const SHOWN: usize = 3;

pub(crate) static STORAGE_VERSION: Printer = Printer {
    columns: &[
        NAME,
        text_column(
            "CommonEncodingVersion",
            "Version in which all servers write.",
        ),
        text_column("StorageVersions", "Version in which each server writes."),
        AGE,
    ],
    cells: |view| {
        let common = view.text_or("/status/commonEncodingVersion", "<unset>");
        vec![
            view.name(),
            json!(common),
            json!(format_servers(view)),
            view.age(),
        ]
    },
};

fn format_servers(view: &View<'_>) -> String {
    let servers = view.list("/status/storageVersions");
    let describe = |server: &Value| {
        let [id, version] =
            ["apiServerID", "encodingVersion"].map(|name| text_of(server.get(name)));
        format!("{id}={version}")
    };
    let shown: Vec<String> = servers.iter().take(SHOWN).map(describe).collect();
    match servers.len() {
        0 => "<unset>".to_owned(),
        count if count > SHOWN => format!("{} + {} more...", shown.join(","), count - SHOWN),
        _ => shown.join(","),
    }
}

pub(crate) static MIGRATION: Printer = Printer {
    columns: &[
        // As upstream: here the column lacks the format "name".
        Column { format: "", ..NAME },
        text_column("Resource", "Resource that is migrated."),
        text_column("Status", "Progress of the migration."),
    ],
    cells: |view| {
        let [group, plural] =
            ["group", "resource"].map(|name| view.text(&format!("/spec/resource/{name}")));
        let resource = match group {
            "" => plural.to_owned(),
            group => format!("{plural}.{group}"),
        };
        vec![
            view.name(),
            json!(resource),
            json!(find_migration_state(view)),
        ]
    },
};

/// Returns the last condition that is true.
fn find_migration_state<'a>(view: &View<'a>) -> &'a str {
    let conditions = view.list("/status/conditions").iter();
    let holds = conditions.filter(|condition| text_of(condition.get("status")) == "True");
    holds
        .map(|condition| text_of(condition.get("type")))
        .rfind(|kind| ["Running", "Failed", "Succeeded"].contains(kind))
        .unwrap_or("Unknown")
}
