//! Parses method and path of a request.

mod bad_path;
mod segments;

pub use bad_path::BadPath;

use crate::query::Query;
use api_meta::fields::FieldSelector;
use apiserver_request::RequestInfo;
use http::Method;
use segments::Segments;

/// Subresources of namespaces, which stand at the position of a resource in the namespace.
const OF_NAMESPACE: [&str; 2] = ["status", "finalize"];

/// The subresource after which the path belongs to a backend and is forwarded unchanged.
const PROXY: &str = "proxy";

/// Parses a request's path; `raw` is the path as sent.
pub fn parse_request_info(
    method: &Method,
    raw: &str,
    query: &Query,
) -> Result<RequestInfo, BadPath> {
    let segments = Segments::parse(raw)?;
    let words = segments.words();
    let mut info = RequestInfo {
        path: segments.path.clone(),
        verb: method.as_str().to_ascii_lowercase(),
        ..Default::default()
    };
    let begin = match words.as_slice() {
        ["api", version, _, ..] => {
            info.version = (*version).to_owned();
            2
        }
        ["apis", group, version, _, ..] => {
            (info.group, info.version) = ((*group).to_owned(), (*version).to_owned());
            3
        }
        // Paths below `/api` that are too short are discovery.
        _ => return segments.expect_clean(words.len()).map(|()| info),
    };
    info.is_resource = true;
    info.verb = method_verb(method).to_owned();
    let watched = is_watch_path(method, words.get(begin..).unwrap_or_default());
    let begin = begin + usize::from(watched);
    let subresource = begin + fill_resource(&mut info, words.get(begin..).unwrap_or_default()) + 2;
    info.rest = segments.path_after(subresource);
    // A backend may give empty segments a meaning, so those after `proxy` stay as sent.
    segments.expect_clean(if info.subresource == PROXY {
        subresource + 1
    } else {
        words.len()
    })?;
    // The deprecated form has its verb from the path, whatever the query says.
    if watched {
        info.verb = "watch".into();
    } else {
        fill_collection_verb(&mut info, query);
    }
    Ok(info)
}

/// Returns whether the path is the deprecated `/watch/RESOURCE...`. It is accepted for reads of
/// plain resources only: before a subresource it would turn any proxied request into the verb
/// `watch`.
fn is_watch_path(method: &Method, words: &[&str]) -> bool {
    let ["watch", resource @ ..] = words else {
        return false;
    };
    let mut plain = RequestInfo::default();
    fill_resource(&mut plain, resource);
    matches!(*method, Method::GET | Method::HEAD)
        && !resource.is_empty()
        && plain.subresource.is_empty()
}

fn method_verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::GET | Method::HEAD => "get",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        // As upstream, other methods have no verb, which only a rule for `*` matches.
        _ => "",
    }
}

/// Fills in namespace, resource, name and subresource; returns the position of the resource.
fn fill_resource(info: &mut RequestInfo, words: &[&str]) -> usize {
    let mut begin = 0;
    if let ["namespaces", namespace, inner @ ..] = words {
        info.namespace = (*namespace).to_owned();
        info.below_namespace = inner
            .first()
            .is_some_and(|first| !OF_NAMESPACE.contains(first));
        begin = 2 * usize::from(info.below_namespace);
    }
    let text = |at: usize| {
        words
            .get(begin + at)
            .map(|part| (*part).to_owned())
            .unwrap_or_default()
    };
    (info.resource, info.name, info.subresource) = (text(0), text(1), text(2));
    begin
}

/// Sets the verb of requests without a name: list (or watch) for reads, deletecollection for
/// deletes.
fn fill_collection_verb(info: &mut RequestInfo, query: &Query) {
    if !info.name.is_empty() {
        return;
    }
    match info.verb.as_str() {
        "get" => {
            info.verb = if query.flag("watch") { "watch" } else { "list" }.to_owned();
            // As upstream: authorization by resourceNames then covers a list or watch of one
            // object.
            info.name = selected_name(query).unwrap_or_default();
        }
        "delete" => info.verb = "deletecollection".into(),
        _ => {}
    }
}

