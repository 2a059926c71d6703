//! Serves the routes.

use crate::access::Access;
use crate::backend::{Backend, Failure, LogQuery, StreamOptions, StreamTarget};
use crate::reply::{Reply, build_reply, bytes_reply, json_reply, text_reply};
use crate::route::{Route, Segments, Stream};
use crate::{logs, stream};
use base_task::Tasks;
use base_zpages::Process;
use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use jiff::{SignedDuration, Timestamp};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN_METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const COMPONENT: &str = "kubelet";
/// Paths that `/statusz` lists.
const PATHS: [&str; 14] = [
    "/attach",
    "/configz",
    "/containerLogs",
    "/exec",
    "/flagz",
    "/healthz",
    "/livez",
    "/metrics",
    "/pods",
    "/portForward",
    "/readyz",
    "/run",
    "/runningpods",
    "/stats",
];

/// The HTTPS server.
pub struct Server {
    access: Access,
    backend: Arc<dyn Backend>,
    tasks: Tasks,
    debugging: bool,
}

impl Server {
    /// Creates a server of `backend`, guarded by `access`; streams run in `tasks`. Without
    /// `debugging` (upstream's `enableDebuggingHandlers`) streams and logs are rejected.
    pub fn new(
        access: Access,
        backend: Arc<dyn Backend>,
        tasks: Tasks,
        debugging: bool,
    ) -> Arc<Self> {
        Arc::new(Server {
            access,
            backend,
            tasks,
            debugging,
        })
    }

    /// Serves until `shutdown`.
    pub async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        options: base_serve::Options,
        shutdown: CancellationToken,
    ) {
        let service = service_fn(move |request| {
            let server = self.clone();
            async move { Ok::<_, Infallible>(server.handle_request(request).await) }
        });
        base_serve::serve_http(listener, options, service, shutdown).await;
    }

    async fn handle_request(&self, request: Request<Incoming>) -> Reply {
        let (parts, body) = request.into_parts();
        // Decoded once; authorization and routing below see the same words.
        let segments = Segments::decode(parts.uri.path());
        if let Err(e) = self.access.check_access(&parts, &segments).await {
            return e.into();
        }
        match segments.route(&parts.method) {
            // After authorization, so that clients without permissions do not learn the setting.
            Ok(route) if route.is_debugging() && !self.debugging => Failure::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "Debug endpoints are disabled.",
            )
            .into(),
            Ok(route) => self
                .serve_route(route, Request::from_parts(parts, body))
                .await
                .unwrap_or_else(Reply::from),
            Err(e) => e.into(),
        }
    }

    async fn serve_route(
        &self,
        route: Route,
        request: Request<Incoming>,
    ) -> Result<Reply, Failure> {
        let query = Query::parse(request.uri().query().unwrap_or_default());
        Ok(match route {
            Route::Health => text_reply("ok"),
            Route::Pods => json_reply(&self.backend.list_pods()),
            Route::Metrics => {
                build_reply(StatusCode::OK, OPEN_METRICS, self.backend.format_metrics())
            }
            Route::ResourceMetrics { cadvisor } => build_reply(
                StatusCode::OK,
                PLAIN_METRICS,
                self.backend.format_resource_metrics(cadvisor).await,
            ),
            // Upstream has this endpoint; without metrics of probes its page is empty.
            Route::ProbeMetrics => build_reply(StatusCode::OK, PLAIN_METRICS, ""),
            Route::Stats => json_reply(&self.backend.read_summary().await),
            Route::Configz => {
                json_reply(&serde_json::json!({"kubeletconfig": self.backend.configuration()}))
            }
            Route::Statusz => bytes_reply(base_zpages::respond_statusz(
                COMPONENT,
                Process::read(),
                PATHS.into_iter(),
                accepted_types(&request),
            )),
            Route::Flagz => bytes_reply(base_zpages::respond_flagz(
                COMPONENT,
                &base_zpages::flag_values(),
                accepted_types(&request),
            )),
            Route::Log(target) => {
                let query = parse_log_query(&query)?;
                let source = self.backend.open_log(&target, &query)?;
                logs::serve_log(source, query, &self.tasks)?
            }
            Route::Stream(kind, target) => {
                self.serve_stream(kind, &target, &query, request).await?
            }
        })
    }

    async fn serve_stream(
        &self,
        kind: Stream,
        target: &StreamTarget,
        query: &Query,
        request: Request<Incoming>,
    ) -> Result<Reply, Failure> {
        // `/run` has no stream: the command ends, and its output is the response.
        if kind == Stream::Run {
            let command = query
                .values("cmd")
                .iter()
                .flat_map(|c| c.split_whitespace())
                .map(str::to_owned)
                .collect();
            let output = self
                .backend
                .run(target, command, Duration::from_secs(60))
                .await?;
            return Ok(text_reply(output));
        }
        // Before the runtime is asked: the runtime keeps a stream URL that is never used for a
        // minute.
        stream::reject_unknown_protocols(&request)?;
        let url = match kind {
            Stream::PortForward => {
                let ports = query
                    .values("port")
                    .iter()
                    .flat_map(|p| p.split(','))
                    .filter_map(|p| p.parse().ok())
                    .collect();
                self.backend.port_forward(target, ports).await?
            }
            Stream::Attach => {
                self.backend
                    .attach(target, parse_stream_options(query)?)
                    .await?
            }
            Stream::Exec | Stream::Run => {
                self.backend
                    .exec(target, parse_stream_options(query)?)
                    .await?
            }
        };
        stream::forward_stream(&url, request, &self.tasks).await
    }
}

