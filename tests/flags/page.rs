//! Renders the page `docs/flags.md`.

use crate::{COMPONENTS, Component, Settings, field_standing, flag_standing};

const GATES: &str = "
## Feature gates without a feature

These gates are on by default in Kubernetes v1.36, and no component implements their feature. The metric
`kubernetes_feature_enabled` of `kube-apiserver` shows them as 0. A server that is started with `GATE=true` logs a warning. A gate
that is not locked may be set to false. Gates of the inner workings of Go programs (client-go, logging, indexes of caches) are
not in the list. Fields of such a feature are accepted and stored, unless its gate is false.

| gate | consequence |
|---|---|
";

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
    page.push_str(GATES);
    for (gate, consequence) in apiserver_server::UNIMPLEMENTED_GATES {
        page.push_str(&format!("| `{gate}` | {} |\n", escape(consequence)));
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
