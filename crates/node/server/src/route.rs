//! Maps path and method to a route and to the required permission.
//!
//! Invariant: the path is decoded once, and authorization and routing use the same [`Route`].
//! Authorizing the encoded path and routing the decoded one let `GET /%65xec/...` pass as a read.

use crate::backend::{Failure, StreamTarget};
use http::{Method, StatusCode};
use percent_encoding::percent_decode_str;

/// A stream, or a command in a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Exec,
    Attach,
    PortForward,
    Run,
}

/// An endpoint of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Health,
    Pods,
    Metrics,
    ResourceMetrics { cadvisor: bool },
    ProbeMetrics,
    Stats,
    Configz,
    Statusz,
    Flagz,
    Log(StreamTarget),
    Stream(Stream, StreamTarget),
}

impl Route {
    /// Returns whether `enableDebuggingHandlers` controls it.
    pub(crate) fn is_debugging(&self) -> bool {
        matches!(self, Route::Stream(..) | Route::Log(_))
    }
}

/// The permission that a request needs, as attributes of a SubjectAccessReview for `nodes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permission {
    pub(crate) verb: &'static str,
    /// One of KEP-2862's subresources; `proxy` covers all.
    pub(crate) subresource: &'static str,
}

/// The decoded segments of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segments(Vec<String>);

impl Segments {
    pub(crate) fn decode(path: &str) -> Self {
        let decode = |word: &str| percent_decode_str(word).decode_utf8_lossy().into_owned();
        Segments(path.trim_matches('/').split('/').map(decode).collect())
    }

    fn as_strs(&self) -> Vec<&str> {
        self.0.iter().map(String::as_str).collect()
    }

    /// Returns the permission that a request needs. An unknown path needs one too, so that clients
    /// without permissions learn nothing.
    pub(crate) fn required_permission(&self, method: &Method) -> Permission {
        let words = self.as_strs();
        let first = words.first().copied().unwrap_or_default();
        // Upstream derives the verb from the method; HEAD is a read.
        let verb = match method.as_str() {
            // Commands need `create` whatever the method: a WebSocket always begins with GET.
            _ if matches!(first, "exec" | "attach" | "portForward" | "run" | "cri") => "create",
            "POST" => "create",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" => "delete",
            _ => "get",
        };
        let subresource = match first {
            "stats" => "stats",
            "metrics" => "metrics",
            "logs" => "log",
            "pods" | "runningpods" => "pods",
            "healthz" => "healthz",
            // Upstream has no subresource of its own for flags, which are configuration.
            "configz" | "flagz" => "configz",
            "statusz" => "statusz",
            _ => "proxy",
        };
        Permission { verb, subresource }
    }

    /// Returns the route.
    ///
    /// # Errors
    /// 404 for an unknown path, 405 for a method that the path does not have.
    pub(crate) fn route(&self, method: &Method) -> Result<Route, Failure> {
        let route = self
            .find_route()
            .ok_or_else(|| Failure::not_found("404 page not found"))?;
        // 405 before anything is done: a command must never run by a method that is not meant for
        // it.
        let methods: &[Method] = match route {
            Route::Stream(Stream::Run, _) => &[Method::POST],
            Route::Stream(..) => &[Method::GET, Method::POST],
            _ => &[Method::GET, Method::HEAD],
        };
        if !methods.contains(method) {
            return Err(Failure::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "405: Method Not Allowed",
            ));
        }
        Ok(route)
    }

    fn find_route(&self) -> Option<Route> {
        Some(match self.as_strs().as_slice() {
            ["healthz" | "livez" | "readyz"] | ["healthz", "ping" | "syncloop" | "log"] => {
                Route::Health
            }
            ["pods"] | ["runningpods"] => Route::Pods,
            ["metrics"] => Route::Metrics,
            ["metrics", "resource"] => Route::ResourceMetrics { cadvisor: false },
            ["metrics", "cadvisor"] => Route::ResourceMetrics { cadvisor: true },
            ["metrics", "probes"] => Route::ProbeMetrics,
            ["stats"] | ["stats", "summary"] => Route::Stats,
            ["configz"] => Route::Configz,
            ["statusz"] => Route::Statusz,
            ["flagz"] => Route::Flagz,
            ["containerLogs", namespace, pod, container] => {
                Route::Log(build_target(namespace, pod, None, container))
            }
            ["portForward", namespace, pod] => {
                Route::Stream(Stream::PortForward, build_target(namespace, pod, None, ""))
            }
            ["portForward", namespace, pod, uid] => Route::Stream(
                Stream::PortForward,
                build_target(namespace, pod, Some(uid), ""),
            ),
            [word, namespace, pod, container] => Route::Stream(
                parse_command(word)?,
                build_target(namespace, pod, None, container),
            ),
            [word, namespace, pod, uid, container] => Route::Stream(
                parse_command(word)?,
                build_target(namespace, pod, Some(uid), container),
            ),
            _ => return None,
        })
    }
}

