//! The members of the store. All calls go to one member, until it fails or hangs: then the next one
//! is preferred.
//!
//! Invariant: a write is sent once. Its outcome at a member that hangs is unknown.
//!
//! Rejected: the balancer of tonic. It spreads calls at random over all members that are connected,
//! and a member that is cut off counts as connected until a keep-alive fails: a third of the calls
//! would hang until then.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Response, Status};

use crate::StoreError;

/// Time after which a call fails.
const DEADLINE: Duration = Duration::from_secs(10);
/// Time after which a member without a response is left, if there are others.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// Connections to the members; clones share them.
#[derive(Clone)]
pub(crate) struct Members(Arc<Shared>);

struct Shared {
    channels: Vec<Channel>,
    preferred: AtomicUsize,
}

/// A member, with its connection.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) channel: Channel,
    index: usize,
}

impl Members {
    /// `first` selects the member that is preferred at first.
    pub(crate) fn new(channels: Vec<Channel>, first: usize) -> Self {
        let preferred = AtomicUsize::new(first % channels.len().max(1));
        Self(Arc::new(Shared {
            channels,
            preferred,
        }))
    }

    /// Returns the member that calls go to.
    pub(crate) fn preferred(&self) -> Member {
        let index = self.0.preferred.load(Ordering::Relaxed);
        Member {
            channel: self.0.channels[index].clone(),
            index,
        }
    }

    pub(crate) fn has_several(&self) -> bool {
        self.0.channels.len() > 1
    }

    /// Prefers the next member, unless another call has left this one already.
    pub(crate) fn leave(&self, member: &Member) {
        let next = (member.index + 1) % self.0.channels.len();
        let order = Ordering::Relaxed;
        let left = self
            .0
            .preferred
            .compare_exchange(member.index, next, order, order);
        if left.is_ok() && self.has_several() {
            tracing::info!("a member of the store does not respond; the next one is used");
        }
    }

    /// Calls one member, once.
    pub(crate) async fn call<T, F>(&self, send: impl FnOnce(Channel) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let member = self.preferred();
        let mut call = pin!(with_deadline(send(member.channel.clone())));
        let mut done = None;
        if self.has_several() {
            done = timeout(PATIENCE, &mut call).await.ok();
            if done.is_none() {
                self.leave(&member);
            }
        }
        let done = match done {
            Some(done) => done,
            None => call.await,
        };
        if matches!(done, Err(StoreError::Unavailable(_))) {
            self.leave(&member);
        }
        done
    }

    /// Sends a read to one member after the other, until one responds. One that hangs may still be
    /// the first.
    pub(crate) async fn read<T, F>(&self, send: impl Fn(Channel) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        if !self.has_several() {
            return self.call(send).await;
        }
        let mut running = FuturesUnordered::new();
        let mut left = self.0.channels.len();
        let mut failure = None;
        let mut asked = self.preferred();
        loop {
            if left > 0 {
                left -= 1;
                asked = self.preferred();
                let (member, call) = (asked.clone(), with_deadline(send(asked.channel.clone())));
                running.push(async move { (member, call.await) });
            }
            // The last ones have their deadlines.
            let patience = if left > 0 { PATIENCE } else { DEADLINE };
            match timeout(patience, running.next()).await {
                Ok(Some((member, Err(StoreError::Unavailable(why))))) => {
                    self.leave(&member);
                    failure = Some(StoreError::Unavailable(why));
                }
                Ok(Some((_, done))) => return done,
                Ok(None) => {}
                // Not the member that is preferred by now: another call may have left this one.
                Err(_) => self.leave(&asked),
            }
            if left == 0 && running.is_empty() {
                return Err(failure.unwrap_or_else(describe_silence));
            }
        }
    }
}

/// Applies the deadline to a call.
async fn with_deadline<T>(
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, StoreError> {
    match timeout(DEADLINE, call).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(status.into()),
        // The write may still be executed: the error says "unknown", not "failed".
        Err(_) => Err(describe_silence()),
    }
}

fn describe_silence() -> StoreError {
    StoreError::Unavailable("no response within 10 s".into())
}
