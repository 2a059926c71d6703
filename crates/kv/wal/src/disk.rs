//! Where the log's files are: the file system, or what a simulation puts in its place.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// A file of the log.
pub trait DiskFile: Debug + Send + Sync {
    /// Its length.
    fn size(&self) -> io::Result<u64>;
    /// Fills `bytes` from a place in it.
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()>;
    /// Writes all of `bytes` to a place in it.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;
    /// Makes it at least this long, with space behind it where that can be had.
    fn allocate(&self, size: u64) -> io::Result<()>;
    /// Returns when its content would survive a loss of power.
    fn sync_data(&self) -> io::Result<()>;
    /// Returns when content and length would survive a loss of power.
    fn sync_all(&self) -> io::Result<()>;
}

/// Folders and files.
pub trait Disk: Debug + Send + Sync + 'static {
    /// Makes a folder and those above it, where needed.
    fn make_folder(&self, folder: &Path) -> io::Result<()>;
    /// Names in a folder.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;
    /// Opens a file that is there.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens a file, empty if it was not there.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Gives a file another name, in place of whatever had it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Whether there is such a file.
    fn exists(&self, path: &Path) -> bool;
    /// Makes new names, renames and removals in a folder durable.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
}

/// The file system.
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

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(OpenOptions::new().read(true).write(true).open(path)?))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        Ok(Arc::new(options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?))
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
