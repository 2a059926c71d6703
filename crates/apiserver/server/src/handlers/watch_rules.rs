//! The documented combinations of watch and list options.

use crate::context::Context;
use api_meta::{ApiError, Cause, Reason};
use std::time::Duration;

const OPTIONS: &str = "ListOptions";
/// Longest watch in seconds, a year. The end of a longer one might be no point in time.
const LONGEST: u64 = 365 * 24 * 3600;

/// The validated options of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchOptions {
    /// `resourceVersion` as sent.
    pub resource_version: String,
    /// `sendInitialEvents`: existing objects first, then a bookmark that marks their end.
    pub initial_events: Option<bool>,
    /// The client accepts bookmarks.
    pub bookmarks: bool,
    /// Duration of the watch.
    pub timeout: Duration,
}

/// Parses and validates a watch's options.
pub fn read_options(context: &Context) -> Result<WatchOptions, ApiError> {
    let timeout = context
        .query
        .number("timeoutSeconds")?
        .and_then(|n| u64::try_from(n).ok())
        // As upstream, 0 selects the server's default instead of an immediate end.
        .filter(|n| *n > 0);
    let initial_events = context.query.switch("sendInitialEvents");
    check_options(context.query.text("resourceVersionMatch"), initial_events)?;
    let resource_version = context.query.text("resourceVersion").to_owned();
    if !resource_version.is_empty() && resource_version.parse::<u64>().is_err() {
        let text = format!(
            "resourceVersion: Invalid value: {resource_version:?}: strconv.ParseUint: parsing {resource_version:?}: invalid syntax"
        );
        return Err(ApiError::new(Reason::Unknown(500), text));
    }
    // Between 30 and 60 minutes, at random, so that clients which connected together do not
    // reconnect together.
    let default = || 1800 + u64::from(rand::random::<u16>()) % 1800;
    Ok(WatchOptions {
        resource_version,
        initial_events,
        bookmarks: context.query.flag("allowWatchBookmarks"),
        timeout: Duration::from_secs(timeout.unwrap_or_else(default).min(LONGEST)),
    })
}

/// Rejects `sendInitialEvents` for a list.
pub fn check_list(context: &Context) -> Result<(), ApiError> {
    if context.query.switch("sendInitialEvents").is_none() {
        return Ok(());
    }
    let cause = field_cause(
        "sendInitialEvents",
        "FieldValueForbidden",
        "Forbidden: sendInitialEvents is forbidden for list",
    );
    Err(ApiError::invalid("meta.k8s.io", OPTIONS, "", vec![cause]))
}

fn check_options(version_match: &str, initial_events: Option<bool>) -> Result<(), ApiError> {
    let field = "resourceVersionMatch";
    let mut causes = Vec::new();
    match (initial_events, version_match) {
        // The API couples both options: initial events have no other meaning than "not older than".
        (None, "") | (Some(_), "NotOlderThan") => return Ok(()),
        (None, _) => {
            let why = "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            causes.push(field_cause(field, "FieldValueForbidden", why));
        }
        (Some(_), other) => {
            let why = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            causes.push(field_cause(field, "FieldValueForbidden", why));
            if !other.is_empty() {
                let why =
                    format!("Unsupported value: {other:?}: supported values: \"NotOlderThan\"");
                causes.push(field_cause(field, "FieldValueNotSupported", &why));
            }
        }
    }
    Err(ApiError::invalid("meta.k8s.io", OPTIONS, "", causes))
}

fn field_cause(field: &str, reason: &str, message: &str) -> Cause {
    Cause {
        reason: reason.into(),
        message: message.into(),
        field: field.into(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn combinations() {
        let reasons = |version_match: &str, initial: Option<bool>| -> Vec<String> {
            let Err(error) = check_options(version_match, initial) else {
                return Vec::new();
            };
            error
                .details
                .unwrap()
                .causes
                .into_iter()
                .map(|c| c.reason)
                .collect()
        };
        assert!(reasons("", None).is_empty());
        assert!(reasons("NotOlderThan", Some(true)).is_empty());
        assert_eq!(reasons("NotOlderThan", None), ["FieldValueForbidden"]);
        assert_eq!(reasons("", Some(true)), ["FieldValueForbidden"]);
        assert_eq!(
            reasons("Exact", Some(true)),
            ["FieldValueForbidden", "FieldValueNotSupported"]
        );
    }

    #[test]
    fn longest_timeout_is_a_year() {
        let timeout = |seconds: i64| {
            let path = format!("/api/v1/pods?watch=1&timeoutSeconds={seconds}");
            let request = http::Request::get(path).body(()).unwrap();
            let context = Context::new(request.into_parts().0).unwrap();
            read_options(&context).unwrap().timeout
        };
        assert_eq!(timeout(60), Duration::from_secs(60));
        for seconds in [i64::MAX, i64::MAX - 1, i64::MAX / 2] {
            assert_eq!(timeout(seconds), Duration::from_secs(LONGEST), "{seconds}");
            assert!(
                std::time::Instant::now()
                    .checked_add(timeout(seconds))
                    .is_some()
            );
        }
    }
}
