//! Errors of requests.
//!
//! A `Status` of the server is kept unchanged: callers decide by its reason, never by its message.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;

/// Result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A boxed cause.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Error of a request or of its preparation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server returned a failure.
    #[error("{}", describe_status(.0))]
    Api(Box<Status>),
    /// Connecting to the server failed.
    #[error("cannot connect to {server}: {source}")]
    Connect {
        /// Address of the server.
        server: String,
        /// The cause.
        #[source]
        source: Cause,
    },
    /// The connection broke during a request or while its response was read.
    #[error("{what}: connection lost: {source}")]
    Connection {
        /// The request, as `METHOD path`.
        what: String,
        /// The cause.
        #[source]
        source: Cause,
    },
    /// The body of the response is larger than the client reads.
    #[error("{what}: the response has more than {limit} bytes")]
    TooLarge {
        /// The request, as `METHOD path`.
        what: String,
        /// Maximum size of a body in bytes.
        limit: usize,
    },
    /// The timeout expired before a response arrived.
    #[error("{what}: no answer within {after:?}")]
    Timeout {
        /// The request, as `METHOD path`.
        what: String,
        /// The timeout.
        after: Duration,
    },
    /// Decoding failed.
    #[error("cannot decode {what}: {source}")]
    Decode {
        /// Description of the document.
        what: String,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// Encoding an object failed.
    #[error("cannot encode the request: {0}")]
    Encode(#[source] serde_json::Error),
    /// The configuration is invalid. The text names the file or field.
    #[error("{0}")]
    Config(String),
}

fn describe_status(status: &Status) -> String {
    match (&status.message, &status.reason) {
        (Some(message), _) if !message.is_empty() => message.clone(),
        (_, Some(reason)) => reason.clone(),
        _ => format!("the server answered with code {}", status.code.unwrap_or(0)),
    }
}

impl Error {
    /// Returns the server's `Status`, if there is one.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Api(status) => Some(status),
            _ => None,
        }
    }

    /// Returns the HTTP code of the response.
    pub fn code(&self) -> Option<i32> {
        self.status().and_then(|status| status.code)
    }

    /// Returns the reason of the response (`NotFound`, `Conflict`, ...).
    pub fn reason(&self) -> &str {
        self.status()
            .and_then(|status| status.reason.as_deref())
            .unwrap_or_default()
    }

    fn has_reason(&self, reason: &str, code: i32) -> bool {
        match self.reason() {
            // Proxies and old servers send a code without a reason. If there is a reason, it is the
            // more precise one.
            "" => self.code() == Some(code),
            found => found == reason,
        }
    }

    /// Returns whether the object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.has_reason("NotFound", 404)
    }

    /// Returns whether the object changed since it was read, or a precondition failed.
    pub fn is_conflict(&self) -> bool {
        self.has_reason("Conflict", 409)
    }

    /// Returns whether an object of that name exists already.
    pub fn is_already_exists(&self) -> bool {
        self.reason() == "AlreadyExists"
    }

    /// Returns whether the requested resource version is too old (410); the caller must list again.
    pub fn is_expired(&self) -> bool {
        // Two reasons for one code: a list or watch of an old version is Expired, and older servers
        // said Gone.
        matches!(self.reason(), "Expired" | "Gone") || self.code() == Some(410)
    }

    /// Returns whether the caller is not allowed to do this.
    pub fn is_forbidden(&self) -> bool {
        self.has_reason("Forbidden", 403)
    }

    /// Returns whether the caller is not authenticated.
    pub fn is_unauthorized(&self) -> bool {
        self.has_reason("Unauthorized", 401)
    }

    /// Returns whether the object is invalid.
    pub fn is_invalid(&self) -> bool {
        self.has_reason("Invalid", 422)
    }

    /// Returns whether the server requests a retry later.
    pub fn is_too_many_requests(&self) -> bool {
        self.has_reason("TooManyRequests", 429)
    }

    /// Returns whether the server was unreachable or unavailable, so that a retry may succeed.
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Connection { .. } | Self::Timeout { .. } => true,
            // Statuses of a server that is starting, overloaded, or behind a proxy without a
            // backend.
            Self::Api(status) => matches!(status.code, Some(429 | 500 | 502 | 503 | 504)),
            _ => false,
        }
    }

    /// Returns whether the namespace of a new object is being terminated.
    pub fn is_namespace_terminating(&self) -> bool {
        self.status()
            .and_then(|status| status.details.as_ref())
            .and_then(|details| details.causes.as_ref())
            .is_some_and(|causes| {
                causes
                    .iter()
                    .any(|cause| cause.reason.as_deref() == Some("NamespaceTerminating"))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(reason: &str, code: i32) -> Error {
        Error::Api(Box::new(Status {
            reason: Some(reason.to_owned()).filter(|reason| !reason.is_empty()),
            code: Some(code),
            ..Status::default()
        }))
    }

    #[test]
    fn reason_decides_and_the_code_only_without_one() {
        let conflicts = [
            (status("Conflict", 409), true),
            (status("", 409), true),
            (status("AlreadyExists", 409), false),
        ];
        for (error, want) in conflicts {
            assert_eq!(error.is_conflict(), want, "{error:?}");
        }
        assert!(status("AlreadyExists", 409).is_already_exists());
        assert!(!status("", 409).is_already_exists());
    }

    #[test]
    fn expired_version_is_known_by_reason_or_code() {
        for (error, want) in [
            (status("Expired", 410), true),
            (status("Gone", 410), true),
            (status("", 410), true),
            (status("NotFound", 404), false),
            (status("InternalError", 500), false),
        ] {
            assert_eq!(error.is_expired(), want, "{error:?}");
        }
    }

    #[test]
    fn only_failures_that_may_pass_are_unavailability() {
        let what = || "GET /".to_owned();
        let lost = Error::Connection {
            what: what(),
            source: "reset".into(),
        };
        let late = Error::Timeout {
            what: what(),
            after: Duration::from_secs(1),
        };
        for (error, want) in [
            (lost, true),
            (late, true),
            (status("", 503), true),
            (status("TooManyRequests", 429), true),
            (status("Forbidden", 403), false),
            (status("Invalid", 422), false),
            (Error::Config("no server".into()), false),
        ] {
            assert_eq!(error.is_unavailable(), want, "{error:?}");
        }
    }

    #[test]
    fn message_of_the_server_is_shown_unchanged() {
        let error = Error::Api(Box::new(Status {
            message: Some("pods \"a\" not found".into()),
            ..Status::default()
        }));
        assert_eq!(error.to_string(), "pods \"a\" not found");
        assert_eq!(status("NotFound", 404).to_string(), "NotFound");
    }
}
