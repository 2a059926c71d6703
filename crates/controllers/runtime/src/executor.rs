//! The executor: performs actions, records events, and tracks the writes that the caches do not
//! show yet.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::events::{EventType as ClientEventType, Recorder};
use client::{Body, Client, Error, PartialObject, Request};
use futures::future::join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::action::{Action, EventType, Note, Verb, Write};
use crate::credentials::Account;
use crate::informers::View;
use crate::object::{Meta, Target};

/// Maximum time for which a key waits until the caches show its writes, as long as upstream's
/// expectations. A shorter time creates a second set of pods when a watch lags under load.
const EXPECTATION_TIMEOUT: Duration = Duration::from_secs(300);
/// Minimum and maximum interval between two checks of the caches while a key waits.
const CHECK_INTERVAL: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// A write that the caches do not show yet.
#[derive(Clone, Debug)]
pub struct Pending {
    group: String,
    kind: String,
    what: Awaited,
    since: Instant,
}

#[derive(Clone, Debug)]
enum Awaited {
    Version { key: String, version: u64 },
    Deleted { key: String, uid: String },
}

impl Pending {
    /// Returns whether the caches show the write, or the wait has expired.
    pub fn is_settled(&self, view: &View) -> bool {
        let shown = match &self.what {
            Awaited::Version { key, version } => {
                view.has_reached(&self.group, &self.kind, key, *version)
            }
            Awaited::Deleted { key, uid } => view.has_deleted(&self.group, &self.kind, key, uid),
        };
        // An event can be missing forever, for instance if the object no longer matches the
        // informer's selector. The key must not wait for it forever.
        let expired = !shown && self.since.elapsed() >= EXPECTATION_TIMEOUT;
        if expired {
            tracing::warn!(
                group = self.group,
                kind = self.kind,
                "a write did not appear in the cache in time; continuing without it"
            );
        }
        shown || expired
    }

    /// Returns the delay of the next check: short after the write, longer while a watch lags.
    pub fn next_check(&self) -> Duration {
        (self.since.elapsed() / 4).clamp(CHECK_INTERVAL.0, CHECK_INTERVAL.1)
    }
}

/// The result of a reconcile.
#[derive(Debug, Default)]
pub struct Done {
    /// Writes to wait for.
    pub pending: Vec<Pending>,
    /// Delay of the next reconcile, if requested.
    pub requeue: Option<Duration>,
}

/// Performs actions with the identity of one controller.
#[derive(Clone)]
pub struct Executor {
    account: Arc<Account>,
    recorder: Recorder,
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Executor")
    }
}

impl Executor {
    /// Creates an executor that writes as `account`.
    pub fn new(account: Arc<Account>, recorder: Recorder) -> Self {
        Self { account, recorder }
    }

    /// Returns a client with the controller's identity, for its own reads and writes.
    pub async fn client(&self) -> Result<Client, Error> {
        self.account.client().await
    }

    /// Records an event.
    pub fn record_event(&self, note: &Note) {
        let kind = match note.kind {
            EventType::Normal => ClientEventType::Normal,
            EventType::Warning => ClientEventType::Warning,
        };
        self.recorder
            .event(&note.regarding, kind, &note.reason, note.message.clone());
    }

    /// Performs actions in order up to the first failure. `done` then lists the writes before it.
    pub async fn perform_actions(
        &self,
        actions: Vec<Action>,
        done: &mut Done,
    ) -> Result<(), Error> {
        for action in actions {
            match action {
                Action::Write(write) => Box::pin(self.perform_write(*write, done)).await?,
                Action::Batch(writes) => self.write_batch(writes, done).await?,
                Action::Confirm(target) => self.confirm_object(&target).await?,
                Action::Event(note) => self.record_event(&note),
                // The shortest delay wins, because a reconcile looks at everything again.
                Action::Requeue(after) => {
                    done.requeue = Some(done.requeue.map_or(after, |sooner| sooner.min(after)));
                }
            }
        }
        Ok(())
    }

