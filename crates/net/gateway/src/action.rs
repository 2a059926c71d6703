//! The response to a matched request: header changes, a redirect or backends.

use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::uri::{PathAndQuery, Uri};
use http::{StatusCode, header};
use rand::Rng;

use crate::backend::Backend;
use crate::path_match::PathMatch;

/// The part of a rule that is executed.
#[derive(Debug, Default)]
pub struct Action {
    /// Changes of the request's headers.
    pub request_headers: HeaderEdit,
    /// Changes of the response's headers.
    pub response_headers: HeaderEdit,
    /// Redirect in the place of backends.
    pub redirect: Option<Redirect>,
    /// Change of host and path for the backend.
    pub rewrite: Option<Rewrite>,
    /// Backends with their weights.
    pub backends: Vec<WeightedBackend>,
    /// Time for the whole request; `None` for no limit.
    pub request_timeout: Option<Duration>,
    /// Time for the headers of a backend's response; `None` for the default.
    pub backend_timeout: Option<Duration>,
}

impl Action {
    /// Returns whether another action does the same with a request: it is the same one, or both do
    /// nothing but forward to the same backends.
    pub fn is_same_as(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        let is_same_backend = |(a, b): (&WeightedBackend, &WeightedBackend)| {
            let is_same = match (&a.backend, &b.backend) {
                (Some(a), Some(b)) => Arc::ptr_eq(a, b),
                _ => false,
            };
            is_same && a.weight == b.weight
        };
        let has_same_backends = || {
            self.backends.len() == other.backends.len()
                && self
                    .backends
                    .iter()
                    .zip(&other.backends)
                    .all(is_same_backend)
        };
        Arc::ptr_eq(self, other)
            || self.only_forwards() && other.only_forwards() && has_same_backends()
    }

    /// Returns whether requests reach the backends as they are.
    fn only_forwards(&self) -> bool {
        let is_plain = |backend: &WeightedBackend| {
            backend.request_headers.is_empty() && backend.response_headers.is_empty()
        };
        self.request_headers.is_empty()
            && self.response_headers.is_empty()
            && self.redirect.is_none()
            && self.rewrite.is_none()
            && self.backends.iter().all(is_plain)
    }

    /// Chooses a backend at random by weight; `None` if there is none with a weight.
    pub fn choose_backend(&self) -> Option<&WeightedBackend> {
        let total: u64 = self.backends.iter().map(|b| u64::from(b.weight)).sum();
        if total == 0 {
            return None;
        }
        self.backend_at(rand::rng().random_range(0..total))
    }

    fn backend_at(&self, mut point: u64) -> Option<&WeightedBackend> {
        self.backends.iter().find(|backend| {
            let weight = u64::from(backend.weight);
            let is_here = point < weight;
            point = point.saturating_sub(weight);
            is_here
        })
    }
}

/// A backend of a rule.
#[derive(Debug)]
pub struct WeightedBackend {
    /// Share of the requests, relative to the sum of the rule.
    pub weight: u32,
    /// The backend; `None` for a reference that can't be resolved.
    pub backend: Option<Arc<Backend>>,
    /// Changes of the request's headers for this backend.
    pub request_headers: HeaderEdit,
    /// Changes of the response's headers of this backend.
    pub response_headers: HeaderEdit,
}

/// Changes of headers.
#[derive(Clone, Debug, Default)]
pub struct HeaderEdit {
    /// Headers that replace all of their name.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// Headers that are added.
    pub add: Vec<(HeaderName, HeaderValue)>,
    /// Names of removed headers.
    pub remove: Vec<HeaderName>,
}

impl HeaderEdit {
    fn is_empty(&self) -> bool {
        self.set.is_empty() && self.add.is_empty() && self.remove.is_empty()
    }

    /// Applies the changes to a request. Servers that pass headers as variables of the environment
    /// take `x_user` for `x-user`: other spellings of a changed header are removed.
    pub fn apply_to_request(&self, headers: &mut HeaderMap) {
        let is_other_spelling = |name: &&HeaderName| {
            let mut changed = self.list_names();
            changed.any(|known| is_same_variable(known, name))
                && !self.list_names().any(|known| known == *name)
        };
        let spellings = headers.keys().filter(is_other_spelling);
        let spellings: Vec<HeaderName> = spellings.cloned().collect();
        for name in spellings {
            headers.remove(name);
        }
        self.apply(headers);
    }

    fn list_names(&self) -> impl Iterator<Item = &HeaderName> {
        let written = self.set.iter().chain(&self.add).map(|(name, _)| name);
        written.chain(&self.remove)
    }

    /// Applies the changes.
    pub fn apply(&self, headers: &mut HeaderMap) {
        for (name, value) in &self.set {
            headers.insert(name, value.clone());
        }
        for (name, value) in &self.add {
            headers.append(name, value.clone());
        }
        for name in &self.remove {
            headers.remove(name);
        }
    }
}

