//! The members of the store. All calls go to one member, until it fails or is silent.
//!
//! A read is then sent to another member, a write is not: its outcome at a member that is silent is
//! unknown.
//!
//! Rejected: the balancer of tonic. It sends calls at random to all members that are connected. One
//! that is cut off counts as connected until a keep-alive fails, and a third of the calls would
//! hang.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use base_tls::rustls::ClientConfig;
use futures::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::transport::Channel;
use tonic::{Response, Status};

use crate::StoreError;

/// Time after which a call fails.
const DEADLINE: Duration = Duration::from_secs(10);
/// Time without a response after which another member is used, if there are several.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for which a member that was left is no choice for calls that another one answers slowly.
const AVOIDANCE: Duration = Duration::from_secs(30);

/// Connections to the members; clones share them.
#[derive(Clone)]
pub(crate) struct Members(Arc<Shared>);

struct Shared {
    members: Vec<KnownMember>,
    choice: Mutex<Choice>,
}

struct KnownMember {
    url: String,
    connection: watch::Sender<Connection>,
}

/// A connection to a member, which is replaced when the files of its certificates have changed.
#[derive(Clone)]
struct Connection {
    channel: Channel,
    /// Content of the files before the channel was created.
    tls: Arc<ClientConfig>,
}

/// The preferred member, and when each member was left.
struct Choice {
    preferred: usize,
    /// Number of changes of the preferred member.
    generation: u64,
    left: Vec<Option<Instant>>,
}

/// A member, with its connection.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) channel: Channel,
    tls: Arc<ClientConfig>,
    index: usize,
    generation: u64,
}

/// The reason for which a member is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Nothing has arrived in time, which may be the fault of the whole store.
    Silence,
    /// The connection or the member failed.
    Failure,
}

impl Choice {
    /// Returns the member to prefer after `index`: the one that was left the longest time ago. None
    /// for a slow member if all others were left shortly before.
    fn find_next(&self, index: usize, reason: Reason, now: Instant) -> Option<usize> {
        let count = self.left.len();
        let others = (1..count).map(|step| (index + step) % count);
        let next = others.min_by_key(|&other| self.left[other])?;
        let is_avoided =
            |left: Instant| reason == Reason::Silence && now.duration_since(left) < AVOIDANCE;
        (!self.left[next].is_some_and(is_avoided)).then_some(next)
    }
}

impl Shared {
    fn member(&self, index: usize, generation: u64) -> Member {
        let Connection { channel, tls } = self.members[index].connection.borrow().clone();
        Member {
            channel,
            tls,
            index,
            generation,
        }
    }
}

impl Members {
    /// `members` are URLs with their channels, `tls` is the content of the files before they were
    /// created; `first` selects the member that is preferred at first.
    pub(crate) fn new(
        members: Vec<(String, Channel)>,
        tls: &Arc<ClientConfig>,
        first: usize,
    ) -> Self {
        let choice = Choice {
            preferred: first % members.len().max(1),
            generation: 0,
            left: vec![None; members.len()],
        };
        let members = members.into_iter().map(|(url, channel)| KnownMember {
            url,
            connection: watch::Sender::new(Connection {
                channel,
                tls: tls.clone(),
            }),
        });
        Self(Arc::new(Shared {
            members: members.collect(),
            choice: Mutex::new(choice),
        }))
    }

    /// Returns the member that calls go to.
    pub(crate) fn preferred(&self) -> Member {
        let choice = self.0.choice.lock();
        self.0.member(choice.preferred, choice.generation)
    }

    /// Returns the index and the URL of each member whose connection is older than these files.
    pub(crate) fn list_outdated(&self, tls: &Arc<ClientConfig>) -> Vec<(usize, String)> {
        let members = self.0.members.iter().enumerate();
        let outdated = members
            .filter(|(_, member)| !Arc::ptr_eq(&member.connection.borrow().tls, tls))
            .filter(|(_, member)| member.url.starts_with("https://"));
        outdated
            .map(|(index, member)| (index, member.url.clone()))
            .collect()
    }

    /// Uses a new channel for later calls to a member. Calls that run end on the former one.
    pub(crate) fn replace_connection(
        &self,
        index: usize,
        channel: Channel,
        tls: Arc<ClientConfig>,
    ) {
        if let Some(member) = self.0.members.get(index) {
            member.connection.send_replace(Connection { channel, tls });
        }
    }

    /// Waits until the connection of a member has been replaced.
    pub(crate) async fn wait_for_replacement(&self, member: &Member) {
        let mut connection = self.0.members[member.index].connection.subscribe();
        let replaced = connection.wait_for(|now| !Arc::ptr_eq(&now.tls, &member.tls));
        // No error: the sender lives as long as `self`.
        let _ = replaced.await;
    }

    /// Returns a member that is not among those `tried`: the preferred one, or the one that was
    /// left the longest time ago.
    fn choose_other(&self, tried: &[usize]) -> Option<Member> {
        let choice = self.0.choice.lock();
        let all = 0..self.0.members.len();
        let others = all.filter(|index| !tried.contains(index));
        let rank = |index: &usize| (*index != choice.preferred, choice.left[*index]);
        let index = others.min_by_key(rank)?;
        Some(self.0.member(index, choice.generation))
    }

