//! Errors of calls, in the words of Go's client, for which operators search.

use std::error::Error;
use std::io::ErrorKind;

const CONNECTION_RESET: &str = "read: connection reset by peer";

/// A connection that could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct DialError(pub String);

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No client can be built from the configuration.
    #[error("{0}")]
    Config(String),
    /// No connection, or no complete response.
    #[error("Post {url:?}: {why}")]
    Failed {
        /// The URL.
        url: String,
        /// The reason.
        why: String,
    },
    /// The timeout ended.
    #[error("Post {url:?}: context deadline exceeded")]
    Deadline {
        /// The URL.
        url: String,
    },
    /// Another status than 200 to 206.
    #[error("{message}")]
    Status {
        /// The status.
        code: u16,
        /// Upstream's words for it.
        message: String,
    },
}

impl CallError {
    /// Builds the error of a response. Redirects are not followed: a webhook could direct the
    /// request, with the object in it, to another server.
    pub(super) fn of_status(code: u16, body: &str) -> Self {
        // The texts of `NewGenericServerResponse`, which client-go uses without a Status in the
        // body.
        let message = match code {
            300..=399 => format!("the server responded with a redirect (status code {code})"),
            400 => "the server rejected our request for an unknown reason".to_owned(),
            401 => "the server has asked for the client to provide credentials".to_owned(),
            403 => "forbidden: the server does not serve this client".to_owned(),
            404 => "the server could not find the requested resource".to_owned(),
            405 => "the server does not allow this method on the requested resource".to_owned(),
            413 => "Request entity too large".to_owned(),
            429 => "the server has received too many requests and has asked us to try again later"
                .to_owned(),
            503 => "the server is currently unable to handle the request".to_owned(),
            504 => "the server was unable to return a response in the time allotted".to_owned(),
            500..=599 => format!(
                "an error on the server ({body:?}) has prevented the request from succeeding"
            ),
            _ => format!(
                "the server responded with the status code {code} but did not return more information"
            ),
        };
        CallError::Status { code, message }
    }

    /// Returns whether the same call may succeed soon: as client-go's webhooks, after a reset
    /// connection and with these statuses.
    pub fn is_transient(&self) -> bool {
        match self {
            CallError::Failed { why, .. } => why.ends_with(CONNECTION_RESET),
            CallError::Status { code, .. } => matches!(code, 429 | 500 | 504),
            CallError::Config(_) | CallError::Deadline { .. } => false,
        }
    }

    /// Returns the status for metrics: that of the webhook, or 503.
    pub fn code(&self) -> u16 {
        match self {
            CallError::Config(_) => 500,
            CallError::Status { code, .. } => *code,
            CallError::Failed { .. } | CallError::Deadline { .. } => 503,
        }
    }
}

/// Returns the first cause that says more than "client error".
pub fn describe_error(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(dial) = error.downcast_ref::<DialError>() {
            return dial.to_string();
        }
        last = error;
        next = error.source();
    }
    if let Some(error) = last.downcast_ref::<hyper::Error>()
        && (error.is_incomplete_message() || error.is_canceled() || error.is_closed())
    {
        return "EOF".to_owned();
    }
    match last.downcast_ref::<std::io::Error>() {
        Some(error) => describe_io(error),
        None => last.to_string(),
    }
}

/// Returns Go's words for an error of the network.
pub fn describe_io(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => "connect: connection refused".into(),
        ErrorKind::ConnectionReset => CONNECTION_RESET.into(),
        ErrorKind::HostUnreachable => "connect: no route to host".into(),
        ErrorKind::NetworkUnreachable => "connect: network is unreachable".into(),
        ErrorKind::TimedOut => "i/o timeout".into(),
        ErrorKind::UnexpectedEof => "EOF".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadline_has_the_words_that_clients_search_for() {
        let error = CallError::Deadline {
            url: "https://h.n.svc:443/x?timeout=1s".into(),
        };
        assert_eq!(
            error.to_string(),
            "Post \"https://h.n.svc:443/x?timeout=1s\": context deadline exceeded"
        );
    }

    #[test]
    fn status_is_described_and_redirects_are_failures() {
        for (code, part) in [
            (302, "redirect (status code 302)"),
            (400, "rejected our request"),
            (404, "could not find the requested resource"),
            (500, "an error on the server (\"boom\")"),
            (503, "currently unable"),
            (600, "status code 600"),
        ] {
            let error = CallError::of_status(code, "boom");
            assert!(error.to_string().contains(part), "{code}: {error}");
            assert_eq!(error.code(), code);
            assert_eq!(error.is_transient(), code == 500, "{code}");
        }
    }

    #[test]
    fn errors_of_the_network_are_in_gos_words() {
        let text = |kind: ErrorKind| describe_io(&std::io::Error::from(kind));
        assert_eq!(
            text(ErrorKind::ConnectionRefused),
            "connect: connection refused"
        );
        assert_eq!(text(ErrorKind::UnexpectedEof), "EOF");
    }
}
