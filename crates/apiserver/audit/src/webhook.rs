//! The webhook: posts lists of events, and repeats failed posts.

use crate::backend::{Backend, BackendError};
use crate::event::Event;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// Posts at most, as upstream.
const ATTEMPTS: u32 = 5;
const FACTOR: f64 = 1.5;
const JITTER: f64 = 0.2;
const HEAD: &[u8] =
    br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#;

/// Posts a body to the server of the configuration.
#[async_trait::async_trait]
pub trait PostEvents: Send + Sync + 'static {
    /// Posts a body.
    ///
    /// # Errors
    /// No connection, or another status than success.
    async fn post_events(&self, body: Bytes) -> Result<(), BackendError>;
}

/// The time between two posts of a batch: grows with each, with some randomness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The time before the second post.
    pub initial: Duration,
}

impl Backoff {
    fn delay(self, attempt: u32, random: f64) -> Duration {
        let exponent = i32::try_from(attempt).unwrap_or(i32::MAX);
        self.initial
            .mul_f64(FACTOR.powi(exponent) * (1.0 + JITTER * random))
    }
}

/// A backend that posts to a server.
pub struct Webhook<P> {
    client: P,
    backoff: Backoff,
}

impl<P> Webhook<P> {
    /// Creates a webhook.
    pub fn new(client: P, backoff: Backoff) -> Self {
        Webhook { client, backoff }
    }
}

#[async_trait::async_trait]
impl<P: PostEvents> Backend for Webhook<P> {
    fn name(&self) -> &'static str {
        "webhook"
    }

    async fn process_events(&self, events: &[Arc<Event>]) -> Result<(), BackendError> {
        let body = encode_list(events);
        let mut attempt = 0;
        loop {
            // Whatever the error is: the receiver may return.
            let Err(error) = self.client.post_events(body.clone()).await else {
                return Ok(());
            };
            attempt += 1;
            if attempt >= ATTEMPTS {
                return Err(error);
            }
            let delay = self.backoff.delay(attempt - 1, rand::random());
            tokio::time::sleep(delay).await;
        }
    }
}

fn encode_list(events: &[Arc<Event>]) -> Bytes {
    let mut out = HEAD.to_vec();
    for (index, event) in events.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        event.write_item(&mut out);
    }
    out.extend_from_slice(b"]}");
    out.into()
}
