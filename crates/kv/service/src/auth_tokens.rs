//! Simple tokens: random, known to the member that gave them out, forgotten after a while without use.

use kv_machine::Caller;
use parking_lot::Mutex;
use rand::Rng;
use rand::distr::Alphanumeric;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Tokens kept at once; the oldest go first.
const MOST: usize = 100_000;

/// The tokens that this member gave out.
pub(crate) struct Tokens {
    lifetime: Duration,
    known: Mutex<HashMap<String, (String, Instant)>>,
}

impl Tokens {
    pub fn new(lifetime: Duration) -> Self {
        Tokens { lifetime, known: Mutex::default() }
    }

    /// A new token for a user.
    pub fn issue(&self, user: &str) -> String {
        let random: String = rand::rng().sample_iter(Alphanumeric).take(32).map(char::from).collect();
        let now = Instant::now();
        let mut known = self.known.lock();
        known.retain(|_, (_, used)| now.duration_since(*used) < self.lifetime);
        if known.len() < MOST {
            known.insert(random.clone(), (user.to_owned(), now));
        }
        random
    }

    /// Whose token it is.
    pub fn caller(&self, token: &str) -> Option<Caller> {
        let mut known = self.known.lock();
        let (user, used) = known.get_mut(token)?;
        if used.elapsed() >= self.lifetime {
            known.remove(token);
            return None;
        }
        *used = Instant::now();
        Some(Caller { user: user.clone(), ..Caller::default() })
    }

    /// Forgets the tokens of a user, or all.
    pub fn forget(&self, user: Option<&str>) {
        self.known.lock().retain(|_, (owner, _)| user.is_some_and(|user| owner != user));
    }
}
