//! Forwards requests to endpoints.
//!
//! Invariant: a request that an endpoint may have received is not sent to another one.

use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use base_serve::{ConnectionHandle, Peer};
use base_task::Tasks;
use bytes::Bytes;
use http::header::{CONNECTION, HOST, HeaderMap, HeaderValue, UPGRADE};
use http::{Request, Response, StatusCode, Uri, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

use crate::action::{Action, WeightedBackend};
use crate::backend::{Backend, Protocol};
use crate::connections::{Connection, Connections};
use crate::headers::{
    ClientSide, HopMarker, is_websocket_upgrade, remove_connection_headers, write_client_headers,
};
use crate::idle::{BodyError, IdleBody, copy_until_idle};
use crate::metrics::Metrics;
use crate::places::{Places, RequestPlace, place_head};
use crate::readings::list_readings;
use crate::refusal::{Refusal, ResponseBody, redirect_response};
use crate::rule::Rule;
use crate::table::{RoutingTable, Scheme};
use crate::target::{Target, decode_unreserved, read_target, replace_path};
use crate::unread::ResponseParts;
use crate::upload::{Progress, UploadBody};

/// Endpoints that are tried for a request.
const ATTEMPTS: usize = 3;

/// Time limits of the proxy.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Time for the headers of a response, after the last part of the request was sent.
    pub response: Duration,
    /// Time in which nothing of a body or a WebSocket is transferred.
    pub idle: Duration,
    /// Time for open requests to finish after shutdown.
    pub drain: Duration,
}

/// Limits of the proxy.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time limits.
    pub timeouts: Timeouts,
    /// Maximum size of the body of a request in bytes; `None` for no limit.
    pub body: Option<u64>,
    /// Maximum number of requests in progress.
    pub requests: usize,
}

/// A port of the gateway.
#[derive(Clone, Debug)]
pub(crate) struct FrontPort {
    pub(crate) scheme: Scheme,
    /// Port at which clients reach it.
    pub(crate) port: u16,
    /// Routes that are served at it.
    pub(crate) table: Arc<ArcSwap<RoutingTable>>,
}

/// The proxy.
pub(crate) struct Proxy {
    connections: Connections,
    timeouts: Timeouts,
    max_body: Option<u64>,
    metrics: Arc<Metrics>,
    places: Places,
    hop: HopMarker,
    transfers: Tasks,
    websockets: Tasks,
}

/// A response with its connection.
type EndpointResponse = (SocketAddr, Connection, Response<Incoming>);

/// Limit of the wait for a response.
struct ResponseWait {
    limit: Duration,
    /// The upload, whose time does not count; `None` if the limit is for all.
    upload: Option<Arc<Progress>>,
}

/// The end of one attempt.
enum Attempt {
    Responded(Box<EndpointResponse>),
    /// Nothing was sent; the request is complete.
    Unsent(Request<UploadBody>),
    Failed(Refusal),
}

impl Proxy {
    /// Returns a proxy; `connections` are the tasks of its connections to endpoints, `websockets`
    /// those of WebSockets.
    pub(crate) fn new(
        limits: Limits,
        metrics: Arc<Metrics>,
        connections: Tasks,
        websockets: Tasks,
    ) -> Self {
        Self {
            connections: Connections::new(connections.clone(), limits.timeouts.idle),
            transfers: connections,
            timeouts: limits.timeouts,
            max_body: limits.body,
            metrics,
            places: Places::new(limits.requests),
            hop: HopMarker::random(),
            websockets,
        }
    }

    /// Returns the connections, for their maintenance.
    pub(crate) fn connections(&self) -> Connections {
        self.connections.clone()
    }

    /// Responds to a request.
    pub(crate) async fn respond(
        &self,
        front: &FrontPort,
        request: Request<Incoming>,
    ) -> Response<ResponseBody> {
        let response = self.route_request(front, request).await;
        let response = response.unwrap_or_else(Refusal::into_response);
        self.metrics.count_response(front.scheme, response.status());
        response
    }