    /// Reads the object from the API server.
    ///
    /// # Errors
    /// A conflict with the reconcile's assumption: it is deleted, another one of the same name, or
    /// its deletion was requested.
    async fn confirm_object(&self, target: &Target) -> Result<(), Error> {
        // A GET without a resourceVersion returns the latest state, whatever the caches of this
        // process show.
        let found: PartialObject = self.send_request(Request::get(target.path())).await?;
        // Another UID means an object of the same name: adopting for it would be wrong, too.
        let same = target.uid.as_deref().is_none_or(|uid| uid == found.uid());
        if same && !found.is_deleting() {
            return Ok(());
        }
        let message = format!(
            "{} {} was deleted or is being deleted",
            target.kind,
            target.key()
        );
        // As a conflict it is retried with back-off, without a failure event: the watch will show
        // the same soon.
        let (reason, code) = (Some("Conflict".to_owned()), Some(409));
        Err(Error::Api(Box::new(Status {
            message: Some(message),
            reason,
            code,
            ..Status::default()
        })))
    }

    /// Sends groups of 1, 2, 4 and so on: fast if the server accepts them, without flooding a
    /// server that rejects them.
    async fn write_batch(&self, writes: Vec<Write>, done: &mut Done) -> Result<(), Error> {
        let mut rest = writes.into_iter();
        let mut size = 1;
        loop {
            let group: Vec<_> = rest.by_ref().take(size).collect();
            if group.is_empty() {
                return Ok(());
            }
            let sent = join_all(group.into_iter().map(|write| async move {
                let mut own = Done::default();
                let result = Box::pin(self.perform_write(write, &mut own)).await;
                (own, result)
            }))
            .await;
            let mut first = Ok(());
            for (own, result) in sent {
                done.pending.extend(own.pending);
                // One error is enough, because the key is retried as a whole.
                if first.is_ok() {
                    first = result;
                }
            }
            // The whole group is awaited before the error is returned: its successful writes are in
            // `done` and are waited for.
            first?;
            // Upstream's slowStartBatch: a quota that rejects all pods costs one request and not
            // five hundred.
            size *= 2;
        }
    }

    async fn perform_write(&self, write: Write, done: &mut Done) -> Result<(), Error> {
        match self.send_write(&write).await {
            Ok(response) => {
                done.pending.extend(pending_write(&write, &response));
                let name = written_name(&write, &response);
                self.report_outcome(write.notes.success, &name, "");
                Ok(())
            }
            // The name belongs to another object. The reconciler has named the writes for this
            // case.
            Err(error) if error.is_already_exists() && !write.if_exists.is_empty() => {
                Box::pin(self.perform_actions(write.if_exists, done)).await
            }
            Err(error) if is_tolerated(&write, &error) => {
                tracing::debug!(kind = %write.target.kind, object = %write.target.key(), %error, "tolerated error of a write");
                Ok(())
            }
            Err(error) => {
                // Both are expected and retried or dropped, so events about them would only alarm.
                if !error.is_conflict() && !error.is_namespace_terminating() {
                    self.report_outcome(
                        write.notes.failure,
                        &write.target.name,
                        &error.to_string(),
                    );
                }
                Err(error)
            }
        }
    }

    fn report_outcome(&self, note: Option<Note>, name: &str, error: &str) {
        if let Some(note) = note {
            let message = note
                .message
                .replace("{name}", name)
                .replace("{error}", error);
            self.record_event(&Note { message, ..note });
        }
    }

    async fn send_write(&self, write: &Write) -> Result<Value, Error> {
        self.send_request(build_request(write)?).await
    }

    async fn send_request<T: DeserializeOwned>(&self, request: Request) -> Result<T, Error> {
        let client = self.account.client().await?;
        let result = client.request::<T>(request).await;
        if let Err(error) = &result
            // The token may have been revoked with its service account; the next request gets a new
            // one.
            && error.is_unauthorized()
        {
            self.account.forget_token().await;
        }
        result
    }
}

