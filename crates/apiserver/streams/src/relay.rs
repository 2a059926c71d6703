//! Relays streams from one side to the other.

mod channels;
mod reader;
mod requested;
mod tunnel;
mod write;

pub use reader::send_stream;
pub use requested::Streams;

use crate::protocol::Protocol;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

/// Maximum size of a client's message in bytes. Go programs write 32 KiB at once, others all their
/// data.
const MESSAGE: usize = 16 << 20;

/// Relays between a client's connection, upgraded to a WebSocket, and a kubelet's, upgraded to
/// SPDY/3.1, until one ends.
pub async fn relay_streams<C, U>(protocol: Protocol, streams: Streams, client: C, upstream: U)
where
    C: AsyncRead + AsyncWrite + Unpin + Send,
    U: AsyncRead + AsyncWrite + Unpin + Send,
{
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE))
        .max_frame_size(Some(MESSAGE));
    // hyper has done the handshake; from here on the connection is raw.
    let client = WebSocketStream::from_raw_socket(client, Role::Server, Some(config)).await;
    let ended = match protocol {
        Protocol::Channels => channels::relay_channels(client, upstream, streams).await,
        Protocol::Tunnel => tunnel::relay_tunnel(client, upstream).await,
    };
    if let Err(error) = ended {
        // Either side may close at any time; there is no receiver for the error.
        tracing::debug!(error, "a stream broke off");
    }
}
