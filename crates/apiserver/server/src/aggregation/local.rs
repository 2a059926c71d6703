//! Keeps one APIService for each group version that this server has.

use super::status::write_condition;
use super::{API_SERVICES, GROUP};
use crate::bootstrap_steps::Step;
use crate::server::Server;
use api_kinds::Resource;
use api_meta::tree::{get, has};
use api_meta::{ApiError, Meta, Reason};
use apiserver_aggregator::{Action, Condition, desired_services, plan_sync};
use apiserver_registry::{DeleteOptions, Mode, Update, Write};
use apiserver_request::{GroupResource, Objects};
use base_task::CancellationToken;
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Delay after a change, because changes come in groups, and after a failure.
const SETTLE: Duration = Duration::from_millis(200);
/// Concurrent writes.
const WRITES: usize = 8;

/// Keeps the local APIServices until `stop`.
pub async fn maintain_local(server: Arc<Server>, stop: CancellationToken) {
    // A cache that is still filling would make existing objects look missing.
    server.caches.wait_ready().await;
    let mut at_start = true;
    let work = async {
        loop {
            match sync_services(&server, at_start).await {
                Ok(()) => {
                    at_start = false;
                    server.bootstrapped.mark_done(Step::ApiServices);
                    server.aggregation.index.local_changed.notified().await;
                }
                Err(error) => tracing::debug!(%error, "APIServices can't be written; retrying"),
            }
            tokio::time::sleep(SETTLE).await;
        }
    };
    stop.run_until_cancelled(work).await;
}

async fn sync_services(server: &Server, at_start: bool) -> Result<(), ApiError> {
    let resource = api_kinds::find(GROUP, "v1", API_SERVICES).ok_or_else(ApiError::no_such_path)?;
    let definitions = server.aggregation.index.served_versions();
    let served = server.caches.served();
    let groups = served.resources().built_in_groups().iter();
    let built_in = groups.flat_map(|group| {
        group
            .versions
            .iter()
            .map(|version| (&*group.name, &**version))
    });
    let desired = desired_services(built_in, definitions.iter());
    let current: BTreeMap<String, Arc<Value>> = server
        .caches
        .cached_list(&GroupResource::new(GROUP, API_SERVICES), None)
        .into_iter()
        .map(|object| (object.name().to_owned(), object))
        .collect();
    let names: BTreeSet<&String> = desired.keys().chain(current.keys()).collect();
    let each = names.into_iter().map(|name| {
        let (desired, current) = (desired.get(name), current.get(name).map(|o| &**o));
        sync_service(server, resource, desired, current, at_start)
    });
    // Collected: the borrow of a lazy iterator would not live across the awaits.
    let each: Vec<_> = each.collect();
    stream::iter(each)
        .buffer_unordered(WRITES)
        .try_collect::<()>()
        .await
}

async fn sync_service(
    server: &Server,
    resource: &Arc<Resource>,
    desired: Option<&Value>,
    current: Option<&Value>,
    at_start: bool,
) -> Result<(), ApiError> {
    let Some(name) = desired.or(current).map(|object| object.name()) else {
        return Ok(());
    };
    let done = match plan_sync(desired, current, at_start) {
        Action::None => Ok(()),
        Action::Create => create_service(server, resource, desired).await,
        Action::Update => update_spec(server, resource, name, desired).await,
        Action::Delete => {
            let mut write = Write::internal(resource, "", name);
            let options = DeleteOptions {
                // Not an object that an operator has created in its place.
                uid: current.map(|object| object.uid().to_owned()),
                ..DeleteOptions::default()
            };
            return ignore_conflict(
                server
                    .registry
                    .delete(&mut write, &options)
                    .await
                    .map(|_| ()),
            );
        }
    };
    ignore_conflict(done)?;
    let is_local = |object: &Value| !has(get(object, "spec"), "service");
    let condition = Condition::local();
    // Without an object, the one that was created above.
    let wanted = match current {
        Some(current) => is_local(current) && !condition.is_set(current),
        None => at_start || desired.is_some(),
    };
    if wanted {
        write_condition(server, name, &condition).await?;
    }
    Ok(())
}

/// Another server keeps the same objects; a change of them leads to another round.
fn ignore_conflict(done: Result<(), ApiError>) -> Result<(), ApiError> {
    match done {
        Err(e)
            if matches!(
                e.reason,
                Reason::AlreadyExists | Reason::NotFound | Reason::Conflict
            ) =>
        {
            Ok(())
        }
        Err(error) if error.reason == Reason::Invalid => {
            // A retry would fail again.
            tracing::error!(%error, "failed to write an APIService");
            Ok(())
        }
        other => other,
    }
}

async fn create_service(
    server: &Server,
    resource: &Arc<Resource>,
    desired: Option<&Value>,
) -> Result<(), ApiError> {
    let object = desired.cloned().unwrap_or_default();
    let mut write = Write::internal(resource, "", "");
    server.registry.create(&mut write, object).await.map(|_| ())
}

async fn update_spec(
    server: &Server,
    resource: &Arc<Resource>,
    name: &str,
    desired: Option<&Value>,
) -> Result<(), ApiError> {
    let change = |old: &Value| {
        let mut new = old.clone();
        if let Some(desired) = desired {
            new["spec"] = get(desired, "spec").clone();
        }
        Ok(new)
    };
    let update = Update {
        change: &change,
        replaces: false,
        mode: Mode::Raw,
    };
    let mut write = Write::internal(resource, "", name);
    server
        .registry
        .update(&mut write, &update)
        .await
        .map(|_| ())
}
