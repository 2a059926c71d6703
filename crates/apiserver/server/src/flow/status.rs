//! Writes into each FlowSchema's status whether its priority level exists.

use super::{FlowControl, GROUP, LEVELS, SCHEMAS};
use crate::server::Server;
use api_meta::{Meta, time};
use apiserver_registry::{Mode, Update, Write};
use apiserver_request::{GroupResource, Objects};
use base_task::CancellationToken;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Delay after a change, because changes come in groups.
const SETTLE: Duration = Duration::from_millis(200);

/// Checks all schemas after each change of schemas and levels, until `stop`.
pub async fn maintain_status(server: Arc<Server>, stop: CancellationToken) {
    // A cache that is still filling would make existing levels look missing.
    server.caches.wait_ready().await;
    while stop
        .run_until_cancelled(server.flow.changed.notified())
        .await
        .is_some()
    {
        tokio::time::sleep(SETTLE).await;
        for schema in server
            .caches
            .cached_list(&GroupResource::new(GROUP, SCHEMAS), None)
        {
            let level = schema
                .pointer("/spec/priorityLevelConfiguration/name")
                .and_then(Value::as_str);
            let level = level.unwrap_or_default();
            let found = server
                .caches
                .cached_object(&GroupResource::new(GROUP, LEVELS), "", level)
                .is_some();
            // Written on change only: several servers maintain the same condition.
            if dangling_condition(&schema) != Some(!found) {
                write_condition(
                    &server,
                    &server.flow,
                    schema.name(),
                    &dangling_status(level, found),
                )
                .await;
            }
        }
    }
}

/// Returns the status of the condition `Dangling`.
fn dangling_condition(schema: &Value) -> Option<bool> {
    let conditions = schema.pointer("/status/conditions")?.as_array()?;
    let dangling = conditions
        .iter()
        .find(|c| c.get("type").and_then(Value::as_str) == Some("Dangling"))?;
    Some(dangling.get("status").and_then(Value::as_str) == Some("True"))
}

fn dangling_status(level: &str, found: bool) -> Value {
    let (status, reason, what) = match found {
        true => ("False", "Found", "it exists"),
        false => ("True", "NotFound", "there is no such object"),
    };
    let message = format!(
        "This FlowSchema references the PriorityLevelConfiguration object named {level:?} and {what}"
    );
    json!({"type": "Dangling", "status": status, "reason": reason, "lastTransitionTime": time::now(), "message": message})
}

async fn write_condition(server: &Server, flow: &FlowControl, name: &str, condition: &Value) {
    let Some(resource) = api_kinds::find(GROUP, "v1", SCHEMAS) else {
        return;
    };
    // Other servers write the same status: only the condition of this type is replaced.
    let change = |old: &Value| {
        let mut new = old.clone();
        let others = old
            .pointer("/status/conditions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let mut all: Vec<Value> = others
            .filter(|c| c.get("type") != condition.get("type"))
            .cloned()
            .collect();
        all.push(condition.clone());
        new["status"] = json!({"conditions": all});
        Ok(new)
    };
    let mut write = Write::internal(resource, "", name);
    let update = Update {
        change: &change,
        replaces: false,
        // The status of a schema is the server's own: the checks of clients' writes do not apply.
        mode: Mode::Raw,
    };
    match server.registry.update(&mut write, &update).await {
        // A schema that was deleted meanwhile needs no status.
        Err(error) if error.reason != api_meta::Reason::NotFound => {
            tracing::warn!(%error, name, "the status of a flow schema can't be written; trying again");
            // Another round repeats it after the delay.
            flow.changed.notify_one();
        }
        _ => {}
    }
}
