//! `PodLogOptions`: the options of a pod's log.

use crate::context::Context;
use crate::query::Query;
use api_meta::{ApiError, Cause, time};

/// The rule for numbers above 0, with upstream's text.
const POSITIVE: &str = "must be greater than 0";

/// The options of a log.
#[derive(Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Parameters for the kubelet.
    pub parameters: Vec<(String, String)>,
    /// The certificate of the kubelet is not verified.
    pub skips_verification: bool,
}

impl LogOptions {
    /// Parses and validates the options in a query.
    ///
    /// # Errors
    /// 400 for a text that is no number or time, 422 for a value or a combination that is not
    /// allowed.
    pub fn parse(context: &Context) -> Result<Self, ApiError> {
        let query = &context.query;
        let since_seconds = read_number(query, "sinceSeconds")?;
        let since_time = read_time(query)?;
        let tail = read_number(query, "tailLines")?;
        let limit = read_number(query, "limitBytes")?;
        let mut causes = Vec::new();
        if let Some(lines) = tail.filter(|lines| *lines < 0) {
            let why = "must be greater than or equal to 0";
            causes.push(build_invalid_cause("tailLines", lines, why));
        }
        if let Some(bytes) = limit.filter(|bytes| *bytes < 1) {
            causes.push(build_invalid_cause("limitBytes", bytes, POSITIVE));
        }
        match since_seconds {
            Some(_) if since_time.is_some() => {
                let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
                causes.push(build_forbidden_cause("", why));
            }
            Some(seconds) if seconds < 1 => {
                causes.push(build_invalid_cause("sinceSeconds", seconds, POSITIVE));
            }
            _ => {}
        }
        // As upstream without the gate `PodLogsQuerySplitStreams`.
        if query.first("stream").is_some() {
            causes.push(build_forbidden_cause("stream", "may not be specified"));
        }
        if !causes.is_empty() {
            let name = &context.info.name;
            return Err(ApiError::invalid("", "PodLogOptions", name, causes));
        }
        let flag = |name: &'static str| (name, query.flag(name).then(|| "true".to_owned()));
        let number = |name: &'static str, value: Option<i64>| (name, value.map(|n| n.to_string()));
        let parameters = [
            flag("follow"),
            flag("previous"),
            flag("timestamps"),
            number("sinceSeconds", since_seconds),
            ("sinceTime", since_time),
            number("tailLines", tail),
            number("limitBytes", limit),
        ];
        Ok(LogOptions {
            parameters: parameters
                .into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), value?)))
                .collect(),
            skips_verification: query.flag("insecureSkipTLSVerifyBackend"),
        })
    }
}

/// Parses a number. Unlike other numbers in queries, an empty text is an error, as upstream.
fn read_number(query: &Query, name: &str) -> Result<Option<i64>, ApiError> {
    if query.first(name) == Some("") {
        let text = "strconv.ParseInt: parsing \"\": invalid syntax";
        return Err(ApiError::bad_request(text));
    }
    query.number(name)
}

/// Returns `sinceTime` in whole seconds, the precision that kubelets get.
fn read_time(query: &Query) -> Result<Option<String>, ApiError> {
    // The zero time of Go.
    const ZERO: &str = "0001-01-01T00:00:00Z";
    match query.first("sinceTime") {
        None => Ok(None),
        Some("" | "null") => Ok(Some(ZERO.to_owned())),
        Some(text) => {
            let at = time::parse(text).ok_or_else(|| {
                ApiError::bad_request(format!("sinceTime: {text:?} is no time in RFC 3339"))
            })?;
            Ok(Some(time::format(at)))
        }
    }
}

fn build_invalid_cause(field: &str, value: i64, why: &str) -> Cause {
    Cause {
        reason: "FieldValueInvalid".into(),
        message: format!("Invalid value: {value}: {why}"),
        field: field.into(),
    }
}

fn build_forbidden_cause(field: &str, why: &str) -> Cause {
    Cause {
        reason: "FieldValueForbidden".into(),
        message: format!("Forbidden: {why}"),
        field: field.into(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(query: &str) -> Result<LogOptions, ApiError> {
        let uri = format!("/api/v1/namespaces/d/pods/p/log?{query}");
        let request = http::Request::get(uri).body(()).unwrap();
        LogOptions::parse(&Context::new(request.into_parts().0).unwrap())
    }

    #[test]
    fn valid_options_are_forwarded_in_one_form() {
        for (query, expect) in [
            ("", ""),
            (
                "container=c&insecureSkipTLSVerifyBackend=true&pretty=true&x=y",
                "",
            ),
            (
                "follow=true&previous=false&timestamps=1",
                "follow=true timestamps=true",
            ),
            ("tailLines=0&limitBytes=1", "tailLines=0 limitBytes=1"),
            ("sinceSeconds=1", "sinceSeconds=1"),
            (
                "sinceTime=2026-01-01T01:00:00.5%2B01:00",
                "sinceTime=2026-01-01T00:00:00Z",
            ),
            ("sinceTime=", "sinceTime=0001-01-01T00:00:00Z"),
        ] {
            let options = parse(query).unwrap();
            let pairs = options.parameters.iter().map(|(k, v)| format!("{k}={v}"));
            let found: Vec<String> = pairs.collect();
            assert_eq!(found.join(" "), expect, "{query}");
            let skips = query.contains("insecure");
            assert_eq!(options.skips_verification, skips, "{query}");
        }
    }

    #[test]
    fn invalid_options_are_rejected_with_upstreams_messages() {
        let unprocessable = |why: &str| (422, format!("PodLogOptions \"p\" is invalid: {why}"));
        for (query, expect) in [
            (
                "tailLines=-1",
                unprocessable("tailLines: Invalid value: -1: must be greater than or equal to 0"),
            ),
            (
                "limitBytes=0",
                unprocessable("limitBytes: Invalid value: 0: must be greater than 0"),
            ),
            (
                "sinceSeconds=0",
                unprocessable("sinceSeconds: Invalid value: 0: must be greater than 0"),
            ),
            (
                "sinceSeconds=5&sinceTime=2026-01-01T00:00:00Z",
                unprocessable(
                    ": Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified",
                ),
            ),
            (
                "stream=Stdout&tailLines=-1",
                unprocessable(
                    "[tailLines: Invalid value: -1: must be greater than or equal to 0, \
                     stream: Forbidden: may not be specified]",
                ),
            ),
            (
                "tailLines=",
                (
                    400,
                    "strconv.ParseInt: parsing \"\": invalid syntax".to_owned(),
                ),
            ),
            (
                "limitBytes=x",
                (
                    400,
                    "strconv.ParseInt: parsing \"x\": invalid syntax".to_owned(),
                ),
            ),
            (
                "sinceTime=soon",
                (400, "sinceTime: \"soon\" is no time in RFC 3339".to_owned()),
            ),
        ] {
            let error = parse(query).unwrap_err();
            assert_eq!((error.code(), error.message), expect, "{query}");
        }
    }
}
