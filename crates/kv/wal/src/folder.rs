//! The data directory: its owner, its format, and its lock.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const VERSION: u32 = 1;
const IDENTITY: &str = "identity";
const LOCK: &str = "lock";

/// The member and cluster to which a data directory belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Cluster ID.
    pub cluster: u64,
    /// Member ID.
    pub member: u64,
}

/// Reasons why a data directory can't be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Creating, reading or writing it failed.
    #[error("the data folder {path} can't be used: {source}{}", crate::files::suggest_remedy(.source))]
    Io {
        /// The directory or file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Another process has locked it.
    #[error("the data folder {path} is in use by another process; stop that one first")]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// A newer version created it.
    #[error(
        "the data folder {path} has format {found}, and this version knows formats up to {VERSION}; use the newer version"
    )]
    Newer {
        /// The directory.
        path: PathBuf,
        /// Format of the directory.
        found: u32,
    },
    /// The identity file is damaged.
    #[error(
        "{path} is damaged ({reason}); restore the member from a snapshot (kvstore snapshot restore)"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The defect.
        reason: String,
    },
    /// Another program, such as etcd, created it.
    #[error(
        "the data folder {path} was not made by kvstore ({found} is there); use another folder, or carry the data over with a snapshot (kvstore snapshot restore)"
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// The file that identifies the other program.
        found: String,
    },
}

/// A locked data directory.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    identity: Option<Identity>,
    _lock: Option<File>,
}

impl DataFolder {
    /// Creates the directory if necessary, locks it and reads its identity.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        let failed = |source| FolderError::Io {
            path: path.to_path_buf(),
            source,
        };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(failed)?;
        reject_foreign_data(path)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path.join(LOCK))
            .map_err(failed)?;
        lock_exclusively(&lock, path)?;
        let identity = read_identity(&path.join(IDENTITY))?;
        Ok(DataFolder {
            path: path.to_path_buf(),
            identity,
            _lock: Some(lock),
        })
    }

    /// Locks an existing directory and reads its identity, without changing anything.
    pub fn open_existing(path: &Path) -> Result<Self, FolderError> {
        let failed = |source| FolderError::Io {
            path: path.to_path_buf(),
            source,
        };
        fs::read_dir(path).map_err(failed)?;
        reject_foreign_data(path)?;
        let lock = match File::open(path.join(LOCK)) {
            Ok(lock) => Some(lock),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(failed(e)),
        };
        if let Some(lock) = &lock {
            lock_exclusively(lock, path)?;
        }
        let identity = read_identity(&path.join(IDENTITY))?;
        Ok(DataFolder {
            path: path.to_path_buf(),
            identity,
            _lock: lock,
        })
    }

    /// Returns the identity, or `None` for a new directory.
    pub fn identity(&self) -> Option<Identity> {
        self.identity
    }

    /// Sets the identity of a new directory. Durable on return.
    pub fn set_identity(&mut self, identity: Identity) -> Result<(), FolderError> {
        let text = format!(
            "format = {VERSION}\ncluster = {:016x}\nmember = {:016x}\n",
            identity.cluster, identity.member
        );
        let target = self.path.join(IDENTITY);
        let write = || -> io::Result<()> {
            // Written under another name, synced and renamed: a crash leaves the former file or the
            // new one, and the last sync makes the rename durable.
            let next = self.path.join("identity.tmp");
            let mut file = OpenOptions::new()
                .create(true)
                .truncate(true)
                .write(true)
                .mode(0o600)
                .open(&next)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&next, &target)?;
            File::open(&self.path)?.sync_all()
        };
        write().map_err(|source| FolderError::Io {
            path: target.clone(),
            source,
        })?;
        self.identity = Some(identity);
        Ok(())
    }

    /// Returns a subdirectory, creating it if necessary.
    pub fn create_subfolder(&self, name: &str) -> Result<PathBuf, FolderError> {
        let path = self.path.join(name);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .map_err(|source| FolderError::Io {
                path: path.clone(),
                source,
            })?;
        Ok(path)
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn lock_exclusively(lock: &File, path: &Path) -> Result<(), FolderError> {
    // The kernel releases the lock with the process, even after SIGKILL. A file with a process ID
    // would stay.
    match rustix::fs::flock(lock, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(FolderError::InUse {
            path: path.to_path_buf(),
        }),
        Err(e) => Err(FolderError::Io {
            path: path.to_path_buf(),
            source: e.into(),
        }),
    }
}

/// Rejects a directory with the data of another program.
fn reject_foreign_data(path: &Path) -> Result<(), FolderError> {
    if path.join(IDENTITY).exists() {
        return Ok(());
    }
    match path.join("member").join("snap").join("db").exists() {
        true => Err(FolderError::Foreign {
            path: path.to_path_buf(),
            found: "member/snap/db".into(),
        }),
        false => Ok(()),
    }
}

fn read_identity(path: &Path) -> Result<Option<Identity>, FolderError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(FolderError::Io {
                path: path.to_path_buf(),
                source,
            });
        }
    };
    let damaged = |reason: &str| FolderError::Damaged {
        path: path.to_path_buf(),
        reason: reason.to_owned(),
    };
    let fields: BTreeMap<&str, &str> = text
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(k, v)| (k.trim(), v.trim()))
        .collect();
    let format: u32 = fields
        .get("format")
        .and_then(|v| v.parse().ok())
        .ok_or_else(|| damaged("no format"))?;
    // A newer format may look valid and mean something else.
    if format > VERSION {
        let folder = path.parent().unwrap_or(path).to_path_buf();
        return Err(FolderError::Newer {
            path: folder,
            found: format,
        });
    }
    let number = |name: &str| {
        fields
            .get(name)
            .and_then(|v| u64::from_str_radix(v, 16).ok())
    };
    Ok(Some(Identity {
        cluster: number("cluster").ok_or_else(|| damaged("no cluster identifier"))?,
        member: number("member").ok_or_else(|| damaged("no member identifier"))?,
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn directory_has_one_owner_and_keeps_its_identity() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        let mut first = DataFolder::open(&path).unwrap();
        assert_eq!(first.identity(), None);
        let identity = Identity {
            cluster: 1,
            member: u64::MAX,
        };
        first.set_identity(identity).unwrap();
        assert!(matches!(
            DataFolder::open(&path),
            Err(FolderError::InUse { .. })
        ));
        drop(first);
        assert_eq!(DataFolder::open(&path).unwrap().identity(), Some(identity));
    }

    #[test]
    fn data_of_etcd_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let snap = folder.path().join("member/snap");
        fs::create_dir_all(&snap).unwrap();
        assert!(DataFolder::open(folder.path()).is_ok(), "no database yet");
        fs::write(snap.join("db"), "").unwrap();
        for opened in [
            DataFolder::open(folder.path()),
            DataFolder::open_existing(folder.path()),
        ] {
            assert!(matches!(opened, Err(FolderError::Foreign { .. })));
        }
    }

    #[test]
    fn reading_a_directory_creates_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let found = DataFolder::open_existing(folder.path()).unwrap();
        assert_eq!(found.identity(), None);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(DataFolder::open_existing(&folder.path().join("absent")).is_err());
    }

    #[test]
    fn newer_format_and_damage_are_different_errors() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(IDENTITY), "format = 99\n").unwrap();
        assert!(matches!(
            DataFolder::open(folder.path()),
            Err(FolderError::Newer { found: 99, .. })
        ));
        fs::write(folder.path().join(IDENTITY), "nonsense").unwrap();
        assert!(matches!(
            DataFolder::open(folder.path()),
            Err(FolderError::Damaged { .. })
        ));
    }
}
