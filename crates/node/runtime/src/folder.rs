//! Watches a directory with inotify: growing logs, added and removed manifests.

use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
use std::fs::File;
use std::io;
use std::path::Path;
use tokio::net::unix::pipe::Receiver;

/// A watched directory.
#[derive(Debug)]
pub struct FolderWatch(Receiver);

impl FolderWatch {
    /// Watches `folder` for files that are written, added or removed.
    ///
    /// # Errors
    /// The directory does not exist, or the kernel's limit of watches is reached.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let fd = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        // CLOSE_WRITE too: an editor may write a file in several steps, and the last one counts.
        let changes = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::CLOSE_WRITE;
        let names = WatchFlags::MOVED_TO | WatchFlags::MOVED_FROM | WatchFlags::DELETE;
        add_watch(&fd, folder, changes | names)?;
        // An inotify descriptor reads like a pipe; only the type check of the checked constructor
        // would fail.
        Receiver::from_file_unchecked(File::from(fd)).map(FolderWatch)
    }

    /// Waits for the next changes; merges those that are queued.
    pub async fn changed(&mut self) {
        if self.0.readable().await.is_err() {
            return std::future::pending().await;
        }
        // The events are only a signal. The caller reads the directory again, so an overflow of the
        // queue does no harm.
        let mut buffer = [0u8; 4096];
        while self.0.try_read(&mut buffer).is_ok_and(|n| n > 0) {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn watch_reports_writes_renames_and_removals() {
        let folder = tempfile::tempdir().unwrap();
        let mut watch = FolderWatch::new(folder.path()).unwrap();
        let idle = timeout(Duration::from_millis(50), watch.changed()).await;
        assert!(idle.is_err(), "nothing has changed yet");
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        let write = || std::fs::write(&a, "x");
        let rename = || std::fs::rename(&a, &b);
        let remove = || std::fs::remove_file(&b);
        let steps: [(&str, &dyn Fn() -> io::Result<()>); 3] =
            [("write", &write), ("rename", &rename), ("removal", &remove)];
        for (name, step) in steps {
            step().unwrap();
            let noticed = timeout(Duration::from_secs(60), watch.changed()).await;
            assert!(noticed.is_ok(), "{name}");
        }
    }

    #[tokio::test]
    async fn watch_of_a_missing_directory_fails() {
        let folder = tempfile::tempdir().unwrap();
        assert!(FolderWatch::new(&folder.path().join("missing")).is_err());
    }
}
