//! Names and removal of rotated log files.

use jiff::{Timestamp, tz::TimeZone};
use std::path::{Path, PathBuf};
use std::time::Duration;

const TIME: &str = "%Y-%m-%dT%H-%M-%S.%3f";
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The limits of log files; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// Bytes of a file.
    pub size: u64,
    /// Days that a rotated file is kept.
    pub days: u32,
    /// Rotated files that are kept.
    pub files: usize,
    /// Rotated files are compressed by gzip.
    pub compress: bool,
}

/// A rotated file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rotated {
    pub(crate) path: PathBuf,
    pub(crate) at: Timestamp,
}

/// The name of the log, split for the names of rotated files: `audit-2026-01-02T03-04-05.678.log`.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    directory: PathBuf,
    prefix: String,
    suffix: String,
}

impl Names {
    pub(crate) fn new(path: &Path) -> Self {
        let part = |text: Option<&std::ffi::OsStr>| {
            text.unwrap_or_default().to_string_lossy().into_owned()
        };
        let extension = part(path.extension());
        Names {
            // The parent of a plain name is the empty path, which can't be listed.
            directory: match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
                _ => PathBuf::from("."),
            },
            prefix: format!("{}-", part(path.file_stem())),
            suffix: match extension.as_str() {
                "" => String::new(),
                extension => format!(".{extension}"),
            },
        }
    }

    /// Returns the directory of all files.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the path of a file that is rotated now.
    pub(crate) fn rotated(&self, now: Timestamp) -> PathBuf {
        let (prefix, suffix) = (&self.prefix, &self.suffix);
        self.directory
            .join(format!("{prefix}{}{suffix}", now.strftime(TIME)))
    }

    /// Returns the rotated file of that name; None for other files.
    pub(crate) fn parse(&self, name: &str) -> Option<Rotated> {
        let plain = name.strip_suffix(".gz").unwrap_or(name);
        let time = plain
            .strip_prefix(&self.prefix)?
            .strip_suffix(&self.suffix)?;
        let time = jiff::civil::DateTime::strptime(TIME, time).ok()?;
        Some(Rotated {
            path: self.directory.join(name),
            at: time.to_zoned(TimeZone::UTC).ok()?.timestamp(),
        })
    }
}

impl Rotation {
    /// Returns the rotated files to remove: those beyond the number, and those that are too old.
    pub(crate) fn find_surplus(&self, mut rotated: Vec<Rotated>, now: Timestamp) -> Vec<PathBuf> {
        rotated.sort_by_key(|file| std::cmp::Reverse(file.at));
        let oldest = now.checked_sub(DAY.saturating_mul(self.days)).ok();
        let surplus = rotated.into_iter().enumerate().filter(|(index, file)| {
            self.files > 0 && *index >= self.files
                || self.days > 0 && oldest.is_some_and(|oldest| file.at < oldest)
        });
        surplus.map(|(_, file)| file.path).collect()
    }
}