    /// Prefers a member that has responded where the preferred one was silent.
    fn prefer(&self, member: &Member) {
        let mut choice = self.0.choice.lock();
        if choice.generation == member.generation && choice.preferred != member.index {
            choice.preferred = member.index;
            choice.generation += 1;
        }
    }

    pub(crate) fn has_several(&self) -> bool {
        self.0.members.len() > 1
    }

    /// Prefers another member, unless another call has left this one already.
    pub(crate) fn leave(&self, member: &Member, reason: Reason) {
        let now = Instant::now();
        let mut choice = self.0.choice.lock();
        if choice.generation != member.generation {
            return;
        }
        // A read may use another member than the preferred one.
        if choice.preferred != member.index {
            choice.left[member.index] = Some(now);
            return;
        }
        let Some(next) = choice.find_next(member.index, reason, now) else {
            return;
        };
        // Without a store, the choice changes with each call.
        let is_first = choice.left[next].is_none_or(|left| now.duration_since(left) > AVOIDANCE);
        choice.left[member.index] = Some(now);
        choice.preferred = next;
        choice.generation += 1;
        drop(choice);
        if is_first {
            let (from, to) = (&self.0.members[member.index].url, &self.0.members[next].url);
            tracing::info!(%from, %to, ?reason, "using another member of the store");
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
            done = timeout(RESPONSE_TIMEOUT, &mut call).await.ok();
            if done.is_none() {
                self.leave(&member, Reason::Silence);
            }
        }
        let done = match done {
            Some(done) => done,
            None => call.await,
        };
        if matches!(done, Err(StoreError::Unavailable(_))) {
            self.leave(&member, Reason::Failure);
        }
        done
    }

    /// Sends a short read to one member, and to a second one if the first is silent. After a
    /// failure the next one is used.
    pub(crate) async fn read<T, F>(&self, send: impl Fn(Channel) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let mut running = FuturesUnordered::new();
        let mut tried = Vec::new();
        let mut response_timeout = RESPONSE_TIMEOUT;
        let mut failure = StoreError::Unavailable("no member".into());
        loop {
            let next = self.choose_other(&tried);
            if let Some(member) = next.clone() {
                tried.push(member.index);
                let call = with_deadline(send(member.channel.clone()));
                running.push(async move { (member, call.await) });
            }
            // The last ones have their deadlines.
            let is_last = tried.len() == self.0.members.len();
            let wait = if is_last {
                Duration::MAX
            } else {
                response_timeout
            };
            match timeout(wait, running.next()).await {
                Ok(Some((member, Err(StoreError::Unavailable(why))))) => {
                    self.leave(&member, Reason::Failure);
                    failure = StoreError::Unavailable(why);
                }
                Ok(Some((member, done))) => {
                    self.prefer(&member);
                    return done;
                }
                Ok(None) => return Err(failure),
                Err(_) => {
                    if let Some(silent) = next {
                        self.leave(&silent, Reason::Silence);
                    }
                    // One at a time: a store that is slow gets no more than twice the work.
                    response_timeout = Duration::MAX;
                }
            }
        }
    }

    /// Sends a read that may take long, such as that of a large page. After a failure the next
    /// member is used.
    pub(crate) async fn read_page<T, F>(&self, send: impl Fn(Channel) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        // One deadline for all: a page that takes too long anywhere is not read again and again.
        let deadline = Instant::now() + DEADLINE;
        let mut attempts = self.0.members.len();
        loop {
            let member = self.preferred();
            let call = send(member.channel.clone());
            let Ok(done) = timeout_at(deadline, call).await else {
                self.leave(&member, Reason::Silence);
                return Err(missed_deadline());
            };
            attempts -= 1;
            match done.map_err(StoreError::from) {
                Err(StoreError::Unavailable(why)) => {
                    self.leave(&member, Reason::Failure);
                    if attempts == 0 {
                        return Err(StoreError::Unavailable(why));
                    }
                }
                done => return done.map(Response::into_inner),
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
        Err(_) => Err(missed_deadline()),
    }
}

// A write may still be executed: the error says "unknown", not "failed".
fn missed_deadline() -> StoreError {
    StoreError::Unavailable("no response within 10 s".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_that_was_left_longest_ago_is_next() {
        let now = Instant::now();
        let ago = |seconds| now.checked_sub(Duration::from_secs(seconds));
        let find = |left: Vec<Option<Instant>>, reason| {
            let choice = Choice {
                preferred: 0,
                generation: 0,
                left,
            };
            choice.find_next(0, reason, now)
        };
        for (left, slow, failed) in [
            (vec![None], None, None),
            (vec![None, None, None], Some(1), Some(1)),
            (vec![None, ago(5), None], Some(2), Some(2)),
            (vec![ago(1), ago(50), ago(40)], Some(1), Some(1)),
            // All others were silent shortly before, so that one is better which is slow.
            (vec![None, ago(5), ago(9)], None, Some(2)),
            (vec![None, ago(29)], None, Some(1)),
            (vec![None, ago(31)], Some(1), Some(1)),
        ] {
            assert_eq!(find(left.clone(), Reason::Silence), slow, "{left:?}");
            assert_eq!(find(left.clone(), Reason::Failure), failed, "{left:?}");
        }
    }
}
