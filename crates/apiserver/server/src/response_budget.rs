//! Limits of the memory of responses that their clients have not read yet.
//!
//! A seat ends with the head of the response, and a client may leave the body unread. The bytes of
//! unsent bodies are therefore counted, for all users and for each. The ServiceAccounts of a
//! namespace count as one user. Requests of a user who has reached a limit are rejected with 429
//! until bodies are sent, or end at their deadline. Nodes and the control plane's own clients are
//! counted apart from other users, and members of `system:masters` are not counted, as in
//! [`crate::inflight`].

use crate::exempt::is_exempt;
use api_meta::ApiError;
use apiserver_request::{RequestInfo, User};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counters of users. Users whose names have the same hash share one, so that a lookup needs no
/// lock. The hash is keyed at random: a client can't choose the user with whom it shares.
const COUNTERS: usize = 4096;
/// Seconds until a retry.
const RETRY_AFTER: i32 = 1;

/// Limits in bytes.
#[derive(Clone, Copy, Debug)]
pub struct BudgetLimits {
    /// Bytes of all users that are counted together, from which on a user gets the guaranteed bytes
    /// only.
    pub total: usize,
    /// Bytes of all users from which on none is served: many users with their guaranteed bytes must
    /// not exhaust the memory.
    pub hard_total: usize,
    /// Bytes of one user.
    pub user: usize,
    /// Bytes up to which a user is served even if the total is reached, so that some users can't
    /// lock out the others.
    pub guaranteed: usize,
}

impl Default for BudgetLimits {
    fn default() -> Self {
        BudgetLimits {
            total: 512 * 1024 * 1024,
            hard_total: 1024 * 1024 * 1024,
            user: 128 * 1024 * 1024,
            // Enough for one response of any size at a time.
            guaranteed: 1024 * 1024,
        }
    }
}

/// Counts the bytes of unsent bodies.
pub struct ResponseBudget {
    other: Arc<UserCounters>,
    system: Arc<UserCounters>,
    hasher: RandomState,
}

/// Counted bytes of all system clients, or of all other users, and of each.
struct UserCounters {
    limits: BudgetLimits,
    total: AtomicUsize,
    users: Box<[AtomicUsize]>,
}

/// Bytes of a response, which are counted until the value is dropped.
pub struct CountedResponse {
    counters: Arc<UserCounters>,
    user: usize,
    bytes: usize,
}

impl ResponseBudget {
    /// Creates a budget with nothing counted.
    pub fn new(limits: BudgetLimits) -> Self {
        ResponseBudget {
            other: UserCounters::new(limits),
            system: UserCounters::new(limits),
            hasher: RandomState::new(),
        }
    }

    /// Checks that the user has not reached a limit.
    ///
    /// # Errors
    /// 429, with the number of seconds until a retry.
    pub fn check(&self, info: &RequestInfo, user: &User) -> Result<(), ApiError> {
        let (counters, index) = self.find_counters(user);
        if is_exempt(info, user) || !counters.is_reached(index) {
            return Ok(());
        }
        Err(too_many_bytes())
    }

    /// Counts `bytes` for the user; `None` if the user need not be counted.
    pub fn count(&self, user: &User, bytes: usize) -> Option<CountedResponse> {
        if bytes == 0 || user.in_group(User::MASTERS) {
            return None;
        }
        let (counters, user) = self.find_counters(user);
        counters.total.fetch_add(bytes, Ordering::Relaxed);
        if let Some(counter) = counters.users.get(user) {
            counter.fetch_add(bytes, Ordering::Relaxed);
        }
        Some(CountedResponse {
            counters: counters.clone(),
            user,
            bytes,
        })
    }

    fn find_counters(&self, user: &User) -> (&Arc<UserCounters>, usize) {
        let counters = if user.is_system() {
            &self.system
        } else {
            &self.other
        };
        let hash = self.hasher.hash_one(user.limit_name()) % COUNTERS as u64;
        (counters, usize::try_from(hash).unwrap_or_default())
    }
}

impl UserCounters {
    fn new(limits: BudgetLimits) -> Arc<Self> {
        Arc::new(UserCounters {
            limits,
            total: AtomicUsize::new(0),
            users: (0..COUNTERS).map(|_| AtomicUsize::new(0)).collect(),
        })
    }

    /// Returns whether the user has reached a limit. The request that reaches it is still served,
    /// so that a response of any size can be sent: a user occupies the limit, and all users the
    /// hard total, and one more body for each request in flight at most.
    fn is_reached(&self, user: usize) -> bool {
        let load = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        let held = self.users.get(user).map_or(0, load);
        let total = load(&self.total);
        held >= self.limits.user
            || held >= self.limits.guaranteed && total >= self.limits.total
            || total >= self.limits.hard_total
    }
}