/// Returns whether two headers are one variable of the environment.
fn is_same_variable(one: &HeaderName, other: &HeaderName) -> bool {
    let usual = |byte: u8| if byte == b'_' { b'-' } else { byte };
    let (one, other) = (one.as_str().bytes(), other.as_str().bytes());
    one.map(usual).eq(other.map(usual))
}

/// Returns whether routes may change a header. They may not change headers that frame a message,
/// belong to one connection, or name the client to backends.
pub fn is_editable(name: &HeaderName) -> bool {
    let framing = [
        header::HOST,
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::TE,
        header::TRAILER,
        header::UPGRADE,
    ];
    !framing.contains(name)
        && !matches!(
            name.as_str(),
            "keep-alive" | "proxy-connection" | "http2-settings"
        )
        && !crate::headers::is_forwarding(name)
}

/// A change of the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathEdit {
    /// Replaces the whole path.
    Full(String),
    /// Replaces the prefix that the rule matched.
    Prefix(String),
}

impl PathEdit {
    /// Returns the changed path.
    pub fn apply(&self, matched: &PathMatch, path: &str) -> String {
        match (self, matched) {
            (Self::Full(full), _) => full.clone(),
            (Self::Prefix(fresh), PathMatch::Prefix(prefix)) => {
                let rest = path.get(prefix.len()..).unwrap_or_default();
                let fresh = fresh.strip_suffix('/').unwrap_or(fresh);
                match fresh.len() + rest.len() {
                    0 => "/".to_owned(),
                    _ => format!("{fresh}{rest}"),
                }
            }
            // An exact match has no prefix; such routes are not accepted.
            (Self::Prefix(_), PathMatch::Exact(_)) => path.to_owned(),
        }
    }
}

/// A change of host and path for the backend.
#[derive(Clone, Debug, Default)]
pub struct Rewrite {
    /// The backend's host.
    pub hostname: Option<HeaderValue>,
    /// Change of the path.
    pub path: Option<PathEdit>,
}

impl Rewrite {
    /// Returns the changed path with the query; `None` if it can't be a path.
    pub fn rewrite_path(&self, matched: &PathMatch, uri: &Uri) -> Option<PathAndQuery> {
        match &self.path {
            None => uri.path_and_query().cloned(),
            Some(edit) => join_query(&edit.apply(matched, uri.path()), uri.query())
                .parse()
                .ok(),
        }
    }
}

fn join_query(path: &str, query: Option<&str>) -> String {
    match query {
        None => path.to_owned(),
        Some(query) => format!("{path}?{query}"),
    }
}

/// A redirect.
#[derive(Clone, Debug)]
pub struct Redirect {
    /// `http` or `https`; `None` for the request's own.
    pub scheme: Option<&'static str>,
    /// Host; `None` for the request's own.
    pub hostname: Option<String>,
    /// Change of the path.
    pub path: Option<PathEdit>,
    /// Port; `None` for that of the scheme or of the listener.
    pub port: Option<u16>,
    /// Status of the response.
    pub status: StatusCode,
}

