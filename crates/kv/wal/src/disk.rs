//! File access of the log: the file system, or its replacement in a simulation.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// A file of the log.
pub trait DiskFile: Debug + Send + Sync {
    /// Returns the length in bytes.
    fn size(&self) -> io::Result<u64>;
    /// Fills `bytes` from the offset `at`.
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()>;
    /// Writes all of `bytes` at the offset `at`.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;
    /// Extends the file to at least this length and allocates its blocks if possible.
    fn allocate(&self, size: u64) -> io::Result<()>;
    /// Waits until the content is durable.
    fn sync_data(&self) -> io::Result<()>;
    /// Waits until content and length are durable.
    fn sync_all(&self) -> io::Result<()>;
}

/// Access to directories and files.
pub trait Disk: Debug + Send + Sync + 'static {
    /// Creates a directory and its parents, if they don't exist.
    fn make_folder(&self, folder: &Path) -> io::Result<()>;
    /// Returns the names in a directory.
    fn list_names(&self, folder: &Path) -> io::Result<Vec<String>>;
    /// Opens an existing file.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens a file, creating it if it does not exist.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Renames a file, replacing an existing one.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Deletes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Returns whether a file exists.
    fn exists(&self, path: &Path) -> bool;
    /// Makes creations, renames and deletions in a directory durable.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
}

/// The real file system.
#[derive(Clone, Copy, Debug)]
pub struct FileSystem;

impl DiskFile for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.read_exact_at(bytes, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        use rustix::fs::FallocateFlags;
        if self.metadata()?.len() >= size {
            return Ok(());
        }
        // Allocated blocks spare each append the update of the file's length, which a sync would
        // have to wait for. Not every file system can do it.
        match rustix::fs::fallocate(self, FallocateFlags::empty(), 0, size) {
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => self.set_len(size),
            other => other.map_err(io::Error::from),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        File::sync_data(self)
    }

    fn sync_all(&self) -> io::Result<()> {
        File::sync_all(self)
    }
}

impl Disk for FileSystem {
    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)
    }

    fn list_names(&self, folder: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(
            OpenOptions::new().read(true).write(true).open(path)?,
        ))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        Ok(Arc::new(
            options
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(path)?,
        ))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }
}
