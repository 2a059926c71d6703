//! Values derived from files, updated when the files change.
//!
//! The files are checked when the value is used, at most once a second: no timer, no watch, no cost
//! while idle. A change that can't be used is logged, and the former value remains in use.

use crate::pem::TlsError;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

const CHECK_EVERY: Duration = Duration::from_secs(1);

type Make<T> = Box<dyn Fn(&[PathBuf]) -> Result<T, TlsError> + Send + Sync>;

/// The last check of the files.
struct LastCheck {
    time: Instant,
    /// Files from which the value was derived.
    used: Vec<Option<FileState>>,
    /// Files that could not be used last: they are logged once.
    rejected: Option<Vec<Option<FileState>>>,
}

/// A value derived from files that follows their changes.
pub struct Followed<T> {
    paths: Vec<PathBuf>,
    make: Make<T>,
    value: ArcSwap<T>,
    last: Mutex<LastCheck>,
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
        // Taken before the files are read, for the same reason as in `check_files`.
        let last = Mutex::new(LastCheck {
            time: Instant::now(),
            used: read_states(&paths),
            rejected: None,
        });
        let value = ArcSwap::from_pointee(make(&paths)?);
        Ok(Followed {
            paths,
            make: Box::new(make),
            value,
            last,
            check_every: CHECK_EVERY,
        })
    }

    /// Replaces the interval of checks, one second by default.
    #[must_use]
    pub fn check_every(self, interval: Duration) -> Self {
        Followed {
            check_every: interval,
            ..self
        }
    }

    /// Returns the value of the files, at most as old as the interval of checks.
    pub fn current(&self) -> Arc<T> {
        // A handshake never waits for another one that reads the files: it uses the present value.
        if let Some(mut last) = self.last.try_lock()
            && last.time.elapsed() >= self.check_every
        {
            self.check_files(&mut last);
        }
        self.value.load_full()
    }

    /// Returns the value that was read last, without a check of the files: for decisions without IO
    /// whose caller calls [`Self::current`] at times.
    pub fn last_read(&self) -> Arc<T> {
        self.value.load_full()
    }

    /// Returns the value of the files as they are now, or the former value if they can't be used.
    ///
    /// For a caller that a server has just rejected, or that knows of a change. Blocks while
    /// another caller checks the files.
    pub fn refresh(&self) -> Arc<T> {
        self.check_files(&mut self.last.lock());
        self.value.load_full()
    }

    fn check_files(&self, last: &mut LastCheck) {
        // Taken before the files are read: a change during the read has a newer time and is noticed
        // at the next check.
        let now = read_states(&self.paths);
        if now != last.used {
            match (self.make)(&self.paths) {
                Ok(value) => {
                    self.value.store(Arc::new(value));
                    // Recorded only after success: certificate and key are two files that do not
                    // match between their writes, so the next check must try again.
                    last.used = now;
                    last.rejected = None;
                }
                Err(e) if last.rejected.as_ref() != Some(&now) => {
                    tracing::warn!(error = %e, "changed files can't be used; the old ones stay in use");
                    last.rejected = Some(now);
                }
                Err(_) => {}
            }
        }
        // Set also after a failure, so that broken files are read once a second and not for every
        // handshake.
        last.time = Instant::now();
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
        followed.last.lock().time = Instant::now().checked_sub(CHECK_EVERY).unwrap();
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
        assert_eq!(*followed.last_read(), "one");
        assert_eq!(*followed.current(), "two");
        assert_eq!(*followed.last_read(), "two");
    }

    #[test]
    fn changed_file_is_used_at_once_by_a_refresh() {
        let folder = tempfile::tempdir().unwrap();
        let (path, reads) = (folder.path().join("f"), Arc::default());
        write_later(None, &path, "one", 100);
        let followed = follow(&path, &reads);
        for (text, at, want) in [("two", 200, "two"), ("broken", 300, "two")] {
            write_later(None, &path, text, at);
            assert_eq!(*followed.refresh(), want, "{text}");
        }
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