    async fn route_request(
        &self,
        front: &FrontPort,
        mut request: Request<Incoming>,
    ) -> Result<Response<ResponseBody>, Refusal> {
        let peer = request.extensions().get::<Peer>().cloned();
        let peer = peer.ok_or(Refusal::BadRequest("no peer"))?;
        let target = read_target(&request, peer.server_name.as_deref())?;
        if self.hop.is_in(request.headers()) {
            return Err(Refusal::Loop);
        }
        decode_unreserved(request.uri_mut());
        let table = front.table.load_full();
        let rule = find_only_rule(&table, front.scheme, &target.host, &request)?;
        let (uri, action) = (request.uri(), &rule.action);
        if let Some(redirect) = &action.redirect {
            let own = (front.scheme.as_str(), front.port);
            let location = redirect.locate(&rule.matches.path, uri, &target.host, own);
            let location = location.ok_or(Refusal::BadRequest("no redirect is possible"))?;
            let mut response = redirect_response(redirect.status, location);
            action.response_headers.apply(response.headers_mut());
            // Its location has the path of the request, which may be long.
            let place = self.places.take_request(peer.addr.ip(), rule.namespace());
            let place = place.ok_or(Refusal::Unavailable)?;
            place_head(response.headers_mut(), &Arc::new(place));
            return Ok(response);
        }
        let chosen = action.choose_backend().ok_or(Refusal::NoBackend)?;
        let backend = chosen.backend.as_deref().ok_or(Refusal::NoBackend)?;
        let client = ClientSide {
            address: peer.addr.ip(),
            scheme: front.scheme.as_str(),
            port: front.port,
            authority: &target.authority,
        };
        let exchange = self.forward(request, rule, (chosen, backend), &target, &client);
        let Some(limit) = action.request_timeout else {
            return exchange.await;
        };
        timeout(limit, exchange)
            .await
            .map_err(|_| Refusal::Timeout)?
    }

