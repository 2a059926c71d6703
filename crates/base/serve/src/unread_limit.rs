//! Time limit of connections whose clients take no data.
//!
//! A client that acknowledges TCP's window probes and reads nothing would keep its connection
//! forever: neither TCP nor hyper limits the time for sending data that are written.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// Time without progress after which a connection is closed: nginx's default of `send_timeout`.
///
/// Progress is noticed late. Linux reports a full socket as writable when a third of its send
/// buffer is free: 1.4 MB of the 4 MiB that `tcp_wmem` permits. A client that reads less than
/// 23 KB/s after such a burst is closed, too. With TLS, the data of a full buffer of 64 KiB count
/// as sent once all of them are. Rejected: the ioctl `SIOCOUTQ`, which would need unsafe code.
const LIMIT: Duration = Duration::from_secs(60);

/// The time for which data have waited without progress.
#[derive(Default)]
pub(crate) struct UnreadLimit {
    /// Number of bytes that the stream had accepted when `sleep` began.
    accepted: u64,
    /// Ends 60 s after the last progress; `None` while nothing waits.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl UnreadLimit {
    /// Ready if data have waited for 60 s in which the stream accepted nothing. `waiting` is the
    /// number of bytes that it has accepted so far; `None` if nothing waits.
    pub(crate) fn poll_expired(&mut self, waiting: Option<u64>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(accepted) = waiting else {
            self.sleep = None;
            return Poll::Pending;
        };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep(LIMIT)));
        if self.accepted != accepted {
            self.accepted = accepted;
            sleep.as_mut().reset(Instant::now() + LIMIT);
        }
        sleep.as_mut().poll(cx)
    }
}
