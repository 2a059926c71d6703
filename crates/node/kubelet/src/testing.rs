//! A node with neither a runtime nor an API server, for tests of what the kubelet decides and does
//! by itself.
#![allow(clippy::unwrap_used)]

use crate::config::{Flags, Settings};
use crate::context::KubeletContext;
use base_task::{CancellationToken, Tasks};
use clap::Parser;
use k8s_openapi::api::core::v1::Pod;
use node_runtime::Runtime;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// Returns the settings of a simulated node whose files are beneath `root`.
pub(crate) fn settings(root: &Path) -> Settings {
    let root = format!("--root-dir={}", root.display());
    let words = [
        "kubelet",
        "--simulated",
        "--hostname-override=n1",
        "--node-ip=192.0.2.1",
        &root,
    ];
    crate::config::read_settings(&Flags::try_parse_from(words).unwrap()).unwrap()
}

/// Returns a context with these settings; calls of its runtime fail.
pub(crate) fn context(settings: Settings) -> Arc<KubeletContext> {
    let socket = settings.root_dir.join("no.sock");
    context_on(settings, &format!("unix://{}", socket.display()))
}

/// Returns a context with the runtime at this endpoint.
pub(crate) fn context_on(settings: Settings, endpoint: &str) -> Arc<KubeletContext> {
    crate::run::new_context(
        settings,
        Runtime::new(endpoint).unwrap(),
        &Default::default(),
        None,
        &Tasks::new(CancellationToken::new()),
    )
    .unwrap()
}

/// Returns the pod `ns/a` with the uid `u`.
pub(crate) fn pod(spec: Value) -> Arc<Pod> {
    let metadata = json!({"name": "a", "namespace": "ns", "uid": "u"});
    Arc::new(serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap())
}
