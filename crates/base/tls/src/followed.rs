//! Values derived from files, updated when the files change.
//!
//! The files are checked when the value is used, at most every ten seconds: no timer, no watch, no
//! cost while idle. A change that can't be used is logged, and the former value remains in use.

use crate::pem::TlsError;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

const CHECK_EVERY: Duration = Duration::from_secs(10);

type Make<T> = Box<dyn Fn(&[PathBuf]) -> Result<T, TlsError> + Send + Sync>;

/// A value derived from files that follows their changes.
pub struct Followed<T> {
    paths: Vec<PathBuf>,
    make: Make<T>,
    value: ArcSwap<T>,
    seen: Mutex<(Instant, Vec<Option<FileState>>)>,
    check_every: Duration,
}

impl<T> Followed<T> {
    /// Derives the value now, and again after a change of any file in `paths`.
    ///
    /// # Errors
    /// Deriving the first value fails.
    pub fn load(
        paths: Vec<PathBuf>,
        make: impl Fn(&[PathBuf]) -> Result<T, TlsError> + Send + Sync + 'static,
    ) -> Result<Self, TlsError> {
        // Before the files are read, for the same reason as at each check.
        let seen = Mutex::new((Instant::now(), read_states(&paths)));
        let value = ArcSwap::from_pointee(make(&paths)?);
        Ok(Followed {
            paths,
            make: Box::new(make),
            value,
            seen,
            check_every: CHECK_EVERY,
        })
    }

    /// Sets another interval of checks than ten seconds.
    #[must_use]
    pub fn check_every(self, interval: Duration) -> Self {
        Followed {
            check_every: interval,
            ..self
        }
    }

    /// Returns the value of the files, at most as old as the interval of checks.
    pub fn current(&self) -> Arc<T> {
        // A handshake never waits for another one that reads the files; it uses the value that is
        // there.
        if let Some(mut seen) = self.seen.try_lock()
            && seen.0.elapsed() >= self.check_every
        {
            // Taken before the files are read: a change during the read has a newer time and is
            // noticed at the next check.
            let now = read_states(&self.paths);
            if now != seen.1 {
                match (self.make)(&self.paths) {
                    Ok(value) => {
                        self.value.store(Arc::new(value));
                        // Only after success. Certificate and key are two files, and between their
                        // writes they do not match; the next check tries again.
                        seen.1 = now;
                    }
                    Err(e) => {
                        tracing::warn!(error = %e, "changed files can't be used; the old ones stay in use")
                    }
                }
            }
            // After a failure as well, so that broken files are read and logged every ten seconds
            // and not for every handshake.
            seen.0 = Instant::now();
        }
        self.value.load_full()
    }

    /// Returns the paths of the files.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }
}

impl<T> fmt::Debug for Followed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Followed").field(&self.paths).finish()
    }
}

/// State of a file. Two writes of the same size within a tick of the kernel's clock look alike.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileState {
    modified: SystemTime,
    /// Tools can set the time of modification, but not this one.
    changed: (i64, i64),
    inode: u64,
    size: u64,
}

fn read_states(paths: &[PathBuf]) -> Vec<Option<FileState>> {
    let state = |path: &PathBuf| {
        let metadata = std::fs::metadata(path).ok()?;
        Some(FileState {
            modified: metadata.modified().ok()?,
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            inode: metadata.ino(),
            size: metadata.len(),
        })
    };
    paths.iter().map(state).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Follows a file whose text is the value; the text `broken` cannot be used.
    fn follow(path: &std::path::Path, reads: &Arc<AtomicUsize>) -> Followed<String> {
        let reads = reads.clone();
        Followed::load(vec![path.to_owned()], move |paths| {
            reads.fetch_add(1, Ordering::SeqCst);
            let text = std::fs::read_to_string(&paths[0]).unwrap_or_default();
            match text.as_str() {
                "broken" => Err(TlsError::Refused("broken".to_owned())),
                _ => Ok(text),
            }
        })
        .unwrap()
    }

    /// Writes the file with a time of its own, and lets the interval between checks pass.
    fn write_later(
        followed: Option<&Followed<String>>,
        path: &std::path::Path,
        text: &str,
        at: u64,
    ) {
        std::fs::write(path, text).unwrap();
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(at))
            .unwrap();
        if let Some(followed) = followed {
            pass_interval(followed);
        }
    }

    fn pass_interval(followed: &Followed<String>) {
        followed.seen.lock().0 = Instant::now().checked_sub(CHECK_EVERY).unwrap();
    }

    #[test]
    fn changed_file_is_used_after_the_interval_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let (path, reads) = (folder.path().join("f"), Arc::default());
        write_later(None, &path, "one", 100);
        let followed = follow(&path, &reads);
        write_later(None, &path, "two", 200);
        assert_eq!(*followed.current(), "one");
        write_later(Some(&followed), &path, "two", 200);
        assert_eq!(*followed.current(), "two");
    }

    #[test]
    fn unchanged_file_is_not_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let (path, reads) = (folder.path().join("f"), Arc::default());
        write_later(None, &path, "one", 100);
        let followed = follow(&path, &reads);
        pass_interval(&followed);
        assert_eq!(*followed.current(), "one");
        assert_eq!(reads.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn file_that_is_replaced_by_one_of_the_same_time_and_size_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let (path, reads) = (folder.path().join("f"), Arc::default());
        write_later(None, &path, "one", 100);
        let followed = follow(&path, &reads);
        let other = folder.path().join("g");
        write_later(None, &other, "two", 100);
        std::fs::rename(&other, &path).unwrap();
        pass_interval(&followed);
        assert_eq!(*followed.current(), "two");
    }

    #[test]
    fn file_that_cannot_be_used_keeps_the_former_value_until_it_is_repaired() {
        let folder = tempfile::tempdir().unwrap();
        let (path, reads) = (folder.path().join("f"), Arc::default());
        write_later(None, &path, "one", 100);
        let followed = follow(&path, &reads);
        for (text, at, want) in [
            ("broken", 200, "one"),
            ("broken", 200, "one"),
            ("two", 300, "two"),
        ] {
            write_later(Some(&followed), &path, text, at);
            assert_eq!(*followed.current(), want, "{text}");
        }
        assert_eq!(
            reads.load(Ordering::SeqCst),
            4,
            "a broken file is tried at each check"
        );
    }
}
