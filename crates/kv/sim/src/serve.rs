//! Both ends of calls on a host: the client side that puts requests on the network, and the
//! services that handle them.

use crate::net::{HostId, Net, Packet, Port};
use bytes::Bytes;
use futures::future::BoxFuture;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use kv_service::ClientService;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tower::{BoxError, Service, ServiceExt};

type Frames = mpsc::UnboundedSender<Result<Frame<Bytes>, Status>>;

/// An outgoing call in progress.
struct PendingCall {
    head: Option<oneshot::Sender<http::Response<()>>>,
    frames: Frames,
}

/// An incoming call in progress.
struct Served {
    frames: Option<Frames>,
    task: AbortHandle,
}

/// Handler of a port.
enum ServerEndpoint {
    Peers(Routes),
    Clients(ClientService),
}

impl ServerEndpoint {
    async fn answer(self, request: http::Request<Body>) -> http::Response<Body> {
        match self {
            ServerEndpoint::Peers(routes) => {
                let Ok(response) = routes.oneshot(request).await;
                response
            }
            ServerEndpoint::Clients(service) => service.answer(request).await,
        }
    }
}

#[derive(Default)]
struct State {
    asked: BTreeMap<u64, PendingCall>,
    served: BTreeMap<u64, Served>,
    peers: Option<Routes>,
    clients: Option<ClientService>,
}

/// A host's connection to the network. It ends with the host's process.
#[derive(Clone)]
pub(crate) struct Station {
    pub net: Net,
    pub host: HostId,
    state: Arc<Mutex<State>>,
}

fn reset_status() -> Status {
    Status::unavailable("the connection was reset")
}

impl Station {
    pub fn new(net: Net, host: HostId) -> Self {
        Station {
            net,
            host,
            state: Arc::default(),
        }
    }

    pub fn serve_peers(&self, routes: Routes) {
        self.state.lock().peers = Some(routes);
    }

    pub fn serve_clients(&self, service: ClientService) {
        self.state.lock().clients = Some(service);
    }

    pub fn serves_clients(&self) -> bool {
        self.state.lock().clients.is_some()
    }

    /// Returns a connection to another host.
    pub fn line(&self, to: HostId, port: Port) -> Line {
        Line {
            station: self.clone(),
            to,
            port,
        }
    }

    /// Handles a received packet. The host's runtime must be entered.
    pub fn receive(&self, number: u64, packet: Packet) {
        match packet {
            Packet::Open { from, port, head } => self.answer(number, from, port, head),
            Packet::RequestFrame(bytes) => {
                if let Some(Served {
                    frames: Some(frames),
                    ..
                }) = self.state.lock().served.get(&number)
                {
                    let _ = frames.send(Ok(Frame::data(bytes)));
                }
            }
            Packet::RequestEnd => {
                if let Some(served) = self.state.lock().served.get_mut(&number) {
                    served.frames = None;
                }
            }
            Packet::Head(head) => {
                let waiting = self
                    .state
                    .lock()
                    .asked
                    .get_mut(&number)
                    .and_then(|asked| asked.head.take());
                if let Some(waiting) = waiting {
                    let _ = waiting.send(head);
                }
            }
            Packet::ResponseFrame(frame) => {
                if let Some(asked) = self.state.lock().asked.get(&number) {
                    let _ = asked.frames.send(Ok(frame));
                }
            }
            Packet::ResponseEnd => drop(self.state.lock().asked.remove(&number)),
            Packet::Cancel => {
                self.end_served(number);
                self.net.close(number);
            }
            Packet::Reset => {
                let asked = self.state.lock().asked.remove(&number);
                if let Some(asked) = asked {
                    let _ = asked.frames.send(Err(reset_status()));
                }
                self.end_served(number);
            }
        }
    }

    fn end_served(&self, number: u64) {
        let served = self.state.lock().served.remove(&number);
        if let Some(served) = served {
            served.task.abort();
        }
    }

