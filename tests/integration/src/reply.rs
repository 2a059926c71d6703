//! Checks of responses.

use serde_json::Value;
use testkit_control_plane::Reply;

/// Checks of a response beside those of [`Reply`].
pub trait ReplyExt: Sized {
    /// Checks that the response is a `v1` Status of a failure with exactly this code, reason and
    /// message; returns it.
    ///
    /// # Panics
    /// If it is anything else, like the following methods.
    #[track_caller]
    fn expect_failure(self, code: u16, reason: &str, message: &str) -> Value {
        let status = self.expect_reason(code, reason);
        assert_eq!(status["message"].as_str(), Some(message));
        status
    }

    /// Checks code and reason of a failure; returns the Status.
    #[track_caller]
    fn expect_reason(self, code: u16, reason: &str) -> Value;

    /// Checks that the response is 422 Invalid with exactly these causes: field path and reason,
    /// in any order.
    #[track_caller]
    fn expect_causes(self, causes: &[(&str, &str)]) -> Value {
        let status = self.expect_reason(422, "Invalid");
        let mut got: Vec<(String, String)> = status["details"]["causes"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|cause| {
                let text = |key: &str| cause[key].as_str().unwrap_or_default().to_owned();
                (text("field"), text("reason"))
            })
            .collect();
        got.sort();
        let mut expected: Vec<(String, String)> = causes
            .iter()
            .map(|&(field, reason)| (field.to_owned(), reason.to_owned()))
            .collect();
        expected.sort();
        assert_eq!(got, expected, "{}", status["message"]);
        status
    }

    /// Returns a header's value; empty if it is missing.
    fn header(&self, name: &str) -> &str;
}

impl ReplyExt for Reply {
    fn expect_reason(self, code: u16, reason: &str) -> Value {
        assert_eq!(self.status, code, "{}", self.text());
        let status = self.json();
        let text = |key: &str| status[key].as_str().unwrap_or_default();
        assert_eq!(
            (text("apiVersion"), text("kind"), text("status")),
            ("v1", "Status", "Failure"),
            "{status}"
        );
        assert_eq!(status["code"], code, "{status}");
        assert_eq!(text("reason"), reason, "{status}");
        status
    }

    fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }
}
