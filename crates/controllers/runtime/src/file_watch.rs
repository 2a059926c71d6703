//! Reconciles that depend on files: their controllers enqueue keys after a change.

use std::sync::Arc;
use std::time::Duration;

use base_task::Tasks;
use base_tls::Followed;
use tokio::time::{MissedTickBehavior, interval};

/// Time between two checks of the files, as for connections to the store.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// Checks the files of `followed` every 10 s, and calls `notify` after each change of its value,
/// until the shutdown of `tasks`. One call may stand for several changes. Decisions need no other
/// check: [`Followed::last_read`] is the value for them.
pub fn watch_files<T: Send + Sync + 'static>(
    tasks: &Tasks,
    name: &'static str,
    followed: &Arc<Followed<T>>,
    notify: impl Fn() + Send + 'static,
) {
    let (followed, shutdown) = (followed.clone(), tasks.shutdown().clone());
    // Taken before the first reconcile, which uses this value or a later one.
    let mut last = followed.last_read();
    tasks.spawn_critical(name, async move {
        let mut ticks = interval(CHECK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let now = base_task::blocking(|| followed.current());
            // The address identifies a value: a new one is stored after each change.
            if !Arc::ptr_eq(&now, &last) {
                tracing::info!(files = ?followed.paths(), "the changed files are in use");
                last = now;
                notify();
            }
        }
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use base_task::CancellationToken;
    use tokio::sync::mpsc;

    #[tokio::test(start_paused = true)]
    async fn each_change_of_the_value_is_notified() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.crt");
        std::fs::write(&path, "1").unwrap();
        let read = |paths: &[std::path::PathBuf]| {
            let text = base_tls::read_file(&paths[0])?;
            match text.as_slice() {
                b"broken" => Err(base_tls::TlsError::Refused("broken".to_owned())),
                _ => Ok(text),
            }
        };
        let followed = Followed::load(vec![path.clone()], read).unwrap();
        let followed = Arc::new(followed.check_every(Duration::ZERO));
        let tasks = Tasks::new(CancellationToken::new());
        let (sender, mut received) = mpsc::unbounded_channel();
        let value = followed.clone();
        let notify = move || sender.send(value.current().as_ref().clone()).unwrap();
        watch_files(&tasks, "test", &followed, notify);
        // Sizes differ, because times of two quick writes may be equal.
        std::fs::write(&path, "22").unwrap();
        assert_eq!(received.recv().await.unwrap(), b"22");
        std::fs::write(&path, "broken").unwrap();
        tokio::time::sleep(2 * CHECK_EVERY).await;
        std::fs::write(&path, "333").unwrap();
        assert_eq!(received.recv().await.unwrap(), b"333");
        tokio::time::sleep(2 * CHECK_EVERY).await;
        assert!(received.try_recv().is_err(), "nothing changed");
        tasks.shutdown().cancel();
        assert!(tasks.wait(CHECK_EVERY).await);
    }
}
