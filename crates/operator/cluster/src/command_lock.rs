//! The lock of the commands that change the plan of a machine: each would undo what another does.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::files;
use crate::layout::Layout;
use crate::settings::{FILE as SETTINGS, Settings};

/// Time in which a renewal by the supervisor ends; a command takes longer.
const WAIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

/// The lock. The kernel releases it when the process exits.
#[derive(Debug)]
pub(crate) struct CommandLock {
    file: File,
    path: PathBuf,
    data_dir: PathBuf,
    made_directory: bool,
}

impl CommandLock {
    /// Returns the lock, or None if another process holds it.
    pub(crate) fn try_acquire(layout: &Layout) -> Result<Option<Self>> {
        let (path, data_dir) = (layout.command_lock(), layout.data().to_owned());
        let made_directory = path.starts_with(&data_dir) && !data_dir.exists();
        if made_directory {
            files::create_dir(&data_dir, 0o711)?;
        }
        loop {
            let file = files::open_lock_file(&path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(Error::io(&path)(error.into())),
            }
            // The holder before may have removed the file with the cluster.
            if is_at(&file, &path) {
                return Ok(Some(Self {
                    file,
                    path,
                    data_dir,
                    made_directory,
                }));
            }
        }
    }
}

impl Drop for CommandLock {
    /// Removes the file if no cluster is there, so that a rejected start and a removal leave
    /// nothing.
    fn drop(&mut self) {
        // A file with content is another program's, and another file the lock of a later command.
        let is_empty = self.file.metadata().is_ok_and(|file| file.len() == 0);
        let is_own = is_empty && is_at(&self.file, &self.path);
        if is_own && !self.data_dir.join(SETTINGS).exists() {
            let _ = std::fs::remove_file(&self.path);
            if self.made_directory {
                // Fails if anything is in it.
                let _ = std::fs::remove_dir(&self.data_dir);
            }
        }
    }
}

/// Returns whether the path names this file.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |data: std::fs::Metadata| (data.dev(), data.ino());
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(locked), Ok(named)) => identity(locked) == identity(named),
        _ => false,
    }
}

/// Takes the lock for a command that may create the cluster. The settings are to be loaded while
/// it is held: the holder before may have changed them.
///
/// # Errors
/// Another command holds it for longer than a renewal of certificates takes.
pub(crate) fn lock_commands(data_dir: &Path) -> Result<CommandLock> {
    let layout = find_layout(data_dir)?;
    for _ in 0..WAIT.as_millis() / PAUSE.as_millis() {
        if let Some(lock) = CommandLock::try_acquire(&layout)? {
            return Ok(lock);
        }
        wait_a_moment();
    }
    Err(Error::Refused(
        "another `ironclad` command changes the cluster on this machine; wait until it ends, or interrupt it"
            .to_owned(),
    ))
}

/// Takes the lock for a command that creates no cluster; None if the directory does not exist.
pub(crate) fn lock_existing(data_dir: &Path) -> Result<Option<CommandLock>> {
    match data_dir.is_dir() {
        true => lock_commands(data_dir).map(Some),
        false => Ok(None),
    }
}

/// Returns the layout by the stored name of the directory, which may have several.
fn find_layout(data_dir: &Path) -> Result<Layout> {
    let is_root = rustix::process::geteuid().is_root();
    // Settings that can't be loaded are reported by the command itself.
    Ok(match Settings::load(data_dir) {
        Ok(Some(settings)) => Layout::for_settings(&settings),
        _ => {
            let data_dir = std::path::absolute(data_dir).map_err(Error::io(data_dir))?;
            Layout::new(&data_dir, is_root)
        }
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "before a command begins, nothing else runs"
)]
fn wait_a_moment() {
    std::thread::sleep(PAUSE);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lock_excludes_others_until_it_is_released_also_after_the_run_directory_was_removed() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        let lock = CommandLock::try_acquire(&layout).unwrap().unwrap();
        std::fs::create_dir_all(layout.run()).unwrap();
        files::remove_dir(layout.run()).unwrap();
        assert!(CommandLock::try_acquire(&layout).unwrap().is_none());
        drop(lock);
        assert!(CommandLock::try_acquire(&layout).unwrap().is_some());
    }

    /// A removal of the cluster deletes the file, and `up` may have begun before its end.
    #[test]
    fn released_lock_leaves_the_file_of_a_later_command() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        let first = CommandLock::try_acquire(&layout).unwrap().unwrap();
        files::remove_file(&layout.command_lock()).unwrap();
        let second = CommandLock::try_acquire(&layout).unwrap().unwrap();
        drop(first);
        assert!(layout.command_lock().exists());
        assert!(CommandLock::try_acquire(&layout).unwrap().is_none());
        drop(second);
        assert!(!layout.command_lock().exists());
    }

    #[test]
    fn command_waits_for_a_short_holder() {
        let dir = tempfile::tempdir().unwrap();
        let layout = find_layout(dir.path()).unwrap();
        let lock = CommandLock::try_acquire(&layout).unwrap().unwrap();
        let path = dir.path().to_owned();
        let waiter = std::thread::spawn(move || lock_commands(&path).map(drop));
        for _ in 0..4 {
            wait_a_moment();
        }
        drop(lock);
        waiter.join().unwrap().unwrap();
    }

    #[test]
    fn lock_leaves_no_file_without_a_cluster() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let layout = Layout::new(&data, false);
        drop(CommandLock::try_acquire(&layout).unwrap().unwrap());
        assert!(!data.exists());
        let lock = CommandLock::try_acquire(&layout).unwrap().unwrap();
        let settings = Settings {
            data_dir: data.clone(),
            ..Settings::example()
        };
        settings.save().unwrap();
        drop(lock);
        assert!(layout.command_lock().exists());
    }
}
