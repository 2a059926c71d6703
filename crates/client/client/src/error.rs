//! What can go wrong with a request.
//!
//! A `Status` from the server is kept whole: callers decide by reason, never by message.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;

/// Result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A boxed cause.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Failure of a request, or of what is needed to make one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server answered with a failure.
    #[error("{}", describe(.0))]
    Api(Box<Status>),
    /// No connection could be made.
    #[error("cannot connect to {server}: {source}")]
    Connect {
        /// Address of the server.
        server: String,
        /// Why.
        #[source]
        source: Cause,
    },
    /// The connection broke during a request or while its answer was read.
    #[error("{what}: connection lost: {source}")]
    Connection {
        /// The request, as `METHOD path`.
        what: String,
        /// Why.
        #[source]
        source: Cause,
    },
    /// No answer within the time allowed.
    #[error("{what}: no answer within {after:?}")]
    Timeout {
        /// The request, as `METHOD path`.
        what: String,
        /// The time allowed.
        after: Duration,
    },
    /// Something could not be decoded.
    #[error("cannot decode {what}: {source}")]
    Decode {
        /// What it was.
        what: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// An object could not be encoded.
    #[error("cannot encode the request: {0}")]
    Encode(#[source] serde_json::Error),
    /// The configuration can't be used; the text names the file or field.
    #[error("{0}")]
    Config(String),
}

fn describe(status: &Status) -> String {
    match (&status.message, &status.reason) {
        (Some(message), _) if !message.is_empty() => message.clone(),
        (_, Some(reason)) => reason.clone(),
        _ => format!("the server answered with code {}", status.code.unwrap_or(0)),
    }
}

impl Error {
    /// The server's Status, if it gave one.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Api(status) => Some(status),
            _ => None,
        }
    }

    /// The HTTP code of the server's answer.
    pub fn code(&self) -> Option<i32> {
        self.status().and_then(|status| status.code)
    }

    /// The reason of the server's answer (`NotFound`, `Conflict`, ...).
    pub fn reason(&self) -> &str {
        self.status().and_then(|status| status.reason.as_deref()).unwrap_or_default()
    }

    fn is(&self, reason: &str, code: i32) -> bool {
        match self.reason() {
            "" => self.code() == Some(code),
            found => found == reason,
        }
    }

    /// The object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.is("NotFound", 404)
    }

    /// The object changed since it was read, or a precondition failed.
    pub fn is_conflict(&self) -> bool {
        self.is("Conflict", 409)
    }

    /// An object of that name is there already.
    pub fn is_already_exists(&self) -> bool {
        self.reason() == "AlreadyExists"
    }

    /// The resource version asked for is too old (410): list again.
    pub fn is_expired(&self) -> bool {
        matches!(self.reason(), "Expired" | "Gone") || self.code() == Some(410)
    }

    /// The caller may not do this.
    pub fn is_forbidden(&self) -> bool {
        self.is("Forbidden", 403)
    }

    /// The caller is not known.
    pub fn is_unauthorized(&self) -> bool {
        self.is("Unauthorized", 401)
    }

    /// The object is not valid.
    pub fn is_invalid(&self) -> bool {
        self.is("Invalid", 422)
    }

    /// The server asks to come back later.
    pub fn is_too_many_requests(&self) -> bool {
        self.is("TooManyRequests", 429)
    }

    /// The server could not be reached or did not answer: the same request may work later.
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Connection { .. } | Self::Timeout { .. } => true,
            Self::Api(status) => matches!(status.code, Some(429 | 500 | 502 | 503 | 504)),
            _ => false,
        }
    }

    /// Whether the namespace of a new object is on its way out.
    pub fn is_namespace_terminating(&self) -> bool {
        self.status()
            .and_then(|status| status.details.as_ref())
            .and_then(|details| details.causes.as_ref())
            .is_some_and(|causes| causes.iter().any(|cause| cause.reason.as_deref() == Some("NamespaceTerminating")))
    }
}
