//! A connection of HTTP/2, which all requests to a server share. Only servers at a URL of this
//! machine have one.

use super::call::{Call, Reply, SendError};
use base_task::Tasks;
use bytes::{Bytes, BytesMut};
use h2::client::{Builder, SendRequest};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// Bytes of a response that the server may send ahead, of one and of all.
// The defaults of hyper's client, as those of h2 are 64 KiB and would stall large responses.
const WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 5 << 20;
/// Maximum size of the headers of a response.
const MAX_HEADERS: u32 = 16 << 10;

/// A connection, which lives as long as one of its clones.
#[derive(Clone)]
pub struct Http2(SendRequest<Bytes>);

impl Http2 {
    /// Begins the protocol. The connection is a task of `tasks`.
    pub async fn new(stream: TlsStream<TcpStream>, tasks: &Tasks) -> Result<Self, SendError> {
        let (sender, connection) = Builder::new()
            // No response is expected without a request.
            .enable_push(false)
            .initial_window_size(WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(MAX_HEADERS)
            .handshake(stream)
            .await?;
        tasks.spawn_isolated("webhook connection", async move {
            // Its requests return the error.
            let _ = connection.await;
        });
        Ok(Http2(sender))
    }

    /// Sends a request and returns its response.
    pub async fn send(&self, call: &Call<'_>) -> Result<Reply, SendError> {
        // Fails if the server has closed the connection while it was idle.
        let ready = self.0.clone().ready().await;
        let mut sender = ready.map_err(|_| SendError::Unsent)?;
        let (response, mut stream) = sender.send_request(call.build_http2()?, false)?;
        stream.send_data(call.body.clone(), true)?;
        let response = response.await?;
        let status = response.status();
        let mut received = response.into_body();
        let mut body = BytesMut::new();
        while let Some(part) = received.data().await {
            let part = part.map_err(|_| SendError::BrokenBody)?;
            if body.len() + part.len() > call.max_response {
                return Err(SendError::TooLarge(call.max_response));
            }
            body.extend_from_slice(&part);
            // Without this, the server would stop when the window is full.
            let _ = received.flow_control().release_capacity(part.len());
        }
        let body = body.freeze();
        Ok(Reply { status, body })
    }
}
