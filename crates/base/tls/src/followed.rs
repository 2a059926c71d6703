//! Values derived from files, updated when the files change.
//!
//! The files are checked when the value is used, at most every ten seconds: no timer, no watch, no
//! cost while idle. A change that can't be used is logged, and the former value remains in use.

use crate::pem::TlsError;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::fmt;
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
    seen: Mutex<(Instant, Vec<Option<SystemTime>>)>,
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
        let seen = Mutex::new((Instant::now(), modification_times(&paths)));
        let value = ArcSwap::from_pointee(make(&paths)?);
        Ok(Followed {
            paths,
            make: Box::new(make),
            value,
            seen,
        })
    }

    /// Returns the value of the files, at most ten seconds old.
    pub fn current(&self) -> Arc<T> {
        if let Some(mut seen) = self.seen.try_lock()
            && seen.0.elapsed() >= CHECK_EVERY
        {
            let now = modification_times(&self.paths);
            if now != seen.1 {
                match (self.make)(&self.paths) {
                    Ok(value) => {
                        self.value.store(Arc::new(value));
                        seen.1 = now;
                    }
                    Err(e) => {
                        tracing::warn!(error = %e, "changed TLS files can't be used; the old ones stay in use")
                    }
                }
            }
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

fn modification_times(paths: &[PathBuf]) -> Vec<Option<SystemTime>> {
    paths
        .iter()
        .map(|p| std::fs::metadata(p).and_then(|m| m.modified()).ok())
        .collect()
}