    async fn forward(
        &self,
        mut request: Request<Incoming>,
        rule: &Rule,
        (chosen, backend): (&WeightedBackend, &Backend),
        target: &Target,
        client: &ClientSide<'_>,
    ) -> Result<Response<ResponseBody>, Refusal> {
        let place = self.places.take_request(client.address, &backend.namespace);
        let place = Arc::new(place.ok_or(Refusal::Unavailable)?);
        let protocol = backend.protocol();
        let upgrade = (request.version() == Version::HTTP_11
            && protocol == Protocol::Http1
            && is_websocket_upgrade(request.headers()))
        .then(|| hyper::upgrade::on(&mut request));
        let action: &Action = &rule.action;
        let deadline = action.request_timeout;
        let deadline = deadline.and_then(|limit| Instant::now().checked_add(limit));
        let (mut parts, body) = request.into_parts();
        let of_response = self.begin_response(place.clone(), parts.extensions.remove());
        let max_body = self.max_body.unwrap_or(u64::MAX);
        if body.size_hint().lower() > max_body {
            return Err(Refusal::TooLarge);
        }
        let body = IdleBody::new(body, self.timeouts.idle);
        let body = UploadBody::new(body, max_body, place.clone());
        let upload = body.progress();
        let request = Request::from_parts(parts, body);
        let mut outgoing =
            self.build_request(request, rule, chosen, target, client, upgrade.is_some())?;
        if protocol == Protocol::Http2 {
            use_http2(&mut outgoing)?;
        }
        let wait = match action.backend_timeout {
            Some(limit) => ResponseWait {
                limit,
                upload: None,
            },
            None => ResponseWait {
                limit: self.timeouts.response,
                upload: Some(upload.clone()),
            },
        };
        let exchanged = self.exchange(backend, outgoing, &wait).await;
        let exchanged = exchanged.map_err(|refusal| match upload.is_too_large() {
            true => Refusal::TooLarge,
            false => refusal,
        });
        let (endpoint, connection, response) = exchanged?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let upgrade = upgrade.ok_or(Refusal::BadGateway)?;
            let place = self
                .places
                .take_websocket(client.address, &backend.namespace);
            return self.switch_protocols(upgrade, response, place.ok_or(Refusal::Unavailable)?);
        }
        let exchanged = (endpoint, connection, response);
        let mut response = self.pass_response(exchanged, deadline, of_response);
        chosen.response_headers.apply(response.headers_mut());
        action.response_headers.apply(response.headers_mut());
        if response.body().is_end_stream() {
            place_head(response.headers_mut(), &place);
        }
        Ok(response)
    }

    /// Returns a response without a part, which its client must read.
    fn begin_response(
        &self,
        place: Arc<RequestPlace>,
        client: Option<ConnectionHandle>,
    ) -> ResponseParts {
        ResponseParts::new(place, client, self.timeouts.idle, self.transfers.clone())
    }

    /// Returns the response for the client. The connection is kept after it. Its body and the parts
    /// that are not sent yet occupy the place.
    fn pass_response(
        &self,
        (endpoint, connection, mut response): EndpointResponse,
        deadline: Option<Instant>,
        response_parts: ResponseParts,
    ) -> Response<ResponseBody> {
        remove_connection_headers(response.headers_mut());
        let (mut parts, body) = response.into_parts();
        // The version of the client's connection is its own.
        parts.version = Version::default();
        parts.extensions.clear();
        let body = EndpointBody {
            inner: IdleBody::new(body, self.timeouts.idle),
            connection: Some((endpoint, connection)),
            connections: self.connections.clone(),
            idle: self.timeouts.idle,
            deadline,
            parts: response_parts,
        };
        body.limit_sending();
        Response::from_parts(parts, body.boxed_unsync())
    }

    fn build_request(
        &self,
        request: Request<UploadBody>,
        rule: &Rule,
        chosen: &WeightedBackend,
        target: &Target,
        client: &ClientSide<'_>,
        is_upgrade: bool,
    ) -> Result<Request<UploadBody>, Refusal> {
        let action = &rule.action;
        let rewrite = action.rewrite.as_ref();
        let path = match rewrite {
            None => request.uri().path_and_query().cloned(),
            Some(rewrite) => rewrite.rewrite_path(&rule.matches.path, request.uri()),
        };
        let path = path.ok_or(Refusal::BadRequest("the path can't be rewritten"))?;
        let (parts, body) = request.into_parts();
        let mut outgoing = Request::new(body);
        *outgoing.method_mut() = parts.method;
        *outgoing.uri_mut() = Uri::from(path);
        let mut headers: HeaderMap = parts.headers;
        remove_connection_headers(&mut headers);
        write_client_headers(&mut headers, client);
        action.request_headers.apply_to_request(&mut headers);
        chosen.request_headers.apply_to_request(&mut headers);
        let host = rewrite.and_then(|rewrite| rewrite.hostname.clone());
        headers.insert(HOST, host.unwrap_or_else(|| target.authority.clone()));
        // After the changes of the route, which must not remove it.
        self.hop.add_to(&mut headers);
        if is_upgrade {
            write_upgrade(&mut headers);
        }
        *outgoing.headers_mut() = headers;
        Ok(outgoing)
    }

    /// Sends a request to the first endpoint that can be connected.
    async fn exchange(
        &self,
        backend: &Backend,
        mut request: Request<UploadBody>,
        wait: &ResponseWait,
    ) -> Result<EndpointResponse, Refusal> {
        let endpoints = backend.choose_endpoints(ATTEMPTS);
        if endpoints.is_empty() {
            return Err(Refusal::Unavailable);
        }
        let protocol = match request.version() {
            Version::HTTP_2 => Protocol::Http2,
            _ => Protocol::Http1,
        };
        for endpoint in endpoints {
            // The endpoint may close a kept connection at the same moment; then nothing is sent.
            if let Some(kept) = self.connections.take_open(endpoint, protocol) {
                match send_request(endpoint, kept, request, wait).await {
                    Attempt::Responded(response) => return Ok(*response),
                    Attempt::Failed(refusal) => return Err(refusal),
                    Attempt::Unsent(unsent) => request = unsent,
                }
            }
            let connection = match self.connections.connect(endpoint, protocol).await {
                Ok(connection) => connection,
                Err(error) => {
                    tracing::debug!(%endpoint, %error, "endpoint not reached");
                    self.metrics
                        .failed_connections
                        .fetch_add(1, Ordering::Relaxed);
                    continue;
                }
            };
            match send_request(endpoint, connection, request, wait).await {
                Attempt::Responded(response) => return Ok(*response),
                Attempt::Failed(refusal) => return Err(refusal),
                Attempt::Unsent(unsent) => request = unsent,
            }
        }
        Err(Refusal::BadGateway)
    }

    /// Connects the two ends of a WebSocket.
    fn switch_protocols(
        &self,
        client: OnUpgrade,
        mut response: Response<Incoming>,
        place: RequestPlace,
    ) -> Result<Response<ResponseBody>, Refusal> {
        if !is_websocket_upgrade(response.headers()) {
            return Err(Refusal::BadGateway);
        }
        let endpoint = hyper::upgrade::on(&mut response);
        let (metrics, timeouts) = (self.metrics.clone(), self.timeouts);
        let shutdown = self.websockets.shutdown().clone();
        self.websockets.spawn_isolated("websocket", async move {
            let _place = place;
            let both = async { tokio::try_join!(client, endpoint) };
            // A client that does not wait for the response is no error.
            let Ok(Ok((client, endpoint))) = timeout(timeouts.response, both).await else {
                return;
            };
            metrics.websockets.fetch_add(1, Ordering::Relaxed);
            let drained = async {
                shutdown.cancelled().await;
                tokio::time::sleep(timeouts.drain).await;
            };
            tokio::select! {
                () = copy_until_idle(TokioIo::new(client), TokioIo::new(endpoint), timeouts.idle) => {}
                () = drained => {}
            }
            metrics.websockets.fetch_sub(1, Ordering::Relaxed);
        });
        let headers = response.headers_mut();
        remove_connection_headers(headers);
        write_upgrade(headers);
        let (mut parts, _) = response.into_parts();
        parts.extensions.clear();
        let empty = http_body_util::Empty::new().map_err(|never| match never {});
        Ok(Response::from_parts(parts, empty.boxed_unsync()))
    }
}