/// Returns the name that a field selector requires, if it is a valid path segment.
fn selected_name(query: &Query) -> Option<String> {
    let selector = FieldSelector::parse(query.text("fieldSelector")).ok()?;
    let name = selector.exact("metadata.name")?;
    // Upstream's validation of path segments: authorizers must see the name as they would in a
    // path.
    let segment = !matches!(name, "." | "..") && !name.contains(['/', '%']);
    segment.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn check(method: Method, path: &str, query: &str, expect: &str) {
        let i = parse_request_info(&method, path, &Query::parse(query)).unwrap();
        let got = [
            &i.verb,
            &i.group,
            &i.version,
            &i.namespace,
            &i.resource,
            &i.name,
            &i.subresource,
            &i.rest,
        ];
        assert_eq!(got.map(String::as_str).join(" "), expect, "{path}");
    }

    #[test]
    fn path_names_verb_and_resource() {
        check(
            Method::GET,
            "/api/v1/namespaces/d/pods",
            "",
            "list  v1 d pods   ",
        );
        check(Method::GET, "/api/v1/pods", "watch=1", "watch  v1  pods   ");
        check(
            Method::GET,
            "/api/v1/namespaces/d",
            "",
            "get  v1 d namespaces d  ",
        );
        check(
            Method::PUT,
            "/api/v1/namespaces/d/finalize",
            "",
            "update  v1 d namespaces d finalize ",
        );
        check(
            Method::POST,
            "/apis/apps/v1/namespaces/d/deployments",
            "",
            "create apps v1 d deployments   ",
        );
        check(
            Method::DELETE,
            "/api/v1/nodes",
            "",
            "deletecollection  v1  nodes   ",
        );
        check(Method::GET, "/version/", "", "get       ");
        assert_eq!(
            parse_request_info(&Method::GET, "/a/../b", &Query::default()),
            Err(BadPath::Unclean("/b".into()))
        );
        assert_eq!(
            parse_request_info(&Method::GET, "/a/%zz", &Query::default()),
            Err(BadPath::Malformed)
        );
    }

    #[test]
    fn path_below_a_namespace_is_marked() {
        let below = |path: &str| {
            parse_request_info(&Method::GET, path, &Query::default())
                .unwrap()
                .below_namespace
        };
        for (path, expect) in [
            ("/api/v1/namespaces", false),
            ("/api/v1/namespaces/a", false),
            ("/api/v1/namespaces/a/status", false),
            ("/api/v1/namespaces/a/finalize", false),
            ("/api/v1/namespaces/a/namespaces", true),
            ("/api/v1/namespaces/a/namespaces/a", true),
            ("/api/v1/namespaces/a/nodes", true),
            ("/api/v1/namespaces/a%2Fnodes", true),
        ] {
            assert_eq!(below(path), expect, "{path}");
        }
    }

    #[test]
    fn proxied_path_starts_after_the_subresource() {
        for (path, expect) in [
            (
                "/api/v1/namespaces/proxy-1/services/proxy/proxy/proxy/x",
                "get  v1 proxy-1 services proxy proxy /proxy/x",
            ),
            (
                "/api/v1/namespaces/d/pods/p/proxy/a/b",
                "get  v1 d pods p proxy /a/b",
            ),
            (
                "/api/v1/namespaces/d/pods/p/proxy/a%2Fb//c//",
                "get  v1 d pods p proxy /a%2Fb//c//",
            ),
            ("/api/v1/nodes/n/proxy", "get  v1  nodes n proxy "),
            ("/api/v1/nodes/n/proxy/", "get  v1  nodes n proxy /"),
            (
                "/api/v1/nodes%2Fn%2fproxy%2Fx%41",
                "get  v1  nodes n proxy /x%41",
            ),
        ] {
            check(Method::GET, path, "", expect);
        }
        let unclean = |path| parse_request_info(&Method::GET, path, &Query::default()).is_err();
        assert!(unclean("/api/v1/nodes/../proxy/x") && unclean("/api/v1//nodes/n/proxy/x"));
        assert!(
            unclean("/api/v1/nodes/n/proxy/healthz/%2e./run"),
            "a backend resolves dots after the checks"
        );
        assert!(
            unclean("/proxy/../x"),
            "a path that is no resource has no backend"
        );
    }

    #[test]
    fn watch_prefix_is_for_reads_of_plain_resources() {
        check(
            Method::GET,
            "/api/v1/watch/namespaces/d/pods/p",
            "",
            "watch  v1 d pods p  ",
        );
        check(
            Method::GET,
            "/api/v1/watch/pods",
            "fieldSelector=metadata.name=p",
            "watch  v1  pods   ",
        );
        check(
            Method::POST,
            "/api/v1/watch/nodes/n/proxy/run",
            "",
            "create  v1  watch nodes n /proxy/run",
        );
        check(
            Method::GET,
            "/api/v1/watch/nodes/n/proxy/run",
            "",
            "get  v1  watch nodes n /proxy/run",
        );
        check(
            Method::DELETE,
            "/api/v1/watch/pods",
            "",
            "delete  v1  watch pods  ",
        );
        check(
            Method::GET,
            "/api/v1/watch/namespaces/d/status",
            "",
            "get  v1  watch namespaces d /status",
        );
    }

    #[test]
    fn selected_name_is_a_path_segment() {
        check(
            Method::GET,
            "/api/v1/pods",
            "fieldSelector=metadata.name=p",
            "list  v1  pods p  ",
        );
        check(
            Method::GET,
            "/api/v1/pods",
            "fieldSelector=metadata.name=../p",
            "list  v1  pods   ",
        );
        check(
            Method::DELETE,
            "/api/v1/pods",
            "fieldSelector=metadata.name=p",
            "deletecollection  v1  pods   ",
        );
    }
}
