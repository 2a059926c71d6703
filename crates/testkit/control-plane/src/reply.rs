//! The complete response to a request.

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;

/// A response.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Reply {
    /// Returns the body as JSON; null if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the `Warning` headers.
    pub fn warnings(&self) -> Vec<String> {
        let values = self.headers.get_all("warning").iter();
        values
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .collect()
    }

    /// Returns the response if its status is 2xx.
    ///
    /// # Panics
    /// On any other status, with the response's text.
    #[track_caller]
    pub fn expect_success(self) -> Self {
        assert!(
            (200..300).contains(&self.status),
            "status {}: {}",
            self.status,
            self.text()
        );
        self
    }

    /// Returns the response if it has this status.
    ///
    /// # Panics
    /// On any other status, with the response's text.
    #[track_caller]
    pub fn expect_status(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }
}
