//! Password hashing. It is expensive by design, so it runs on threads of its own with a bounded
//! queue.

use kv_machine::EtcdError;
use std::num::NonZero;
use std::sync::Arc;
use tokio::sync::{OnceCell, Semaphore};

/// Maximum number of queued passwords. With a cost of 10, a processor hashes about 15 a second.
const WAITING: usize = 128;

/// Hashes passwords and verifies them.
pub struct Passwords {
    cost: u32,
    places: Arc<Semaphore>,
    turns: Arc<Semaphore>,
    /// Hash that is verified for unknown users.
    decoy: OnceCell<String>,
}

impl Passwords {
    /// Creates a hasher with bcrypt's cost.
    pub fn new(cost: u32) -> Self {
        // More hashes at a time than processors would only delay all of them.
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        let (places, turns) = (
            Arc::new(Semaphore::new(threads + WAITING)),
            Arc::new(Semaphore::new(threads)),
        );
        Passwords {
            cost,
            places,
            turns,
            decoy: OnceCell::new(),
        }
    }

    /// Returns the hash of a password.
    pub async fn hash_password(&self, password: String) -> Result<String, EtcdError> {
        let cost = self.cost;
        self.run_in_turn(move || bcrypt::hash(password, cost))
            .await?
            .map_err(|error| {
                tracing::error!(%error, "a password can't be hashed");
                EtcdError::Stopped
            })
    }

    /// Verifies a password against the stored hash. It takes as long without one, so that timing
    /// does not reveal which users exist.
    pub async fn verify_password(
        &self,
        password: String,
        stored: Option<String>,
    ) -> Result<bool, EtcdError> {
        let known = stored.is_some();
        let decoy = self
            .decoy
            .get_or_try_init(|| self.hash_password(String::new()))
            .await?;
        // The result for the decoy is ignored: its password is the empty text.
        let stored = stored.unwrap_or_else(|| decoy.clone());
        let same = self
            .run_in_turn(move || bcrypt::verify(password, &stored).unwrap_or(false))
            .await?;
        Ok(same && known)
    }

    async fn run_in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, EtcdError> {
        let place = self
            .places
            .clone()
            .try_acquire_owned()
            .map_err(|_| EtcdError::TooManyRequests)?;
        let turn = self
            .turns
            .clone()
            .acquire_owned()
            .await
            .map_err(|_| EtcdError::Stopped)?;
        // The work continues after its client has disconnected, so it keeps its permits.
        let done = tokio::task::spawn_blocking(move || {
            let _kept = (place, turn);
            work()
        });
        done.await.map_err(|_| EtcdError::Stopped)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use futures::future::join_all;

    #[tokio::test]
    async fn only_the_right_password_of_a_user_fits() {
        let passwords = Passwords::new(4);
        let stored = Some(passwords.hash_password("right".to_owned()).await.unwrap());
        for (password, stored, fits) in [
            ("right", stored.clone(), true),
            ("wrong", stored, false),
            ("", None, false),
            ("right", None, false),
        ] {
            assert_eq!(
                passwords
                    .verify_password(password.to_owned(), stored)
                    .await
                    .unwrap(),
                fits,
                "{password}"
            );
        }
    }

    #[tokio::test]
    async fn passwords_beyond_the_queue_are_refused() {
        let passwords = Passwords::new(4);
        let places = passwords.places.available_permits();
        let hashed =
            join_all((0..places + 50).map(|_| passwords.hash_password("x".to_owned()))).await;
        let refused = hashed
            .iter()
            .filter(|hashed| matches!(hashed, Err(EtcdError::TooManyRequests)))
            .count();
        assert!((1..=50).contains(&refused), "{refused} of {}", places + 50);
        assert_eq!(
            passwords.places.available_permits(),
            places,
            "all places are free again"
        );
    }

    #[tokio::test]
    async fn hashes_of_the_same_password_differ() {
        let passwords = Passwords::new(4);
        let hash = || passwords.hash_password("same".to_owned());
        assert_ne!(hash().await.unwrap(), hash().await.unwrap());
    }
}
