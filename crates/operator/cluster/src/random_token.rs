//! Random bytes and bootstrap tokens, and the time at which a token ends.

use std::time::Duration;

use api_bootstrap::BootstrapToken;
use jiff::Timestamp;
use ring::rand::{SecureRandom, SystemRandom};

use crate::error::{Error, Result};

/// Returns random bytes.
pub(crate) fn generate_bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    match SystemRandom::new().fill(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(_) => Err(describe_failure()),
    }
}

fn describe_failure() -> Error {
    Error::Refused("the system's source of random numbers failed".to_owned())
}

/// Returns a new random token, which no cluster knows.
pub fn generate_token() -> Result<BootstrapToken> {
    // 22 of 64 bytes are enough. All but each 64th byte can be used, so the first attempt succeeds.
    for _ in 0..100 {
        if let Some(token) = BootstrapToken::from_random(generate_bytes::<64>()?) {
            return Ok(token);
        }
    }
    Err(describe_failure())
}

/// Returns the time at which a token ends; None if it is later than the last year of a timestamp.
pub(crate) fn compute_end(now: Timestamp, lifetime: Duration) -> Option<Timestamp> {
    now.checked_add(lifetime).ok()
}