/// Returns the rule of a request. It must be the one of all readings of the path, too.
fn find_only_rule<'a, B>(
    table: &'a RoutingTable,
    scheme: Scheme,
    host: &str,
    request: &Request<B>,
) -> Result<&'a Rule, Refusal> {
    let find = |uri: &Uri| table.find_rule(scheme, host, request.method(), uri, request.headers());
    let rule = find(request.uri()).ok_or(Refusal::NoRoute)?;
    let has_same_action = |path: String| {
        let uri = replace_path(request.uri(), &path);
        let found = uri.as_ref().and_then(find);
        found.is_some_and(|found| found.action.is_same_as(&rule.action))
    };
    match list_readings(request.uri().path())
        .into_iter()
        .all(has_same_action)
    {
        true => Ok(rule),
        false => Err(Refusal::BadRequest(
            "the path has several meanings, which have different routes",
        )),
    }
}

/// Makes a request one of HTTP/2, which has the host in the URI.
fn use_http2(request: &mut Request<UploadBody>) -> Result<(), Refusal> {
    let host = request.headers_mut().remove(HOST);
    let host = host.as_ref().map(HeaderValue::as_bytes).unwrap_or_default();
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(http::uri::Scheme::HTTP);
    parts.authority = http::uri::Authority::try_from(host).ok();
    let uri = Uri::from_parts(parts);
    *request.uri_mut() = uri.map_err(|_| Refusal::BadRequest("no valid host"))?;
    *request.version_mut() = Version::HTTP_2;
    Ok(())
}

