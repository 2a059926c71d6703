//! Waiting for conditions.

use std::time::{Duration, Instant};

/// Timeout of a condition, after which the test fails.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Waits until `condition` holds.
///
/// # Panics
/// If it does not hold within [`DEADLINE`].
pub async fn wait_for(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    wait_for_value(what, async || condition().await.then_some(())).await;
}

/// Waits until `probe` returns a value.
///
/// # Panics
/// If it returns none within [`DEADLINE`].
pub async fn wait_for_value<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = probe().await {
            return value;
        }
        assert!(
            begun.elapsed() < DEADLINE,
            "not within {DEADLINE:?}: {what}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
