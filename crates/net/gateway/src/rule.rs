//! Rules of routes: which requests they match, and in which order they are tried.
//!
//! The order is that of the Gateway API's HTTPRouteMatch. Ingress has the same rules for paths.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Uri};

use crate::action::Action;
use crate::path_match::PathMatch;

/// The requests to which a rule applies.
#[derive(Clone, Debug)]
pub struct RequestMatch {
    /// Match of the path.
    pub path: PathMatch,
    /// Method, if it matters.
    pub method: Option<Method>,
    /// Headers with their values; all must be present.
    pub headers: Vec<(HeaderName, String)>,
    /// Query parameters with their values; all must be present.
    pub query: Vec<(String, String)>,
}

impl RequestMatch {
    /// Returns a match of a path alone.
    pub fn of_path(path: PathMatch) -> Self {
        Self {
            path,
            method: None,
            headers: Vec::new(),
            query: Vec::new(),
        }
    }

    fn matches(&self, request: &RequestParts<'_>) -> bool {
        let has_header = |(name, value): &(HeaderName, String)| {
            let values = request.headers.get_all(name).iter().take(MAX_VALUES);
            let mut values = values.map(HeaderValue::as_bytes);
            values.any(|found| found == value.as_bytes())
        };
        let has_parameter = |(name, value): &(String, String)| {
            let found = request.query().get(name.as_str());
            found.is_some_and(|found| found == value.as_str())
        };
        let method = self.method.as_ref();
        self.path.matches(request.uri.path())
            && method.is_none_or(|wanted| wanted == request.method)
            && self.headers.iter().all(has_header)
            && self.query.iter().all(has_parameter)
    }
}

/// Maximum number of values of a header that are compared with a rule's.
const MAX_VALUES: usize = 16;

/// Parts of a request that decide about its rule.
struct RequestParts<'a> {
    method: &'a Method,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    /// Query parameters, read once for all rules, and only if one of them needs them.
    query: OnceCell<HashMap<Cow<'a, str>, Cow<'a, str>>>,
}

impl<'a> RequestParts<'a> {
    fn new(method: &'a Method, uri: &'a Uri, headers: &'a HeaderMap) -> Self {
        Self {
            method,
            uri,
            headers,
            query: OnceCell::new(),
        }
    }

    fn query(&self) -> &HashMap<Cow<'a, str>, Cow<'a, str>> {
        self.query.get_or_init(|| {
            let mut parameters = HashMap::new();
            let query = self.uri.query().unwrap_or_default();
            for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
                // The first value of a repeated parameter counts, as in Envoy.
                parameters.entry(name).or_insert(value);
            }
            parameters
        })
    }
}

/// Position of an object among those of its kind: the oldest first, then by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Age {
    /// Creation time in seconds since 1970.
    pub created: i64,
    /// `namespace/name`.
    pub key: String,
}

/// A rule for one match.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Requests to which it applies.
    pub matches: RequestMatch,
    /// True for the default backend of an Ingress, which is tried after all rules.
    pub is_fallback: bool,
    /// Age of the object that has it.
    pub age: Age,
    /// Position in that object.
    pub index: usize,
    /// The response to a request.
    pub action: Arc<Action>,
}

impl Rule {
    /// Returns the namespace of the object that has it.
    pub fn namespace(&self) -> &str {
        let key = self.age.key.split_once('/');
        key.map_or("", |(namespace, _)| namespace)
    }

    /// Returns the key by which the rules of a host are sorted.
    fn precedence(&self) -> impl Ord + use<> {
        use std::cmp::Reverse;
        let found = &self.matches;
        let (is_prefix, length) = match &found.path {
            PathMatch::Exact(path) => (false, path.len()),
            PathMatch::Prefix(path) => (true, path.len()),
        };
        (
            self.is_fallback,
            is_prefix,
            Reverse(length),
            found.method.is_none(),
            Reverse(found.headers.len()),
            Reverse(found.query.len()),
            self.age.clone(),
            self.index,
        )
    }
}

/// Maximum number of rules of a host; further ones are not served.
pub(crate) const MAX_RULES_OF_HOST: usize = 4096;

/// The rules of one host, in the order in which they are tried.
#[derive(Clone, Debug, Default)]
pub struct VirtualHost {
    rules: Vec<Arc<Rule>>,
}

impl VirtualHost {
    /// Adds a rule. [`VirtualHost::sort_rules`] must follow.
    pub fn add_rule(&mut self, rule: Arc<Rule>) {
        if self.rules.len() < MAX_RULES_OF_HOST {
            self.rules.push(rule);
        }
    }

