//! SIGTERM and SIGINT: the first signal drains, the second exits at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Returns a token that the first SIGTERM or SIGINT cancels. The second signal exits with code 1 at
/// once.
///
/// # Errors
/// The handlers can't be installed.
#[expect(
    clippy::disallowed_methods,
    reason = "the root of all groups of tasks: it lives as long as the process"
)]
pub fn shutdown_on_signals() -> std::io::Result<CancellationToken> {
    // Installed before the task starts, so that a signal during the start is not lost.
    let mut term = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let token = CancellationToken::new();
    let cancelled = token.clone();
    tokio::spawn(async move {
        tokio::select! { _ = term.recv() => {}, _ = interrupt.recv() => {} }
        tracing::info!("stopping; a second signal ends the process at once");
        cancelled.cancel();
        tokio::select! { _ = term.recv() => {}, _ = interrupt.recv() => {} }
        // Without draining: the second signal means that the operator will not wait.
        std::process::exit(1);
    });
    Ok(token)
}