fn write_upgrade(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
}

async fn send_request(
    endpoint: SocketAddr,
    mut connection: Connection,
    request: Request<UploadBody>,
    wait: &ResponseWait,
) -> Attempt {
    let response = wait.apply(connection.send(request)).await;
    match response {
        Ok(Ok(response)) => Attempt::Responded(Box::new((endpoint, connection, response))),
        Ok(Err(mut error)) => match error.take_message() {
            Some(unsent) => Attempt::Unsent(unsent),
            None => {
                tracing::debug!(%endpoint, error = %error.error(), "endpoint failed");
                Attempt::Failed(Refusal::BadGateway)
            }
        },
        Err(_) => Attempt::Failed(Refusal::Timeout),
    }
}

impl ResponseWait {
    /// Waits for a response; an error if it does not arrive in time.
    async fn apply<T>(&self, response: impl Future<Output = T>) -> Result<T, Elapsed> {
        let mut response = pin!(response);
        let Some(upload) = &self.upload else {
            return timeout(self.limit, response).await;
        };
        let mut from = Instant::now();
        loop {
            // A limit that the clock can't represent is none.
            let Some(end) = from.checked_add(self.limit) else {
                return Ok(response.await);
            };
            match timeout_at(end, &mut response).await {
                // The endpoint can't respond before it has the request.
                Err(_) if upload.last() > from => from = upload.last(),
                ended => return ended,
            }
        }
    }
}

/// The body of an endpoint's response. Its connection is kept when the body is complete.
struct EndpointBody {
    inner: IdleBody<Incoming>,
    connection: Option<(SocketAddr, Connection)>,
    connections: Connections,
    idle: Duration,
    /// End of the whole request.
    deadline: Option<Instant>,
    parts: ResponseParts,
}

impl EndpointBody {
    /// Limits the time until the next part of the body is sent. hyper polls a body only while the
    /// client takes data, so that a limit inside of the body would never end.
    fn limit_sending(&self) {
        let rest = self
            .deadline
            .map(|end| end.saturating_duration_since(Instant::now()));
        base_serve::limit_sending(rest.map_or(self.idle, |rest| rest.min(self.idle)));
    }

    fn keep_connection(&mut self) {
        if let Some((endpoint, connection)) = self.connection.take() {
            self.connections.keep(endpoint, connection);
        }
    }
}

impl Body for EndpointBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        let is_complete = match &polled {
            Poll::Ready(None) => true,
            Poll::Ready(Some(Ok(_))) => self.inner.is_end_stream(),
            Poll::Ready(Some(Err(_))) | Poll::Pending => false,
        };
        if is_complete {
            self.keep_connection();
        }
        if polled.is_ready() {
            self.limit_sending();
        }
        let parts = &self.parts;
        polled.map_ok(|frame| frame.map_data(|data| parts.begin_part(data)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for EndpointBody {
    fn drop(&mut self) {
        // hyper does not poll a body that is empty from the start. A connection whose body was not
        // read to its end is closed.
        if self.inner.is_end_stream() {
            self.keep_connection();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn wait_for_a_response_begins_after_the_upload() {
        let limit = Duration::from_secs(60);
        for (counts_upload, duration, response, is_in_time) in [
            (false, 0, 59, true),
            (false, 0, 61, false),
            (false, 200, 259, true),
            (false, 200, 261, false),
            (true, 200, 210, false),
        ] {
            let progress = Arc::new(Progress::default());
            let wait = ResponseWait {
                limit,
                upload: (!counts_upload).then(|| progress.clone()),
            };
            let upload = async {
                for _ in 0..duration {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    progress.record();
                }
            };
            let respond = tokio::time::sleep(Duration::from_secs(response));
            let (ended, ()) = tokio::join!(wait.apply(respond), upload);
            assert_eq!(ended.is_ok(), is_in_time, "{duration} s and {response} s");
        }
    }
}
