//! Writes the condition `Available`.

use super::{API_SERVICES, GROUP};
use crate::server::Server;
use api_meta::ApiError;
use apiserver_aggregator::{Condition, set_condition};
use apiserver_registry::{Mode, Update, Write};
use serde_json::Value;

/// Writes the condition `Available` unless the object has it.
pub async fn write_condition(
    server: &Server,
    name: &str,
    condition: &Condition,
) -> Result<(), ApiError> {
    let Some(resource) = api_kinds::find(GROUP, "v1", API_SERVICES) else {
        return Ok(());
    };
    let change = |old: &Value| {
        Ok(if condition.is_set(old) {
            old.clone()
        } else {
            set_condition(old, condition)
        })
    };
    let mut write = Write::internal(resource, "", name);
    let update = Update {
        change: &change,
        replaces: false,
        mode: Mode::Raw,
    };
    match server.registry.update(&mut write, &update).await {
        // Deleted meanwhile.
        Err(error) if error.reason == api_meta::Reason::NotFound => Ok(()),
        other => other.map(|_| ()),
    }
}
