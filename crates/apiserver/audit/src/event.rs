//! Events (`audit.k8s.io/v1`) and their JSON.

use crate::level::{Level, Stage};
use api_meta::text::truncate_text;
use api_meta::{Status, time};
use apiserver_request::User;
use bytes::Bytes;
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;

/// Bytes of a user agent in an event.
const MAX_USER_AGENT: usize = 1024;

/// The facts about a request that are known when it arrives.
#[derive(Clone, Debug)]
pub struct RequestFacts {
    /// The identifier that the client sent or gets.
    pub audit_id: String,
    /// Path and query as sent.
    pub uri: String,
    /// Verb of the API, or the method in lower case.
    pub verb: String,
    /// The authenticated user; None if authentication failed.
    pub user: Option<UserInfo>,
    /// Addresses that proxies named, then that of the peer.
    pub source_ips: Vec<String>,
    /// The client's name for itself.
    pub user_agent: String,
    /// The object or collection, for requests of resources.
    pub object: Option<ObjectReference>,
    /// The time of arrival.
    pub received: Timestamp,
    /// The client has no credentials, so that its events have short texts.
    pub is_anonymous: bool,
}

/// One event.
#[derive(Clone, Debug)]
pub struct Event {
    /// The fields before the bodies, in the order of upstream's encoder.
    pub head: EventHead,
    /// The body of the request as JSON.
    pub request_object: Option<Bytes>,
    /// The body of the response as JSON.
    pub response_object: Option<Bytes>,
    /// The fields after the bodies.
    pub tail: EventTail,
}

/// The fields of an event before the bodies.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventHead {
    /// Level of the policy.
    pub level: Level,
    /// Identifier of the request.
    #[serde(rename = "auditID")]
    pub audit_id: String,
    /// Stage of the request.
    pub stage: Stage,
    /// Path and query as sent.
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    /// Verb of the API, or the method in lower case.
    pub verb: String,
    /// The authenticated user.
    pub user: UserInfo,
    /// The user that the request acts for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impersonated_user: Option<UserInfo>,
    /// Addresses of the client.
    #[serde(rename = "sourceIPs", skip_serializing_if = "Vec::is_empty")]
    pub source_ips: Vec<String>,
    /// The client's name for itself.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user_agent: String,
    /// The object or collection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_ref: Option<ObjectReference>,
    /// The outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_status: Option<ResponseStatus>,
}

/// The fields of an event after the bodies.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventTail {
    /// The time of arrival.
    #[serde(serialize_with = "write_time")]
    pub request_received_timestamp: Timestamp,
    /// The time of the stage.
    #[serde(serialize_with = "write_time")]
    pub stage_timestamp: Timestamp,
    /// Annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// A user in an event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UserInfo {
    /// Name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub username: String,
    /// UID.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Extra attributes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The object or collection of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// Plural name of the resource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// Namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// UID in the body of the request.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// API group, empty for core.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// API version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// Version in the body of the request.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// Subresource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
}

/// The outcome of a request: the code, and what a Status says.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ResponseStatus {
    /// Always empty, as in upstream's events.
    pub metadata: BTreeMap<String, String>,
    /// `Success` or `Failure`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// Message of the Status.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Reason of the Status.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Details of the Status.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub details: Value,
    /// HTTP status.
    pub code: u16,
}

/// Bytes of a message to an anonymous client in an event. It repeats what the client has sent.
const ANONYMOUS_MESSAGE: usize = 512;

impl ResponseStatus {
    /// Shortens the message, and leaves out the details.
    pub(crate) fn shorten(&mut self) {
        self.message = truncate_text(&self.message, ANONYMOUS_MESSAGE).to_owned();
        self.details = Value::Null;
    }

    /// Creates the outcome of a response without a Status.
    pub fn from_code(code: u16) -> Self {
        ResponseStatus {
            code,
            ..ResponseStatus::default()
        }
    }

    /// Creates the outcome of a response that is a Status.
    pub fn from_status(status: &Status) -> Self {
        let tree = serde_json::to_value(status).unwrap_or_default();
        let text = |field: &str| tree.get(field).and_then(Value::as_str).unwrap_or_default();
        ResponseStatus {
            metadata: BTreeMap::new(),
            status: text("status").to_owned(),
            message: text("message").to_owned(),
            reason: text("reason").to_owned(),
            details: tree.get("details").cloned().unwrap_or_default(),
            code: u16::try_from(status.code).unwrap_or_default(),
        }
    }
}

impl From<&User> for UserInfo {
    fn from(user: &User) -> Self {
        UserInfo {
            username: user.name.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
        }
    }
}

impl Event {
    /// Creates the event of a request that has arrived.
    pub(crate) fn new(level: Level, facts: RequestFacts) -> Self {
        let head = EventHead {
            level,
            audit_id: facts.audit_id,
            stage: Stage::RequestReceived,
            request_uri: facts.uri,
            verb: facts.verb,
            user: facts.user.unwrap_or_default(),
            impersonated_user: None,
            source_ips: facts.source_ips,
            user_agent: cut_user_agent(facts.user_agent),
            object_ref: facts.object,
            response_status: None,
        };
        Event {
            head,
            request_object: None,
            response_object: None,
            tail: EventTail {
                request_received_timestamp: facts.received,
                stage_timestamp: facts.received,
                annotations: BTreeMap::new(),
            },
        }
    }

    /// Writes the event as an item of an EventList, without its kind. The bodies are copied as they
    /// are: a list may have many megabytes.
    pub(crate) fn write_item(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        self.write_members(out);
        out.push(b'}');
    }

    /// Writes the members of the object, without braces.
    pub(crate) fn write_members(&self, out: &mut Vec<u8>) {
        out.reserve(self.bodies_length());
        write_fields(&self.head, out);
        for (name, body) in [
            ("requestObject", &self.request_object),
            ("responseObject", &self.response_object),
        ] {
            if let Some(body) = body {
                out.extend_from_slice(format!(",\"{name}\":").as_bytes());
                out.extend_from_slice(body);
            }
        }
        out.push(b',');
        write_fields(&self.tail, out);
    }

    /// Returns the bytes of both bodies with their names.
    pub(crate) fn bodies_length(&self) -> usize {
        const NAME: usize = r#","responseObject":"#.len();
        let bodies = [&self.request_object, &self.response_object];
        bodies
            .into_iter()
            .flatten()
            .map(|body| NAME + body.len())
            .sum()
    }
}

/// Writes the members of an object without its braces.
fn write_fields(fields: &impl Serialize, out: &mut Vec<u8>) {
    // Serialization to memory fails only for maps whose keys are not strings.
    let encoded = serde_json::to_vec(fields).unwrap_or_default();
    let members = encoded
        .strip_prefix(b"{")
        .and_then(|rest| rest.strip_suffix(b"}"));
    out.extend_from_slice(members.unwrap_or_default());
}

fn cut_user_agent(mut agent: String) -> String {
    if agent.len() > MAX_USER_AGENT {
        agent = format!("{}...TRUNCATED", truncate_text(&agent, MAX_USER_AGENT));
    }
    agent
}

fn write_time<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&time::format_micro(*at))
}