fn accepted_types(request: &Request<Incoming>) -> &str {
    let accept = request.headers().get(http::header::ACCEPT);
    accept
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

fn parse_stream_options(query: &Query) -> Result<StreamOptions, Failure> {
    let options = StreamOptions {
        command: query.values("command"),
        stdin: query.flag("input") || query.flag("stdin"),
        stdout: query.flag("output") || query.flag("stdout"),
        stderr: query.flag("error") || query.flag("stderr"),
        tty: query.flag("tty"),
    };
    if !options.stdin && !options.stdout && !options.stderr {
        return Err(Failure::bad_request(
            "you must specify at least 1 of stdin, stdout, stderr",
        ));
    }
    // A terminal merges both outputs into one.
    Ok(StreamOptions {
        stderr: options.stderr && !options.tty,
        ..options
    })
}

fn parse_log_query(query: &Query) -> Result<LogQuery, Failure> {
    let number = |key: &str| match query.value(key) {
        None => Ok(None),
        Some(text) => text
            .parse::<u64>()
            .map(Some)
            .map_err(|_| Failure::bad_request(format!("{key}: {text:?} is no number"))),
    };
    let since_time = match query.value("sinceTime") {
        Some(text) => Some(
            text.parse::<Timestamp>()
                .map_err(|_| Failure::bad_request(format!("sinceTime: {text:?} is no time")))?,
        ),
        None => None,
    };
    // Both may be given; validation of the API server rejects that, and here the exact time wins.
    let seconds = number("sinceSeconds")?.and_then(|s| i64::try_from(s).ok());
    let since = seconds.and_then(|s| {
        Timestamp::now()
            .checked_sub(SignedDuration::from_secs(s))
            .ok()
    });
    Ok(LogQuery {
        follow: query.flag("follow"),
        previous: query.flag("previous"),
        timestamps: query.flag("timestamps"),
        tail: number("tailLines")?,
        limit: number("limitBytes")?,
        since: since_time.or(since),
        stderr: match query.value("stream").as_deref() {
            Some("Stderr") => Some(true),
            Some("Stdout") => Some(false),
            _ => None,
        },
    })
}

/// Query parameters of a URL.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    fn parse(text: &str) -> Self {
        Query(
            url::form_urlencoded::parse(text.as_bytes())
                .into_owned()
                .collect(),
        )
    }

    fn values(&self, key: &str) -> Vec<String> {
        self.0
            .iter()
            .filter(|(k, _)| k == key)
            .map(|(_, v)| v.clone())
            .collect()
    }

    fn value(&self, key: &str) -> Option<String> {
        self.0
            .iter()
            .find(|(k, v)| k == key && !v.is_empty())
            .map(|(_, v)| v.clone())
    }

    fn flag(&self, key: &str) -> bool {
        matches!(self.value(key).as_deref(), Some("true" | "1" | "True"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn log_query_is_read_from_the_parameters_of_kubectl() {
        let query = parse_log_query(&Query::parse(
            "follow=true&previous=1&timestamps=True&tailLines=5&limitBytes=9&stream=Stderr",
        ))
        .unwrap();
        let expected = LogQuery {
            follow: true,
            previous: true,
            timestamps: true,
            tail: Some(5),
            limit: Some(9),
            since: None,
            stderr: Some(true),
        };
        assert_eq!(query, expected);
        let all = parse_log_query(&Query::parse("stream=All&follow=false&tailLines=")).unwrap();
        assert_eq!(all, LogQuery::default());
    }

    #[test]
    fn log_query_starts_at_a_time_or_some_seconds_ago() {
        let at = "2026-01-01T00:00:00Z";
        let query = format!("sinceTime={at}&sinceSeconds=60");
        let given = parse_log_query(&Query::parse(&query)).unwrap();
        assert_eq!(given.since, at.parse().ok(), "the time has precedence");
        let ago = parse_log_query(&Query::parse("sinceSeconds=60")).unwrap();
        let age = Timestamp::now().duration_since(ago.since.unwrap());
        assert!((60..70).contains(&age.as_secs()), "{age}");
    }

    #[test]
    fn log_query_with_an_invalid_value_is_a_bad_request() {
        for query in [
            "tailLines=-1",
            "limitBytes=x",
            "sinceSeconds=1.5",
            "sinceTime=now",
        ] {
            let failure = parse_log_query(&Query::parse(query)).unwrap_err();
            assert_eq!(failure.status, StatusCode::BAD_REQUEST, "{query}");
        }
    }

    #[test]
    fn stream_options_are_read_in_both_spellings() {
        for (query, expected) in [
            ("input=1&output=1&error=1", Some((true, true, true, false))),
            ("stdin=true&stdout=true", Some((true, true, false, false))),
            ("stdout=1&stderr=1&tty=1", Some((false, true, false, true))),
            ("command=ls", None),
            ("tty=1", None),
        ] {
            let options = parse_stream_options(&Query::parse(query)).ok();
            let found = options.map(|o| (o.stdin, o.stdout, o.stderr, o.tty));
            assert_eq!(found, expected, "{query}");
        }
        let words = parse_stream_options(&Query::parse("stdout=1&command=a&command=b%20c"));
        assert_eq!(words.unwrap().command, ["a", "b c"]);
    }
}
