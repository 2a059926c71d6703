//! Facts about its pod that the rules of a container need.

use super::options::PodOptions;
use super::volume::Volumes;
use crate::field::Path;
use api_meta::tree::{get, int, list, opt_text, text};
use serde_json::Value;
use std::collections::BTreeSet;

/// The lists of a pod's containers, in the order in which upstream visits them.
pub(crate) const CONTAINER_LISTS: [&str; 3] =
    ["initContainers", "containers", "ephemeralContainers"];

/// The pod of a container.
pub(crate) struct PodContext<'a> {
    pub volumes: Volumes<'a>,
    pub claims: BTreeSet<&'a str>,
    pub grace_period: Option<i64>,
    pub restart_policy: &'a str,
    pub system: Option<&'a str>,
    pub has_host_users: bool,
    pub options: &'a PodOptions,
}

impl<'a> PodContext<'a> {
    pub fn new(spec: &'a Value, volumes: Volumes<'a>, options: &'a PodOptions) -> Self {
        PodContext {
            volumes,
            claims: list(spec, "resourceClaims")
                .iter()
                .map(|claim| text(claim, "name"))
                .filter(|name| !name.is_empty())
                .collect(),
            grace_period: int(spec, "terminationGracePeriodSeconds"),
            restart_policy: text(spec, "restartPolicy"),
            system: opt_text(get(spec, "os"), "name"),
            has_host_users: uses_host_users(spec),
            options,
        }
    }
}

/// Returns whether a pod has no user namespace of its own.
pub(crate) fn uses_host_users(spec: &Value) -> bool {
    get(spec, "hostUsers") != &Value::Bool(false)
}

/// Returns whether an init container runs beside the others (KEP-753).
pub(crate) fn is_sidecar(container: &Value) -> bool {
    text(container, "restartPolicy") == "Always"
}

/// Calls `visit` with each container of all kinds.
pub(crate) fn visit_containers(
    spec: &Value,
    path: &Path<'_>,
    visit: &mut dyn FnMut(&Value, &Path<'_>),
) {
    for field in CONTAINER_LISTS {
        let at = path.child(field);
        for (i, container) in list(spec, field).iter().enumerate() {
            visit(container, &at.index(i));
        }
    }
}