    /// Sorts the rules by precedence.
    pub fn sort_rules(&mut self) {
        self.rules.sort_by_cached_key(|rule| rule.precedence());
    }

    /// Returns the first rule that matches a request.
    pub fn find_rule(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<&Rule> {
        let request = RequestParts::new(method, uri, headers);
        let mut rules = self.rules.iter().map(Arc::as_ref);
        rules.find(|rule| rule.matches.matches(&request))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn rule(name: &str, created: i64, index: usize, matches: RequestMatch) -> Rule {
        Rule {
            matches,
            is_fallback: name == "fallback",
            age: Age {
                created,
                key: format!("n/{name}"),
            },
            index,
            action: Arc::default(),
        }
    }

    fn path(path: PathMatch) -> RequestMatch {
        RequestMatch::of_path(path)
    }

    fn slash() -> RequestMatch {
        path(PathMatch::prefix("/"))
    }

    fn header(count: u8) -> Vec<(HeaderName, String)> {
        let all = (0..count).map(|n| {
            let name = HeaderName::try_from(format!("x-{n}")).unwrap();
            (name, "1".to_owned())
        });
        all.collect()
    }

    #[test]
    fn rules_are_tried_in_the_order_of_the_specification() {
        let query = vec![("q".to_owned(), "1".to_owned())];
        // In the order in which they must be tried.
        let sorted = vec![
            rule("exact", 9, 0, path(PathMatch::Exact("/a/b".into()))),
            rule("long", 9, 0, path(PathMatch::prefix("/a/b"))),
            rule("short", 9, 0, path(PathMatch::prefix("/a"))),
            rule(
                "method",
                9,
                0,
                RequestMatch {
                    method: Some(Method::GET),
                    ..slash()
                },
            ),
            rule(
                "headers",
                9,
                0,
                RequestMatch {
                    headers: header(2),
                    ..slash()
                },
            ),
            rule(
                "header",
                9,
                0,
                RequestMatch {
                    headers: header(1),
                    ..slash()
                },
            ),
            rule("query", 9, 0, RequestMatch { query, ..slash() }),
            rule("old", 1, 5, slash()),
            rule("new-a", 2, 0, slash()),
            rule("new-a", 2, 1, slash()),
            rule("new-b", 2, 0, slash()),
            rule("fallback", 0, 0, slash()),
        ];
        let mut host = VirtualHost::default();
        let sorted: Vec<Arc<Rule>> = sorted.into_iter().map(Arc::new).collect();
        for rule in sorted.iter().rev() {
            host.add_rule(rule.clone());
        }
        host.sort_rules();
        let names = |rules: &[Arc<Rule>]| {
            let names = rules
                .iter()
                .map(|rule| format!("{}#{}", rule.age.key, rule.index));
            names.collect::<Vec<_>>()
        };
        assert_eq!(names(&host.rules), names(&sorted));
    }

    #[test]
    fn query_is_read_once_for_all_rules() {
        let uri = "/?a=1&a=2&b=%20".parse().unwrap();
        let (method, headers) = (Method::GET, HeaderMap::new());
        let request = RequestParts::new(&method, &uri, &headers);
        assert!(slash().matches(&request));
        assert!(request.query.get().is_none(), "no rule needs it");
        let query = vec![
            ("a".to_owned(), "1".to_owned()),
            ("b".to_owned(), " ".to_owned()),
        ];
        assert!(RequestMatch { query, ..slash() }.matches(&request));
        assert_eq!(request.query.get().map(HashMap::len), Some(2));
    }

    #[test]
    fn request_must_have_method_headers_and_query_of_a_match() {
        let wanted = RequestMatch {
            method: Some(Method::GET),
            headers: vec![(HeaderName::from_static("version"), "two".into())],
            query: vec![("animal".into(), "big whale".into())],
            ..path(PathMatch::prefix("/x"))
        };
        for (method, uri, version, is_match) in [
            (Method::GET, "/x?animal=big%20whale", "two", true),
            (
                Method::GET,
                "/x?a=b&animal=big+whale&animal=no",
                "two",
                true,
            ),
            (Method::GET, "/x?animal=no&animal=big+whale", "two", false),
            (Method::GET, "/x?animal=big%20whale", "three", false),
            (Method::POST, "/x?animal=big%20whale", "two", false),
            (Method::GET, "/x", "two", false),
        ] {
            let headers = HeaderMap::from_iter([(
                HeaderName::from_static("version"),
                version.parse().unwrap(),
            )]);
            let uri = uri.parse().unwrap();
            let found = wanted.matches(&RequestParts::new(&method, &uri, &headers));
            assert_eq!(found, is_match, "{method} {uri} {version}");
        }
    }
}
