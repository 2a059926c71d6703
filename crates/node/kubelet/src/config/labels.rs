//! Labels with which the kubelet registers its node.

use std::collections::BTreeMap;

use anyhow::Context;
use api_meta::names;
use api_semantics::nodes::{OWN_DOMAINS, OWN_LABELS, may_set_label};

use super::flags::{Flags, parse_pairs};

/// Reads `--node-labels`.
///
/// # Errors
/// Labels that the API server would reject: the kubelet would try to register for ever.
pub(super) fn read_labels(flags: &Flags) -> anyhow::Result<BTreeMap<String, String>> {
    let words = flags.node_labels.as_deref().unwrap_or_default();
    let labels = parse_pairs(words).context("--node-labels")?;
    let unknown: Vec<&str> = labels
        .keys()
        .map(String::as_str)
        .filter(|key| !may_set_label(key))
        .collect();
    if !unknown.is_empty() {
        anyhow::bail!(
            "unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [{}]\n--node-labels in the \
             'kubernetes.io' namespace must begin with an allowed prefix ({}) or be in the specifically allowed set ({})",
            unknown.join(" "),
            OWN_DOMAINS.join(", "),
            OWN_LABELS.join(", ")
        );
    }
    let defects: Vec<String> = labels
        .iter()
        .flat_map(|(key, value)| {
            [
                (key, names::qualified_name(key)),
                (value, names::label_value(value)),
            ]
        })
        .filter(|(_, defects)| !defects.is_empty())
        .map(|(text, defects)| format!("'{text}' - {}", defects.join(", ")))
        .collect();
    if !defects.is_empty() {
        anyhow::bail!("invalid node labels: {}", defects.join("; "));
    }
    Ok(labels)
}
