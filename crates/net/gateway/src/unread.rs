//! Parts of responses that their clients do not read.
//!
//! hyper ends a body when HTTP/2 has queued its last part. Parts that wait for the client then have
//! no body whose deadline could end, so that a task watches them.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use base_serve::ConnectionHandle;
use base_task::Tasks;
use bytes::Bytes;
use tokio::time::sleep_until;

use crate::places::RequestPlace;
use crate::upload::{Progress, UnsentPart};

/// The parts of a response on their way to the client. They occupy the place of its request until
/// they are sent.
pub(crate) struct ResponseParts {
    progress: Arc<Progress>,
    place: Arc<RequestPlace>,
    connection: Option<ConnectionHandle>,
    limit: Duration,
    tasks: Tasks,
}

impl ResponseParts {
    /// Begins without a part. The client's connection is closed if no part is sent for `limit`
    /// after the end of the body.
    pub(crate) fn new(
        place: Arc<RequestPlace>,
        connection: Option<ConnectionHandle>,
        limit: Duration,
        tasks: Tasks,
    ) -> Self {
        Self {
            progress: Arc::default(),
            place,
            connection,
            limit,
            tasks,
        }
    }

    /// Returns a part that is recorded as sent when it is dropped.
    pub(crate) fn begin_part(&self, bytes: Bytes) -> Bytes {
        UnsentPart::begin(bytes, &self.progress, &self.place)
    }
}

impl Drop for ResponseParts {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        if self.progress.unsent_since().is_none() {
            return;
        }
        let (progress, limit) = (self.progress.clone(), self.limit);
        let shutdown = self.tasks.shutdown().clone();
        self.tasks.spawn_isolated("unread-response", async move {
            tokio::select! {
                // Connections have a limit of their own for the end.
                () = shutdown.cancelled() => {}
                is_stuck = wait_until_stuck(&progress, limit) => if is_stuck {
                    connection.close();
                },
            }
        });
    }
}

/// Waits until all parts are sent, or none was for `limit`; returns true then.
async fn wait_until_stuck(progress: &Progress, limit: Duration) -> bool {
    while let Some(since) = progress.unsent_since() {
        // A limit that the clock can't represent is none.
        let Some(end) = since.checked_add(limit) else {
            return false;
        };
        tokio::select! {
            () = poll_fn(|context| progress.poll_sent(context)) => return false,
            () = sleep_until(end) => {}
        }
        if progress.unsent_since() == Some(since) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::places::Places;
    use tokio::time::{Instant, sleep};

    #[tokio::test(start_paused = true)]
    async fn parts_are_stuck_once_none_was_sent_for_the_limit() {
        let limit = Duration::from_secs(60);
        let places = Places::new(10);
        // Seconds after which each part is sent, and the end of the wait.
        for (sent, is_stuck, end) in [
            (&[][..], false, 0),
            (&[59], false, 59),
            (&[61], true, 60),
            (&[50, 109], false, 109),
            (&[50, 111], true, 110),
        ] {
            let place = places.take_request("192.0.2.1".parse().unwrap(), "a");
            let place = Arc::new(place.unwrap());
            let progress = Arc::new(Progress::default());
            let begin = |_| UnsentPart::begin(Bytes::from_static(b"x"), &progress, &place);
            let parts: Vec<Bytes> = sent.iter().map(begin).collect();
            let began = Instant::now();
            let send = async {
                for (part, at) in parts.into_iter().zip(sent) {
                    sleep(Duration::from_secs(*at).saturating_sub(began.elapsed())).await;
                    drop(part);
                }
            };
            let wait = async {
                let is_stuck = wait_until_stuck(&progress, limit).await;
                (is_stuck, began.elapsed().as_secs())
            };
            let (_, found) = tokio::join!(send, wait);
            assert_eq!(found, (is_stuck, end), "{sent:?}");
        }
    }
}