fn build_request(write: &Write) -> Result<Request, Error> {
    use http::Method as m;
    let path = write.target.path();
    let (method, path, content_type) = match &write.verb {
        Verb::Create => (m::POST, write.target.collection(), "application/json"),
        Verb::Update => (m::PUT, path, "application/json"),
        Verb::UpdateStatus => (m::PUT, format!("{path}/status"), "application/json"),
        Verb::Merge(sub) => (
            m::PATCH,
            with_sub(path, *sub),
            "application/merge-patch+json",
        ),
        Verb::Strategic(sub) => (
            m::PATCH,
            with_sub(path, *sub),
            "application/strategic-merge-patch+json",
        ),
        Verb::ApplyStatus(manager) => (
            m::PATCH,
            format!("{path}/status?fieldManager={manager}&force=true"),
            "application/apply-patch+yaml",
        ),
        Verb::Delete => (m::DELETE, path, "application/json"),
        Verb::Post(sub) => (m::POST, format!("{path}/{sub}"), "application/json"),
        Verb::Put(sub) => (m::PUT, format!("{path}/{sub}"), "application/json"),
    };
    let mut body = Body::json(&write.body)?;
    body.content_type = content_type;
    Ok(Request::new(method, path).with_body(body))
}

fn with_sub(path: String, sub: Option<&str>) -> String {
    match sub {
        Some(sub) => format!("{path}/{sub}"),
        None => path,
    }
}

fn is_tolerated(write: &Write, error: &Error) -> bool {
    let t = write.tolerate;
    // Only an error that the server returned: without a response the write may still be executed.
    t.anything && error.status().is_some()
        || t.absent && error.is_not_found()
        || t.exists && error.is_already_exists()
        || t.conflict && error.is_conflict()
}

fn pending_write(write: &Write, response: &Value) -> Option<Pending> {
    let target = &write.target;
    let what = if write.verb == Verb::Delete {
        Awaited::Deleted {
            // Without a UID a new object of the same name would look like one that is not deleted
            // yet.
            key: target.key(),
            uid: target.uid.clone()?,
        }
    // A subresource such as eviction returns a Status, which has no resourceVersion to wait for.
    } else if matches!(write.verb, Verb::Post(_)) {
        return None;
    } else {
        let version = response.pointer("/metadata/resourceVersion")?.as_str()?;
        Awaited::Version {
            key: Target {
                name: written_name(write, response),
                ..target.clone()
            }
            .key(),
            version: version.parse().ok()?,
        }
    };
    Some(Pending {
        group: target.group.clone(),
        kind: target.kind.clone(),
        what,
        since: Instant::now(),
    })
}

fn written_name(write: &Write, response: &Value) -> String {
    if !write.target.name.is_empty() {
        return write.target.name.clone();
    }
    response
        // With generateName only the response has the name, which the event about the write needs.
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::informers::Informers;
    use client::Config;
    use k8s_openapi::api::core::v1::ConfigMap;

    #[test]
    fn own_write_is_awaited_for_minutes_while_a_watch_lags() {
        let mut informers = Informers::new(Client::new(Config::builder("http://127.0.0.1:1")));
        informers.for_kind::<ConfigMap>();
        let view = informers.view(&std::collections::HashSet::new());
        let settled = |seconds| {
            let since = Instant::now()
                .checked_sub(Duration::from_secs(seconds))
                .unwrap();
            let what = Awaited::Version {
                key: "n/p".to_owned(),
                version: 5,
            };
            Pending {
                group: String::new(),
                kind: "ConfigMap".to_owned(),
                what,
                since,
            }
            .is_settled(&view)
        };
        assert!(!settled(0) && !settled(60) && settled(301));
    }
}
