//! The headers in which an extension server receives the user.

use api_meta::ApiError;
use apiserver_request::User;
use http::header::{HeaderMap, HeaderName, HeaderValue};

const USER: HeaderName = HeaderName::from_static("x-remote-user");
const UID: HeaderName = HeaderName::from_static("x-remote-uid");
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const EXTRA: &str = "x-remote-extra-";

/// Returns the headers for a user.
///
/// # Errors
/// A name that no header can carry. The request fails then: without a group or a name, the
/// extension server would decide about another user.
pub fn identity_headers(user: &User) -> Result<HeaderMap, ApiError> {
    let refused = || ApiError::internal("the user can't be sent to the extension server");
    let value = |text: &str| {
        // Receivers trim the values of headers: `admin ` would arrive as `admin`.
        if text.trim_matches([' ', '\t']) != text {
            return Err(refused());
        }
        HeaderValue::from_bytes(text.as_bytes()).map_err(|_| refused())
    };
    let mut headers = HeaderMap::new();
    headers.insert(USER, value(&user.name)?);
    // Omitted if empty, as upstream.
    if !user.uid.is_empty() {
        headers.insert(UID, value(&user.uid)?);
    }
    let mut append = |name: HeaderName, value: HeaderValue| {
        headers
            // `append` panics beyond 32,768 headers, and an authenticator may return any number of
            // groups.
            .try_append(name, value)
            .map(|_| ())
            .map_err(|_| refused())
    };
    for group in &user.groups {
        append(GROUP, value(group)?)?;
    }
    for (key, values) in &user.extra {
        let name = format!("{EXTRA}{}", escape_key(key));
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refused())?;
        for text in values {
            append(name.clone(), value(text)?)?;
        }
    }
    Ok(headers)
}

/// Escapes bytes that a header name can't have, and the escape itself.
fn escape_key(key: &str) -> String {
    let mut out = String::with_capacity(key.len());
    for byte in key.bytes() {
        let legal = byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte);
        if legal {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn user_is_sent_in_headers() {
        let user = User {
            name: "jane".into(),
            uid: "7".into(),
            groups: vec!["a".into(), "b".into()],
            extra: [("example.com/scope%".into(), vec!["x".into(), "y".into()])].into(),
        };
        let headers = identity_headers(&user).unwrap();
        assert_eq!(headers["x-remote-user"], "jane");
        assert_eq!(headers["x-remote-uid"], "7");
        let all = |name: &str| headers.get_all(name).iter().cloned().collect::<Vec<_>>();
        assert_eq!(all("x-remote-group"), ["a", "b"]);
        assert_eq!(all("x-remote-extra-example.com%2fscope%25"), ["x", "y"]);
    }

    #[test]
    fn user_without_uid_has_no_header_for_it() {
        let headers = identity_headers(&User::anonymous()).unwrap();
        assert!(!headers.contains_key("x-remote-uid"));
    }

    #[test]
    fn name_that_would_arrive_as_another_fails_the_request() {
        for (name, group) in [
            ("a\r\nx-remote-group: system:masters", "g"),
            ("a", "g\n"),
            ("admin ", "g"),
            ("a", "\tsystem:masters"),
        ] {
            let user = User {
                name: name.into(),
                groups: vec![group.into()],
                ..User::default()
            };
            assert!(identity_headers(&user).is_err(), "{name:?} {group:?}");
        }
    }
}
