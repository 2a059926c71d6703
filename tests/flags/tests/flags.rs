//! Checks that every setting of upstream is in a table, that the tables list only settings of
//! upstream, and that the page is up to date.

use clap::Command;
use flags_tests::{COMPONENTS, Component, Standing, field_standing, flag_standing, render_page};
use std::path::Path;

const PLACEHOLDER: &str = "it is not implemented";

#[test]
fn upstream_flag_is_honoured_or_named_with_a_reason() {
    let unknown = collect(|component| {
        let command: Command = (component.command)();
        let flags = component.upstream_flags.lines();
        flags
            .filter(|flag| flag_standing(component, &command, flag) == Standing::Unknown)
            .map(|flag| format!("--{flag}"))
            .collect()
    });
    assert!(
        unknown.is_empty(),
        "flags that no table names: {unknown:#?}"
    );
}

#[test]
fn upstream_field_is_honoured_or_named_with_a_reason() {
    let unknown = collect(|component| {
        let Some(settings) = &component.file else {
            return Vec::new();
        };
        let honoured = (settings.honoured)();
        let fields = settings.upstream_fields.lines();
        fields
            .filter(|field| field_standing(settings, &honoured, field) == Standing::Unknown)
            .map(str::to_owned)
            .collect()
    });
    assert!(
        unknown.is_empty(),
        "fields that no table names: {unknown:#?}"
    );
}

#[test]
fn unsupported_setting_states_a_reason() {
    let empty = collect(|component| {
        let fields = component
            .file
            .as_ref()
            .map_or(&[][..], |settings| settings.unsupported);
        let rows = component.unsupported_flags.iter().chain(fields);
        rows.filter(|row| row.reason.trim().is_empty() || row.reason == PLACEHOLDER)
            .map(|row| row.name.to_owned())
            .collect()
    });
    assert!(empty.is_empty(), "settings without a reason: {empty:#?}");
}

#[test]
fn flag_is_not_both_implemented_and_unsupported() {
    let both = collect(|component| {
        let command = (component.command)();
        let implemented = |name: &str| {
            command
                .get_arguments()
                .any(|argument| argument.get_long() == Some(name))
        };
        component
            .unsupported_flags
            .iter()
            .map(|row| row.name)
            .filter(|name| implemented(name))
            .map(str::to_owned)
            .collect()
    });
    assert!(both.is_empty(), "flags in both tables: {both:#?}");
}

#[test]
fn page_lists_the_current_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/flags.md");
    let page = render_page();
    if std::env::var_os("UPDATE_FLAGS_PAGE").is_some() {
        assert!(
            std::fs::write(&path, &page).is_ok(),
            "docs/flags.md can't be written"
        );
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/flags.md is out of date: UPDATE_FLAGS_PAGE=1 cargo test -p flags-tests"
    );
}

fn collect(find: impl Fn(&Component) -> Vec<String>) -> Vec<String> {
    COMPONENTS
        .iter()
        .flat_map(|component| {
            find(component)
                .into_iter()
                .map(|name| format!("{}: {name}", component.name))
        })
        .collect()
}
