//! Simple tokens: issued through the log, so that every member knows their digests, and kept in
//! memory only.
//!
//! Each member expires a token on its own, after a time without use on that member.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of tokens; the oldest are dropped first.
const MOST: usize = 100_000;

struct CachedToken {
    user: String,
    used: Instant,
    number: u64,
}

/// The tokens that are valid on this member.
pub(crate) struct Tokens {
    lifetime: Duration,
    most: usize,
    known: HashMap<String, CachedToken>,
    /// Tokens by their number, in the order of issue.
    order: BTreeMap<u64, String>,
    given: u64,
    sweep: Instant,
}

impl Tokens {
    pub fn new(lifetime: Duration) -> Self {
        let (known, order) = Default::default();
        Tokens {
            lifetime,
            most: MOST,
            known,
            order,
            given: 0,
            sweep: Instant::now() + lifetime,
        }
    }

    /// Adds a token.
    pub fn add(&mut self, token: String, user: &str, now: Instant) {
        // No timer is needed: memory grows only here.
        if now >= self.sweep {
            let lifetime = self.lifetime;
            self.retain(|known| now.duration_since(known.used) < lifetime);
            self.sweep = now + lifetime / 4;
        }
        self.given += 1;
        let known = CachedToken {
            user: user.to_owned(),
            used: now,
            number: self.given,
        };
        self.order.insert(self.given, token.clone());
        if let Some(before) = self.known.insert(token, known) {
            self.order.remove(&before.number);
        }
        // A client that logs in for every request must not fill the memory of all members.
        while self.known.len() > self.most {
            // The oldest login first: its client logs in again when its token is rejected.
            let Some((_, oldest)) = self.order.pop_first() else {
                break;
            };
            self.known.remove(&oldest);
        }
    }

    /// Returns the user of a token and restarts its time to live.
    pub fn find_user(&mut self, token: &str, now: Instant) -> Option<String> {
        let known = self.known.get_mut(token)?;
        // Expired tokens stay until the next sweep, so the time is checked here as well.
        if now.duration_since(known.used) >= self.lifetime {
            let number = known.number;
            self.known.remove(token);
            self.order.remove(&number);
            return None;
        }
        // Only on this member: the lifetime counts from the last use here, as for etcd's simple
        // tokens.
        known.used = now;
        Some(known.user.clone())
    }

    /// Removes the tokens of a user.
    pub fn remove_user(&mut self, user: &str) {
        self.retain(|known| known.user != user);
    }

    /// Removes all tokens.
    pub fn clear(&mut self) {
        self.known.clear();
        self.order.clear();
    }

    fn retain(&mut self, keep: impl Fn(&CachedToken) -> bool) {
        let order = &mut self.order;
        self.known.retain(|_, known| {
            let keep = keep(known);
            if !keep {
                order.remove(&known.number);
            }
            keep
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_secs(10);

    #[test]
    fn token_expires_after_its_ttl_without_use() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut tokens = Tokens::new(LIFETIME);
        tokens.add("t".into(), "u", at(0));
        tokens.add("unused".into(), "u", at(0));
        assert_eq!(tokens.find_user("t", at(9)).as_deref(), Some("u"));
        assert_eq!(tokens.find_user("t", at(18)).as_deref(), Some("u"));
        assert_eq!(tokens.find_user("t", at(28)), None);
        tokens.add("next".into(), "u", at(30));
        assert_eq!(
            (tokens.known.len(), tokens.order.len()),
            (1, 1),
            "what has expired takes no room"
        );
    }

    #[test]
    fn oldest_token_is_dropped_at_the_limit() {
        let now = Instant::now();
        let mut tokens = Tokens {
            most: 2,
            ..Tokens::new(LIFETIME)
        };
        for name in ["a", "b", "c"] {
            tokens.add(name.into(), name, now);
        }
        assert_eq!(
            ["a", "b", "c"].map(|token| tokens.find_user(token, now).is_some()),
            [false, true, true]
        );
        tokens.remove_user("b");
        tokens.add("d".into(), "d", now);
        assert_eq!(
            ["b", "c", "d"].map(|token| tokens.find_user(token, now).is_some()),
            [false, true, true]
        );
        tokens.clear();
        assert_eq!(tokens.find_user("c", now), None);
    }
}
