//! The audit of one request: collects the facts, and sends an event for each stage.

use crate::event::{Event, ObjectReference, RequestFacts, ResponseStatus, UserInfo};
use crate::level::{Level, Stage};
use crate::policy::RequestAuditConfig;
use crate::sinks::{Rejected, Sinks};
use api_meta::{Meta as _, Status};
use apiserver_request::{AuditAnnotations, User};
use bytes::Bytes;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::Arc;

/// The record of one request. The response is complete, at the latest, when the last holder drops
/// it: a streamed body and an upgraded connection hold it.
pub struct Record {
    sinks: Arc<Sinks>,
    config: RequestAuditConfig,
    annotations: AuditAnnotations,
    is_anonymous: bool,
    state: Mutex<State>,
}

struct State {
    event: Event,
    is_complete: bool,
}

impl Record {
    pub(crate) fn new(
        sinks: Arc<Sinks>,
        config: RequestAuditConfig,
        annotations: AuditAnnotations,
        facts: RequestFacts,
    ) -> Self {
        let is_anonymous = facts.is_anonymous;
        let event = Event::new(config.level, facts);
        Record {
            sinks,
            config,
            annotations,
            is_anonymous,
            state: Mutex::new(State {
                event,
                is_complete: false,
            }),
        }
    }

    /// Returns whether events have the body of the request.
    pub fn has_request(&self) -> bool {
        self.config.level >= Level::Request
    }

    /// Returns whether events have the body of the response.
    pub fn has_response(&self) -> bool {
        self.config.level >= Level::RequestResponse
    }

    /// Records the user that the request acts for.
    pub fn set_impersonated(&self, user: &User) {
        self.state.lock().event.head.impersonated_user = Some(UserInfo::from(user));
    }

    /// Records the identity of the object in the request's body, and the body itself as JSON if
    /// events have it.
    pub fn set_request_object(&self, object: &Value, body: impl FnOnce() -> Vec<u8>) {
        let body = self.has_request().then(|| self.finish_body(body()));
        let mut state = self.state.lock();
        let target = state.event.head.object_ref.get_or_insert_default();
        fill_reference(target, object);
        state.event.request_object = body;
    }

    /// Records a patch as the body of the request: compact JSON, because an event is one line.
    pub fn set_patch(&self, patch: impl FnOnce() -> Option<Vec<u8>>) {
        if self.has_request()
            && let Some(patch) = patch()
        {
            self.state.lock().event.request_object = Some(patch.into());
        }
    }

    /// Records the body of the response as JSON, if events have it.
    pub fn set_response_object(&self, body: impl FnOnce() -> Vec<u8>) {
        if self.has_response() {
            let body = self.finish_body(body());
            self.state.lock().event.response_object = Some(body);
        }
    }

    /// Records a response that is a Status.
    pub fn set_status(&self, status: &Status) {
        let mut outcome = ResponseStatus::from_status(status);
        if self.is_anonymous {
            outcome.shorten();
        } else {
            self.set_response_object(|| serde_json::to_vec(status).unwrap_or_default());
        }
        self.state.lock().event.head.response_status = Some(outcome);
    }

    /// Returns a body as it is recorded: without a line break, and without `managedFields` if the
    /// policy omits them.
    fn finish_body(&self, mut body: Vec<u8>) -> Bytes {
        if self.config.omit_managed_fields
            && let Ok(mut tree) = serde_json::from_slice(&body)
        {
            remove_managed_fields(&mut tree);
            body = tree.to_string().into_bytes();
        }
        body.truncate(body.trim_ascii_end().len());
        // An empty body would break the JSON of the event.
        if body.is_empty() {
            body.extend_from_slice(b"null");
        }
        body.into()
    }

    /// Sends the event of a request that has arrived.
    ///
    /// # Errors
    /// A backend whose mode is strict could not record it.
    pub async fn send_received(&self) -> Result<(), Rejected> {
        let Some(event) = self.event_at(Stage::RequestReceived) else {
            return Ok(());
        };
        let outcome = self.sinks.send_event(&event).wait().await;
        if outcome.is_err() {
            self.sinks.metrics.count_rejected();
        }
        outcome
    }

    /// Sends the event of a long response whose head is complete.
    pub async fn send_started(&self, code: u16) {
        self.set_code(code);
        self.send_stage(Stage::ResponseStarted).await;
    }

    /// Sends the event of a complete response.
    pub async fn send_complete(&self, code: u16) {
        self.set_code(code);
        self.state.lock().is_complete = true;
        self.send_stage(Stage::ResponseComplete).await;
    }

    /// Sends the event of a handler that panicked.
    pub async fn send_panic(&self) {
        self.state.lock().is_complete = true;
        self.send_stage(Stage::Panic).await;
    }

    /// Discards the record: no further event is sent.
    pub fn discard(&self) {
        self.state.lock().is_complete = true;
    }

    fn set_code(&self, code: u16) {
        let mut state = self.state.lock();
        let status = state.event.head.response_status.get_or_insert_default();
        status.code = code;
    }

    async fn send_stage(&self, stage: Stage) {
        if let Some(event) = self.event_at(stage) {
            // Only the arrival rejects a request.
            let _ = self.sinks.send_event(&event).wait().await;
        }
    }

    /// Returns the event of a stage, unless the policy omits it.
    fn event_at(&self, stage: Stage) -> Option<Arc<Event>> {
        if self.config.omit_stages.contains(&stage) {
            return None;
        }
        let mut event = self.state.lock().event.clone();
        event.head.stage = stage;
        if stage != Stage::RequestReceived {
            event.tail.stage_timestamp = Timestamp::now();
        }
        event.tail.annotations = self.annotations.list(self.has_request());
        Some(Arc::new(event))
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if self.state.get_mut().is_complete {
            return;
        }
        let status = &mut self.state.get_mut().event.head.response_status;
        if status.is_none() {
            // As upstream: the client has left before the response.
            *status = Some(ResponseStatus {
                status: "Success".to_owned(),
                message: "Connection closed early".to_owned(),
                ..ResponseStatus::from_code(200)
            });
        }
        if let Some(event) = self.event_at(Stage::ResponseComplete) {
            // The sinks have it; no request waits for them.
            drop(self.sinks.send_event(&event));
        }
    }
}

/// Adds what the path does not name.
fn fill_reference(target: &mut ObjectReference, object: &Value) {
    let fill = |field: &mut String, value: &str| {
        if field.is_empty() {
            value.clone_into(field);
        }
    };
    fill(&mut target.namespace, object.namespace());
    fill(&mut target.name, object.name());
    fill(&mut target.uid, object.uid());
    fill(&mut target.resource_version, object.resource_version());
}

/// Removes `managedFields` of an object, of the items of a list, or of the objects of a table.
fn remove_managed_fields(body: &mut Value) {
    let remove = |object: &mut Value| {
        if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.remove("managedFields");
        }
    };
    remove(body);
    for items in ["items", "rows"] {
        for item in body
            .get_mut(items)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            remove(item);
            if let Some(object) = item.get_mut("object") {
                remove(object);
            }
        }
    }
}
