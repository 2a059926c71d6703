//! Random bootstrap tokens.

use api_bootstrap::BootstrapToken;
use ring::rand::{SecureRandom, SystemRandom};

use crate::error::{Error, Result};

/// Returns a new random token, which no cluster knows.
pub fn generate_token() -> Result<BootstrapToken> {
    let failed = || Error::Refused("the system's source of random numbers failed".to_owned());
    let mut bytes = [0; 64];
    // 22 of 64 bytes are enough. All but each 64th byte can be used, so the first attempt succeeds.
    for _ in 0..100 {
        SystemRandom::new().fill(&mut bytes).map_err(|_| failed())?;
        if let Some(token) = BootstrapToken::from_random(bytes) {
            return Ok(token);
        }
    }
    Err(failed())
}