    fn answer(&self, number: u64, _from: HostId, port: Port, head: http::Request<()>) {
        let answerer = {
            let state = self.state.lock();
            match port {
                Port::Peer => state.peers.clone().map(ServerEndpoint::Peers),
                Port::Client => state.clients.clone().map(ServerEndpoint::Clients),
            }
        };
        let Some(answerer) = answerer else {
            return self.net.send(self.host, number, Packet::Reset);
        };
        let (frames, body) = mpsc::unbounded_channel();
        let request = head.map(|()| Body::new(StreamBody::new(UnboundedReceiverStream::new(body))));
        let station = self.clone();
        #[expect(
            clippy::disallowed_methods,
            reason = "the task ends with the member's runtime, which a crash drops"
        )]
        let task = tokio::spawn(async move {
            let response = answerer.answer(request).await;
            let (parts, mut body) = response.into_parts();
            let send = |packet| station.net.send(station.host, number, packet);
            send(Packet::Head(http::Response::from_parts(parts, ())));
            loop {
                match body.frame().await {
                    Some(Ok(frame)) => send(Packet::ResponseFrame(frame)),
                    Some(Err(_)) => break send(Packet::Reset),
                    None => break send(Packet::ResponseEnd),
                }
            }
            station.state.lock().served.remove(&number);
        });
        let served = Served {
            frames: Some(frames),
            task: task.abort_handle(),
        };
        self.state.lock().served.insert(number, served);
    }
}

/// A connection to another host, in the form that gRPC clients use.
#[derive(Clone)]
pub(crate) struct Line {
    station: Station,
    to: HostId,
    port: Port,
}

impl Line {
    /// Returns the target host.
    pub fn to(&self) -> HostId {
        self.to
    }
}

/// Cancels a call when its response is no longer awaited.
struct Guard {
    station: Station,
    number: u64,
    sending: AbortHandle,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.sending.abort();
        if self
            .station
            .state
            .lock()
            .asked
            .remove(&self.number)
            .is_some()
        {
            self.station
                .net
                .send(self.station.host, self.number, Packet::Cancel);
        } else {
            self.station.net.close(self.number);
        }
    }
}

struct Answer {
    frames: mpsc::UnboundedReceiver<Result<Frame<Bytes>, Status>>,
    _guard: Guard,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.frames.poll_recv(cx)
    }
}

/// Returns the timeout in a call's header.
fn call_timeout(request: &http::Request<Body>) -> Duration {
    let text = request
        .headers()
        .get("grpc-timeout")
        .and_then(|value| value.to_str().ok());
    let parsed = text.and_then(|text| {
        let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
        let number: u64 = number.parse().ok()?;
        Some(match unit {
            "H" => Duration::from_secs(number * 3_600),
            "M" => Duration::from_secs(number * 60),
            "S" => Duration::from_secs(number),
            "m" => Duration::from_millis(number),
            "u" => Duration::from_micros(number),
            _ => Duration::from_nanos(number),
        })
    });
    parsed.unwrap_or(Duration::from_secs(86_400))
}

impl Service<http::Request<Body>> for Line {
    type Response = http::Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<http::Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let Line { station, to, port } = self.clone();
        Box::pin(async move {
            let patience = call_timeout(&request);
            let number = station.net.open(station.host, to);
            let (head_sender, head) = oneshot::channel();
            let (frames_sender, frames) = mpsc::unbounded_channel();
            let asked = PendingCall {
                head: Some(head_sender),
                frames: frames_sender,
            };
            station.state.lock().asked.insert(number, asked);
            let (parts, mut body) = request.into_parts();
            let open = Packet::Open {
                from: station.host,
                port,
                head: http::Request::from_parts(parts, ()),
            };
            station.net.send(station.host, number, open);
            let sender = station.clone();
            #[expect(
                clippy::disallowed_methods,
                reason = "the task ends with the member's runtime, which a crash drops"
            )]
            let sending = tokio::spawn(async move {
                let send = |packet| sender.net.send(sender.host, number, packet);
                while let Some(Ok(frame)) = body.frame().await {
                    if let Ok(bytes) = frame.into_data() {
                        send(Packet::RequestFrame(bytes));
                    }
                }
                send(Packet::RequestEnd);
            });
            let guard = Guard {
                station,
                number,
                sending: sending.abort_handle(),
            };
            let head = tokio::time::timeout(patience, head).await;
            let head = head
                .map_err(|_| Status::cancelled("timeout expired"))?
                .map_err(|_| reset_status())?;
            Ok(head.map(|()| {
                Body::new(Answer {
                    frames,
                    _guard: guard,
                })
            }))
        })
    }
}
