//! The context of one request on its way through the handler chain.

use crate::flow::Class;
use crate::negotiate::{self, Formats, MediaType, Transform};
use crate::query::Query;
use crate::request_info::{self, BadPath};
use api_kinds::Resource;
use api_meta::ApiError;
use apiserver_audit::Record;
use apiserver_request::{AuditAnnotations, RequestInfo, User, Warnings};
use base_serve::Peer;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method};
use jiff::Timestamp;
use std::sync::Arc;

/// Facts about a request that are known before its body is read.
pub struct Context {
    /// HTTP method.
    pub method: Method,
    /// The parsed path.
    pub info: RequestInfo,
    /// The path as sent, for proxies.
    pub raw_path: String,
    /// The query as sent, for proxies.
    pub raw_query: String,
    /// Query parameters.
    pub query: Query,
    /// Headers.
    pub headers: HeaderMap,
    /// Peer of the connection.
    pub peer: Option<Peer>,
    /// The user; set by authentication and impersonation.
    pub user: User,
    /// Flow schema and priority level of the request; set after impersonation.
    pub flow: Option<Class>,
    /// The formats of bodies and responses; set before a resource's handler. As upstream, earlier
    /// errors and other paths have the default ones.
    pub formats: Formats,
    /// Identifies the request in logs of both sides: the client's, or a new one.
    pub audit_id: HeaderValue,
    /// The time of arrival.
    pub received: Timestamp,
    /// Warnings for the client about its credentials.
    pub warnings: Arc<Warnings>,
    /// Annotations of its audit events; set if the server has an audit.
    pub annotations: Option<AuditAnnotations>,
    /// The audit of the request; set after authentication if the policy wants events.
    pub audit: Option<Arc<Record>>,
}

impl Context {
    /// Builds the context from a request's head.
    pub fn new(parts: Parts) -> Result<Self, BadPath> {
        let (uri, mut extensions) = (parts.uri, parts.extensions);
        let raw_query = uri.query().unwrap_or_default();
        let query = Query::parse(raw_query);
        Ok(Context {
            info: request_info::parse_request_info(&parts.method, uri.path(), &query)?,
            method: parts.method,
            raw_path: uri.path().to_owned(),
            raw_query: raw_query.to_owned(),
            query,
            audit_id: choose_audit_id(&parts.headers),
            headers: parts.headers,
            peer: extensions.remove::<Peer>(),
            user: User::default(),
            flow: None,
            formats: Formats::default(),
            received: Timestamp::now(),
            warnings: Arc::default(),
            annotations: None,
            audit: None,
        })
    }

    /// Returns a header's text; empty if absent or not text.
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    /// Negotiates the representation of the response.
    pub fn media_type(&self) -> Result<MediaType, ApiError> {
        Ok(MediaType {
            pretty: self.wants_indentation(),
            ..self.formats.negotiate(self.header("accept"))?
        })
    }

    /// Negotiates the representation of a resource's objects, one or many.
    pub fn resource_media_type(&self, resource: &Resource) -> Result<MediaType, ApiError> {
        if resource.schema.has_protobuf() {
            return self.media_type();
        }
        Ok(MediaType {
            pretty: self.wants_indentation(),
            ..self
                .formats
                .negotiate_without_protobuf(self.header("accept"))?
        })
    }

    /// Negotiates the representation of an object without columns.
    pub fn media_type_without_table(&self) -> Result<MediaType, ApiError> {
        Ok(MediaType {
            pretty: self.wants_indentation(),
            ..self
                .formats
                .negotiate_without_table(self.header("accept"))?
        })
    }

    /// Negotiates the representation of one object with columns.
    ///
    /// # Errors
    /// 406, also for the metadata of a list.
    pub fn object_media_type(&self, resource: &Resource) -> Result<MediaType, ApiError> {
        let media_type = self.resource_media_type(resource)?;
        match media_type.transform {
            Transform::PartialList => Err(negotiate::wrong_plurality(
                media_type.transform,
                &resource.kind,
            )),
            _ => Ok(media_type),
        }
    }

    /// Negotiates the representation of a list.
    ///
    /// # Errors
    /// 406, also for the metadata of one object.
    pub fn list_media_type(&self, resource: &Resource) -> Result<MediaType, ApiError> {
        let media_type = self.resource_media_type(resource)?;
        match media_type.transform {
            Transform::Partial => Err(negotiate::wrong_plurality(
                media_type.transform,
                &resource.list_kind,
            )),
            _ => Ok(media_type),
        }
    }

    /// Negotiates the representation of errors: JSON if no other is acceptable.
    pub fn error_media_type(&self) -> MediaType {
        self.media_type().unwrap_or_default()
    }

    /// Returns whether to indent JSON: for `pretty`, or for curl, wget and browsers.
    fn wants_indentation(&self) -> bool {
        let agent = self.header("user-agent");
        // Upstream indents for the same three prefixes.
        let person = ["curl", "Wget", "Mozilla/5.0"]
            .iter()
            .any(|prefix| agent.starts_with(prefix));
        self.query.switch("pretty").unwrap_or(person)
    }

    /// Returns the field manager: as given, or the first word of the user agent.
    pub fn field_manager(&self) -> String {
        let given = self.query.text("fieldManager");
        if !given.is_empty() {
            return given.to_owned();
        }
        let agent = self
            .header("user-agent")
            .split(['/', ' '])
            .next()
            .unwrap_or_default();
        if agent.is_empty() {
            "unknown".to_owned()
        } else {
            // 128 bytes is the limit of a manager's name in managedFields.
            agent.chars().take(128).collect()
        }
    }
}

/// Returns the identifier that the client sent, or a new one.
fn choose_audit_id(headers: &HeaderMap) -> HeaderValue {
    // Bounded, because both sides log it.
    let is_usable = |id: &&HeaderValue| (1..=64).contains(&id.len()) && id.to_str().is_ok();
    let given = headers.get("audit-id").filter(is_usable).cloned();
    given
        .or_else(|| random_uuid().try_into().ok())
        .unwrap_or(HeaderValue::from_static(""))
}

/// Returns a random UUID (version 4).
fn random_uuid() -> String {
    let bits: u128 = rand::random();
    // RFC 9562: four bits of version, two of variant; the others are random.
    let bits = bits & !(0xf000_u128 << 64) & !(0xc000_u128 << 48)
        | (0x4000_u128 << 64)
        | (0x8000_u128 << 48);
    let hex = format!("{bits:032x}");
    let part = |range: std::ops::Range<usize>| hex.get(range).unwrap_or_default();
    [
        part(0..8),
        part(8..12),
        part(12..16),
        part(16..20),
        part(20..32),
    ]
    .join("-")
}
