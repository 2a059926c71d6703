//! Connects to the addresses of a host.
//!
//! An address that drops packets must not use up the time for the others: RFC 8305, "Happy
//! Eyeballs". The order is that of the resolver.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::net::TcpStream;

/// Time after which the next address is attempted beside the former ones: the delay of RFC 8305.
const NEXT_AFTER: Duration = Duration::from_millis(250);

/// Opens a connection to a host, with small requests sent at once.
pub(crate) async fn connect_host(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses = tokio::net::lookup_host((host, port)).await?;
    let stream = connect_first(addresses, TcpStream::connect).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Returns the first connection. The next address is attempted after a failure, or after
/// [`NEXT_AFTER`].
///
/// # Errors
/// That of the last attempt that failed, or there is no address.
async fn connect_first<T, F>(
    addresses: impl IntoIterator<Item = SocketAddr>,
    connect: impl Fn(SocketAddr) -> F,
) -> io::Result<T>
where
    F: Future<Output = io::Result<T>>,
{
    let mut waiting = addresses.into_iter().map(connect);
    let mut attempts = FuturesUnordered::new();
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    attempts.extend(waiting.next());
    loop {
        let delay = pin!(tokio::time::sleep(NEXT_AFTER));
        tokio::select! {
            ended = attempts.next() => match ended {
                Some(Ok(made)) => return Ok(made),
                Some(Err(error)) => failure = error,
                None => return Err(failure),
            },
            () = delay => {}
        }
        attempts.extend(waiting.next());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    /// Connects to addresses with the ports 0, 1 and so on. Each takes a time in milliseconds, and
    /// accepts the connection or refuses it.
    async fn connect(outcomes: &[(u64, bool)]) -> (io::Result<u16>, u128) {
        let began = Instant::now();
        let addresses = (0..)
            .zip(outcomes)
            .map(|(port, _)| ([127, 0, 0, 1], port).into());
        let made = connect_first(addresses, async |address: SocketAddr| {
            let (milliseconds, accepts) = outcomes[usize::from(address.port())];
            tokio::time::sleep(Duration::from_millis(milliseconds)).await;
            match accepts {
                true => Ok(address.port()),
                false => Err(io::ErrorKind::ConnectionRefused.into()),
            }
        });
        (made.await, began.elapsed().as_millis() / 10)
    }

    #[tokio::test(start_paused = true)]
    async fn next_address_is_tried_after_a_failure_or_a_delay() {
        for (outcomes, port, time) in [
            (&[(10, true), (10, true)][..], 0, 1),
            (&[(10, false), (10, true)], 1, 2),
            // The first one drops packets, and the second one too.
            (&[(60_000, true), (60_000, true), (10, true)], 2, 51),
            // A slow one is not given up.
            (&[(400, true), (60_000, true)], 0, 40),
        ] {
            let (made, after) = connect(outcomes).await;
            assert_eq!(made.ok(), Some(port), "{outcomes:?}");
            assert!(after.abs_diff(time) <= 1, "{outcomes:?}: {after}0 ms");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn host_without_an_address_that_accepts_is_an_error() {
        for (outcomes, kind) in [
            (
                &[(10, false), (10, false)][..],
                io::ErrorKind::ConnectionRefused,
            ),
            (&[], io::ErrorKind::NotFound),
        ] {
            let failed = connect(outcomes).await.0.map_err(|error| error.kind());
            assert_eq!(failed, Err(kind), "{outcomes:?}");
        }
    }
}
