//! Records the uses of tokens in Secrets: the day of the last use in a label of each, and the day
//! since which this is done in a ConfigMap.
//!
//! The controller that deletes unused tokens reads both. Several servers write the same labels: a
//! write that finds the label of today changes nothing.

use super::{create_object, find_object, find_resource};
use crate::server::Server;
use api_meta::{ApiError, Meta, Reason};
use apiserver_authn::{AccountTokens, LAST_USED, UsedSecret, is_recorded, to_day};
use apiserver_registry::{Mode, Update, Write};
use jiff::Timestamp;
use jiff::civil::Date;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "kube-apiserver-legacy-service-account-token-tracking";
const SINCE: &str = "since";
/// Interval between checks of the ConfigMap.
const INTERVAL: Duration = Duration::from_secs(60);
/// Time between two creations, as upstream: servers of an older release delete the ConfigMap.
const CREATION_INTERVAL: Duration = Duration::from_secs(30 * 60);

/// Keeps the ConfigMap with the first day of tracking until the server stops.
pub async fn maintain_tracking_start(server: Arc<Server>) {
    let mut created: Option<Instant> = None;
    loop {
        let may_create = created.is_none_or(|at| at.elapsed() >= CREATION_INTERVAL);
        match ensure_tracking_start(&server, may_create).await {
            Ok(Outcome::Created) => created = Some(Instant::now()),
            Ok(Outcome::Kept) => {}
            Err(error) => tracing::warn!(
                %error, configmap = NAME, retry_after = ?INTERVAL,
                "failed to record the start of token tracking, retrying"
            ),
        }
        let pause = tokio::time::sleep(INTERVAL);
        if server.stopping.run_until_cancelled(pause).await.is_none() {
            return;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The ConfigMap did not exist.
    Created,
    /// It existed, or must not be created yet.
    Kept,
}

/// Creates the ConfigMap, or mends a date that can't be read.
///
/// # Errors
/// The store can't be reached.
pub async fn ensure_tracking_start(server: &Server, may_create: bool) -> Result<Outcome, ApiError> {
    let resource = find_resource("", "configmaps")?;
    let today = to_day(Timestamp::now()).to_string();
    let Some(known) = find_object(server, resource, NAMESPACE, NAME) else {
        if !may_create {
            return Ok(Outcome::Kept);
        }
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": NAMESPACE}, "data": {SINCE: today}});
        create_object(server, resource, NAMESPACE, object).await?;
        return Ok(Outcome::Created);
    };
    if has_start(&known) {
        return Ok(Outcome::Kept);
    }
    let change = move |old: &Value| {
        let mut new = old.clone();
        if !has_start(&new) {
            new["data"][SINCE] = today.clone().into();
        }
        Ok(new)
    };
    let mut write = Write::internal(resource, NAMESPACE, NAME);
    match server.registry.update(&mut write, &raw(&change)).await {
        Err(error) if error.reason == Reason::NotFound => Ok(Outcome::Kept),
        other => other.map(|_| Outcome::Kept),
    }
}

fn has_start(map: &Value) -> bool {
    let since = map.pointer("/data/since").and_then(Value::as_str);
    let is_date = |text: &str| {
        // The parser accepts other forms of ISO 8601, too.
        let date: Option<Date> = text.parse().ok();
        date.is_some_and(|date| date.to_string() == text)
    };
    since.is_some_and(is_date)
}

fn raw<C: Fn(&Value) -> Result<Value, ApiError> + Send + Sync>(change: &C) -> Update<'_> {
    Update {
        change,
        replaces: false,
        // The server's own bookkeeping, not a write of the client.
        mode: Mode::Raw,
    }
}

/// Labels Secrets whose tokens are used until the server stops.
pub async fn label_used_secrets(server: Arc<Server>) {
    let Some(accounts) = server.authn.accounts() else {
        return;
    };
    let stopping = &server.stopping;
    while stopping
        .run_until_cancelled(label_next(&server, accounts))
        .await
        .is_some()
    {}
}

async fn label_next(server: &Server, accounts: &AccountTokens) {
    let uses = accounts.legacy_uses();
    let used = uses.next().await;
    let labelled = label_secret(server, &used, to_day(Timestamp::now())).await;
    // The next use tries again.
    if let Err(error) = labelled {
        let UsedSecret {
            namespace, name, ..
        } = &used;
        tracing::warn!(%error, namespace, name, "failed to label the Secret of a token that was used");
    }
    uses.finish(&used);
}

/// Sets the label of one Secret, unless it shows a use today.
///
/// # Errors
/// The store can't be reached.
pub async fn label_secret(server: &Server, used: &UsedSecret, today: Date) -> Result<(), ApiError> {
    let resource = find_resource("", "secrets")?;
    let change = |old: &Value| {
        let mut new = old.clone();
        // Another Secret of this name was not used.
        if old.uid() == used.uid && !is_recorded(old.label(LAST_USED), today) {
            new["metadata"]["labels"][LAST_USED] = today.to_string().into();
        }
        Ok(new)
    };
    let mut write = Write::internal(resource, &used.namespace, &used.name);
    match server.registry.update(&mut write, &raw(&change)).await {
        Err(error) if error.reason == Reason::NotFound => Ok(()),
        other => other.map(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_is_a_date() {
        for (map, expect) in [
            (json!({"data": {"since": "2026-01-31"}}), true),
            (json!({"data": {"since": "2026-02-31"}}), false),
            (json!({"data": {"since": "20260131"}}), false),
            (json!({"data": {"since": ""}}), false),
            (json!({"data": {}}), false),
            (json!({}), false),
        ] {
            assert_eq!(has_start(&map), expect, "{map}");
        }
    }
}