impl Drop for CountedResponse {
    fn drop(&mut self) {
        self.counters.total.fetch_sub(self.bytes, Ordering::Relaxed);
        if let Some(counter) = self.counters.users.get(self.user) {
            counter.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

fn too_many_bytes() -> ApiError {
    ApiError::too_many_requests(
        "Too many bytes of responses that were not read, please try again later.",
        RETRY_AFTER,
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const LIMITS: BudgetLimits = BudgetLimits {
        total: 100,
        hard_total: 200,
        user: 60,
        guaranteed: 20,
    };

    fn user(name: &str, group: &str) -> User {
        User {
            name: name.to_owned(),
            groups: vec![group.to_owned()],
            ..User::default()
        }
    }

    /// Returns users with counters of their own: the hash is random.
    fn find_users(budget: &ResponseBudget, count: usize) -> Vec<User> {
        let mut found: Vec<User> = Vec::new();
        for n in 0.. {
            let next = user(&format!("u{n}"), "people");
            let index = |user: &User| budget.find_counters(user).1;
            if found.iter().all(|other| index(other) != index(&next)) {
                found.push(next);
            }
            if found.len() == count {
                break;
            }
        }
        found
    }

    #[test]
    fn limits_of_users_and_of_all_are_enforced() {
        let budget = ResponseBudget::new(LIMITS);
        let users = find_users(&budget, 4);
        let passes = |user: &User| budget.check(&RequestInfo::default(), user).is_ok();
        let first = budget.count(&users[0], 59);
        assert!(passes(&users[0]), "below the limit");
        let second = budget.count(&users[0], 1);
        assert!(!passes(&users[0]), "at the limit of a user");
        let third = budget.count(&users[1], 40);
        assert!(!passes(&users[1]), "at the limit of all");
        assert!(passes(&users[2]), "within the guaranteed bytes");
        let fourth = budget.count(&users[2], 20);
        assert!(!passes(&users[2]));
        assert!(passes(&users[3]));
        let node = user("system:node:a", "system:nodes");
        assert!(passes(&node), "nodes are counted apart");
        drop((first, second, third, fourth));
        assert!(users.iter().all(passes), "all bytes are released");
    }

    #[test]
    fn service_accounts_of_a_namespace_are_one_user() {
        let budget = ResponseBudget::new(LIMITS);
        let account = |namespace: &str, n: usize| {
            user(
                &format!("system:serviceaccount:{namespace}:a{n}"),
                &format!("system:serviceaccounts:{namespace}"),
            )
        };
        let passes = |user: &User| budget.check(&RequestInfo::default(), user).is_ok();
        let mut counted = Vec::new();
        for n in 0..200 {
            let account = account("tenant", n);
            if passes(&account) {
                counted.push(budget.count(&account, 5));
            }
        }
        assert_eq!(counted.len(), LIMITS.user / 5);
        let system: Vec<_> = (0..LIMITS.user)
            .map(|n| account("kube-system", n))
            .collect();
        assert!(system.iter().all(passes), "counted apart");
    }

    #[test]
    fn many_users_do_not_pass_the_hard_total() {
        let budget = ResponseBudget::new(LIMITS);
        let users = find_users(&budget, 41);
        let passes = |user: &User| budget.check(&RequestInfo::default(), user).is_ok();
        let mut counted = Vec::new();
        for user in &users {
            // Less than the guaranteed bytes of a user.
            if passes(user) {
                counted.push(budget.count(user, 5));
            }
        }
        assert_eq!(counted.len(), LIMITS.hard_total / 5);
        assert!(!users.iter().any(passes));
        assert!(passes(&user("system:node:a", "system:nodes")));
        counted.clear();
        assert!(users.iter().all(passes), "all bytes are released");
    }

    #[test]
    fn administrators_and_health_checks_are_not_limited() {
        let budget = ResponseBudget::new(LIMITS);
        assert!(budget.count(&user("root", User::MASTERS), 1000).is_none());
        let jane = user("jane", "people");
        let _counted = budget.count(&jane, 1000);
        let check = |path: &str| {
            let info = RequestInfo {
                path: path.to_owned(),
                ..RequestInfo::default()
            };
            budget.check(&info, &jane).map_err(|error| error.code())
        };
        assert_eq!(check("/readyz"), Ok(()));
        assert_eq!(check("/version"), Err(429));
    }
}