fn parse_command(word: &str) -> Option<Stream> {
    match word {
        "exec" => Some(Stream::Exec),
        "attach" => Some(Stream::Attach),
        "run" => Some(Stream::Run),
        _ => None,
    }
}

fn build_target(namespace: &str, pod: &str, uid: Option<&str>, container: &str) -> StreamTarget {
    StreamTarget {
        namespace: namespace.to_owned(),
        pod: pod.to_owned(),
        uid: uid.map(str::to_owned),
        container: container.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn commands_need_create_in_every_spelling_and_by_every_method() {
        for path in [
            "/exec/ns/p/c",
            "/%65xec/ns/p/c",
            "//exec/ns/p/c",
            "/%72un/ns/p/c",
            "/attach/ns/p/u/c",
        ] {
            for method in [Method::GET, Method::HEAD, Method::POST] {
                let right = Segments::decode(path).required_permission(&method);
                assert_eq!(
                    right,
                    Permission {
                        verb: "create",
                        subresource: "proxy"
                    },
                    "{method} {path}"
                );
            }
        }
    }

    #[test]
    fn every_route_that_runs_a_command_needs_create() {
        // A double-encoded path is decoded once, by both.
        let first = [
            "exec",
            "%65xec",
            "e%78ec",
            "%2565xec",
            "run",
            "r%75n",
            "%2Frun",
            "attach",
            "portForward",
        ];
        for word in first {
            for method in [Method::GET, Method::POST] {
                let segments = Segments::decode(&format!("/{word}/ns/p/c"));
                if let Ok(Route::Stream(..)) = segments.route(&method) {
                    assert_eq!(
                        segments.required_permission(&method).verb,
                        "create",
                        "{method} {word}"
                    );
                }
            }
        }
    }

    #[test]
    fn reads_need_the_subresource_of_their_path() {
        for (path, subresource) in [
            ("/pods", "pods"),
            ("/%70ods", "pods"),
            ("/containerLogs/ns/p/c", "proxy"),
            ("/stats/summary", "stats"),
            ("/metrics/cadvisor", "metrics"),
            ("/healthz", "healthz"),
            ("/configz", "configz"),
            ("/flagz", "configz"),
            ("/statusz", "statusz"),
        ] {
            let segments = Segments::decode(path);
            assert_eq!(
                segments.required_permission(&Method::GET),
                Permission {
                    verb: "get",
                    subresource
                },
                "{path}"
            );
            assert!(segments.route(&Method::GET).is_ok(), "{path}");
        }
    }

    #[test]
    fn unsupported_methods_are_rejected() {
        for (method, path, status) in [
            (Method::GET, "/run/ns/p/c", 405),
            (Method::PUT, "/exec/ns/p/c", 405),
            (Method::POST, "/pods", 405),
            (Method::POST, "/statusz", 405),
            (Method::PUT, "/flagz", 405),
            (Method::DELETE, "/containerLogs/ns/p/c", 405),
            (Method::GET, "/exec%2Fns%2Fp%2Fc", 404),
            (Method::GET, "/nothing", 404),
        ] {
            let failure = Segments::decode(path).route(&method).unwrap_err();
            assert_eq!(failure.status.as_u16(), status, "{method} {path}");
        }
        assert!(Segments::decode("/run/ns/p/c").route(&Method::POST).is_ok());
    }

    #[test]
    fn pod_is_addressed_with_and_without_its_uid() {
        let of = |path: &str| match Segments::decode(path).route(&Method::POST) {
            Ok(Route::Stream(stream, target)) => Some((stream, target)),
            _ => None,
        };
        let container = |uid| Some(build_target("ns", "p", uid, "c"));
        let ports = |uid| Some(build_target("ns", "p", uid, ""));
        for (path, stream, target) in [
            ("/exec/ns/p/c", Stream::Exec, container(None)),
            ("/exec/ns/p/u/c", Stream::Exec, container(Some("u"))),
            ("/attach/ns/p/c", Stream::Attach, container(None)),
            ("/run/ns/p/u/c", Stream::Run, container(Some("u"))),
            ("/portForward/ns/p", Stream::PortForward, ports(None)),
            ("/portForward/ns/p/u", Stream::PortForward, ports(Some("u"))),
        ] {
            assert_eq!(of(path), target.map(|target| (stream, target)), "{path}");
        }
        assert_eq!(of("/exec/ns/p"), None);
    }

    #[test]
    fn debugging_handlers_are_streams_and_logs() {
        for (path, method, debugging) in [
            ("/exec/ns/p/c", Method::POST, true),
            ("/run/ns/p/c", Method::POST, true),
            ("/containerLogs/ns/p/c", Method::GET, true),
            ("/pods", Method::GET, false),
            ("/metrics", Method::GET, false),
            ("/healthz", Method::GET, false),
        ] {
            let route = Segments::decode(path).route(&method).unwrap();
            assert_eq!(route.is_debugging(), debugging, "{path}");
        }
    }
}
