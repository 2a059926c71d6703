//! Readiness of an API server, for clients that know several.
//!
//! A load balancer requests `/readyz` from each server all the time. A client requests it before it
//! uses a new connection, and after a sign that the server of its connection is not ready.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::Full;
use hyper::client::conn::http2::SendRequest;
use tokio::time::{Instant, timeout};

use crate::error::{Cause, Error, Result};
use crate::servers::ServerAddress;
use crate::token::BearerToken;

const PATH: &str = "/readyz";
/// Time for the responses of a check: requests wait for them.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Time after which a request that its caller cancels is a sign. API servers send the headers of
/// watches at once, and end other requests after a minute at most.
const SLOW: Duration = Duration::from_secs(5);

/// Signs that the server of a connection is not ready. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Suspicion(Arc<AtomicBool>);

/// A request without a response yet.
pub(crate) struct PendingRequest {
    suspicion: Suspicion,
    began: Instant,
    has_response: bool,
}

impl Suspicion {
    pub(crate) fn begin_request(&self) -> PendingRequest {
        PendingRequest {
            suspicion: self.clone(),
            began: Instant::now(),
            has_response: false,
        }
    }

    /// Removes the sign. Returns whether there was one.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }

    fn record(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl PendingRequest {
    /// Records the status of the response. Some are also those of a failing webhook or extension
    /// server, so that each is a sign only.
    pub(crate) fn end(mut self, status: StatusCode) {
        self.has_response = true;
        if matches!(
            status,
            StatusCode::INTERNAL_SERVER_ERROR
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT
        ) {
            self.suspicion.record();
        }
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        if !self.has_response && self.began.elapsed() >= SLOW {
            self.suspicion.record();
        }
    }
}

/// Checks that a server is ready. A server without the path, such as a proxy, counts as ready, and
/// so does one that rejects the request with the token and without it: its readiness is unknown.
///
/// # Errors
/// The status is one of a failed server, or there is no response within 2 s.
pub(crate) async fn check_readiness(
    sender: &SendRequest<Full<Bytes>>,
    server: &ServerAddress,
    user_agent: &str,
    token: &BearerToken,
) -> Result<()> {
    let status = async {
        // A token that can't be read fails the requests themselves.
        let header = base_task::blocking(|| token.read_header());
        // Each client may read the path, but servers may refuse requests without credentials.
        if let Some(header) = header.ok().flatten() {
            let status = request_status(sender, server, user_agent, Some(header)).await?;
            if !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
                return Ok(status);
            }
            // A server with empty caches rejects each token before it examines its readiness. It
            // also rejects one that was replaced in its file, which the next check reads again.
            token.forget();
        }
        request_status(sender, server, user_agent, None).await
    };
    match timeout(TIMEOUT, status).await {
        Ok(Ok(status)) if status.is_server_error() => {
            Err(unready_server(server, "it is not ready".into()))
        }
        Ok(status) => status.map(drop),
        Err(_) => {
            let late = format!("no response within {TIMEOUT:?}");
            Err(unready_server(server, late.into()))
        }
    }
}

async fn request_status(
    sender: &SendRequest<Full<Bytes>>,
    server: &ServerAddress,
    user_agent: &str,
    token: Option<HeaderValue>,
) -> Result<StatusCode> {
    let mut request = Request::get(server.url_of(&PathAndQuery::from_static(PATH))?)
        .header(header::USER_AGENT, user_agent);
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, token);
    }
    let request = request
        .body(Full::default())
        .map_err(|error| Error::Config(error.to_string()))?;
    let response = sender.clone().send_request(request).await;
    let response = response.map_err(|error| unready_server(server, error.into()))?;
    Ok(response.status())
}

fn unready_server(server: &ServerAddress, source: Cause) -> Error {
    Error::Connect {
        server: server.url.clone(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn signs_are_failures_of_the_server_and_requests_without_a_response() {
        for (status, seconds, is_sign) in [
            (Some(200), 60, false),
            (Some(404), 0, false),
            (Some(429), 0, false),
            (Some(500), 0, true),
            (Some(503), 0, true),
            (Some(504), 60, true),
            (None, 4, false),
            (None, 5, true),
        ] {
            let suspicion = Suspicion::default();
            let request = suspicion.begin_request();
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            match status.map(StatusCode::from_u16) {
                Some(Ok(status)) => request.end(status),
                _ => drop(request),
            }
            assert_eq!(suspicion.take(), is_sign, "{status:?} {seconds}");
            assert!(!suspicion.take());
        }
    }
}