impl Redirect {
    /// Returns the value of `Location` for a request to `host` on a listener with this scheme and
    /// port; `None` if it can't be a header.
    pub fn locate(
        &self,
        matched: &PathMatch,
        uri: &Uri,
        host: &str,
        (own_scheme, own_port): (&'static str, u16),
    ) -> Option<HeaderValue> {
        let scheme = self.scheme.unwrap_or(own_scheme);
        let standard = if scheme == "https" { 443 } else { 80 };
        let port = match (self.port, self.scheme) {
            (Some(port), _) => port,
            (None, Some(_)) => standard,
            (None, None) => own_port,
        };
        let host = self.hostname.as_deref().unwrap_or(host);
        // A client of HTTP/1.0 may send none.
        if host.is_empty() {
            return None;
        }
        let port = match port == standard {
            true => String::new(),
            false => format!(":{port}"),
        };
        let path = match &self.path {
            None => uri.path().to_owned(),
            Some(edit) => edit.apply(matched, uri.path()),
        };
        let path = join_query(&path, uri.query());
        HeaderValue::try_from(format!("{scheme}://{host}{port}{path}")).ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn prefix_is_replaced_as_in_the_table_of_the_specification() {
        for (path, prefix, fresh, want) in [
            ("/foo/bar", "/foo", "/xyz", "/xyz/bar"),
            ("/foo/bar", "/foo", "/xyz/", "/xyz/bar"),
            ("/foo/bar", "/foo/", "/xyz", "/xyz/bar"),
            ("/foo/bar", "/foo/", "/xyz/", "/xyz/bar"),
            ("/foo", "/foo", "/xyz", "/xyz"),
            ("/foo/", "/foo", "/xyz", "/xyz/"),
            ("/foo/bar", "/foo", "", "/bar"),
            ("/foo/", "/foo", "", "/"),
            ("/foo", "/foo", "", "/"),
            ("/foo/", "/foo", "/", "/"),
            ("/foo", "/foo", "/", "/"),
            ("/a", "/", "/xyz", "/xyz/a"),
        ] {
            let edit = PathEdit::Prefix(fresh.to_owned());
            let found = edit.apply(&PathMatch::prefix(prefix), path);
            assert_eq!(found, want, "{path} {prefix} {fresh}");
        }
    }

    #[test]
    fn location_has_the_port_unless_it_is_that_of_the_scheme() {
        let plain = Redirect {
            scheme: None,
            hostname: None,
            path: None,
            port: None,
            status: StatusCode::FOUND,
        };
        let https = Redirect {
            scheme: Some("https"),
            ..plain.clone()
        };
        let other = Redirect {
            hostname: Some("b.com".into()),
            port: Some(8443),
            path: Some(PathEdit::Full("/x".into())),
            ..https.clone()
        };
        for (redirect, own, want) in [
            (&plain, ("http", 80), "http://a.com/p?q=1"),
            (&plain, ("http", 8080), "http://a.com:8080/p?q=1"),
            (&https, ("http", 8080), "https://a.com/p?q=1"),
            (&other, ("http", 80), "https://b.com:8443/x?q=1"),
        ] {
            let uri = "/p?q=1".parse().unwrap();
            let found = redirect.locate(&PathMatch::prefix("/"), &uri, "a.com", own);
            assert_eq!(found.unwrap(), want, "{redirect:?}");
        }
    }

    #[test]
    fn actions_are_the_same_if_they_forward_to_the_same_backends() {
        let (one, two) = (Arc::new(Backend::default()), Arc::new(Backend::default()));
        let forward = |backend: &Arc<Backend>, weight| {
            let backend = WeightedBackend {
                weight,
                backend: Some(backend.clone()),
                request_headers: HeaderEdit::default(),
                response_headers: HeaderEdit::default(),
            };
            Action {
                backends: vec![backend],
                ..Action::default()
            }
        };
        let changing = || Action {
            request_headers: HeaderEdit {
                remove: vec![header::COOKIE],
                ..HeaderEdit::default()
            },
            ..forward(&one, 1)
        };
        for (case, a, b, want) in [
            ("equal", forward(&one, 1), forward(&one, 1), true),
            ("weight", forward(&one, 1), forward(&one, 2), false),
            ("backend", forward(&one, 1), forward(&two, 1), false),
            ("filters", changing(), changing(), false),
            ("one filter", forward(&one, 1), changing(), false),
            ("no backend", forward(&one, 1), Action::default(), false),
        ] {
            assert_eq!(Arc::new(a).is_same_as(&Arc::new(b)), want, "{case}");
        }
        let own = Arc::new(changing());
        assert!(own.is_same_as(&own.clone()));
    }

    #[test]
    fn points_of_the_weights_belong_to_their_backends() {
        let backend = |weight| WeightedBackend {
            weight,
            backend: None,
            request_headers: HeaderEdit::default(),
            response_headers: HeaderEdit::default(),
        };
        let action = |weights: &[u32]| Action {
            backends: weights.iter().copied().map(backend).collect(),
            ..Action::default()
        };
        let three = action(&[1, 0, 3]);
        let chosen = |point| three.backend_at(point).map(|backend| backend.weight);
        assert_eq!([0, 1, 3, 4].map(chosen), [Some(1), Some(3), Some(3), None]);
        assert!(action(&[0, 0]).choose_backend().is_none());
        assert!(action(&[]).choose_backend().is_none());
    }

    #[test]
    fn client_sets_no_changed_header_by_another_spelling() {
        let value = HeaderValue::from_static("route");
        let edit = HeaderEdit {
            set: vec![(HeaderName::from_static("x-user"), value.clone())],
            add: vec![(HeaderName::from_static("x-team"), value)],
            remove: vec![
                HeaderName::from_static("x-admin"),
                HeaderName::from_static("x_role"),
            ],
        };
        let mut headers = HeaderMap::new();
        for name in [
            "x_user", "x-user", "x_team", "x_admin", "x-admin", "x-role", "x_other",
        ] {
            headers.insert(name, HeaderValue::from_static("client"));
        }
        edit.apply_to_request(&mut headers);
        let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["x-team", "x-user", "x_other"]);
        assert_eq!(headers["x-user"], "route");
        let mut untouched = HeaderMap::new();
        untouched.insert("x_user", HeaderValue::from_static("client"));
        HeaderEdit::default().apply_to_request(&mut untouched);
        assert_eq!(untouched.len(), 1);
    }

    #[test]
    fn routes_do_not_edit_headers_of_framing_and_of_the_client() {
        for (name, want) in [
            ("x-team", true),
            ("content-length", false),
            ("transfer-encoding", false),
            ("host", false),
            ("x-forwarded-for", false),
        ] {
            assert_eq!(is_editable(&HeaderName::from_static(name)), want, "{name}");
        }
    }
}
