//! Renders the page `docs/flags.md`.

use crate::{COMPONENTS, Component, Settings, field_standing, flag_standing};

const HEAD: &str = "# Flags and configuration fields

Every flag and configuration field of the stock components, and what the product does with it. Nothing is ignored in
silence:

- *honoured*: it does what upstream's documentation says;
- *accepted without effect*: the component starts and logs a warning with the reason;
- *refused*: the component does not start, unless the value asks for what it does anyway.

The test `tests/flags` writes this page from the tables in the binaries and fails if one of upstream's settings is in
no table: `UPDATE_FLAGS_PAGE=1 cargo test -p flags-tests` writes it again.
";

/// Returns the whole page.
pub fn render_page() -> String {
    let mut page = HEAD.to_owned();
    for component in COMPONENTS {
        page.push_str(&render_component(component));
    }
    page
}

fn render_component(component: &Component) -> String {
    let command = (component.command)();
    let mut text = format!(
        "\n## {}\n\nCompared with {}.\n\n| flag | |\n|---|---|\n",
        component.name, component.upstream
    );
    for flag in component.upstream_flags.lines() {
        let standing = flag_standing(component, &command, flag).describe();
        text.push_str(&format!("| `--{flag}` | {} |\n", escape(&standing)));
    }
    let own: Vec<String> = command
        .get_arguments()
        .filter(|argument| !argument.is_hide_set())
        .filter_map(|argument| argument.get_long())
        .filter(|long| !component.upstream_flags.lines().any(|flag| flag == *long))
        .map(|long| format!("`--{long}`"))
        .collect();
    if !own.is_empty() {
        text.push_str(&format!(
            "\nFlags that the stock component does not have: {}.\n",
            own.join(", ")
        ));
    }
    if let Some(settings) = &component.file {
        text.push_str(&render_fields(settings));
    }
    text
}

fn render_fields(settings: &Settings) -> String {
    let honoured = (settings.honoured)();
    let mut text = format!("\n### {}\n\n| field | |\n|---|---|\n", settings.kind);
    for field in settings.upstream_fields.lines() {
        let standing = field_standing(settings, &honoured, field).describe();
        text.push_str(&format!("| `{field}` | {} |\n", escape(&standing)));
    }
    text
}

fn escape(cell: &str) -> String {
    cell.replace('|', "\\|")
}
