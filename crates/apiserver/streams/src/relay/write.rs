//! Writes to a kubelet.

use tokio::io::{AsyncWrite, AsyncWriteExt};

/// Writes all bytes and flushes them. TLS accepts bytes that the socket does not take yet, and
/// keeps them until the next write; without a flush, the end of a client's input would stay there
/// for ever.
pub(super) async fn write_and_flush<W: AsyncWrite + Unpin>(
    writer: &mut W,
    bytes: &[u8],
) -> Result<(), String> {
    let written = async {
        writer.write_all(bytes).await?;
        writer.flush().await
    };
    written.await.map_err(|e| e.to_string())
}
