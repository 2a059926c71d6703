//! Files of the log in memory.

use kv_wal::{Disk, DiskFile};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryFile(pub Arc<Mutex<Vec<u8>>>);

#[derive(Debug, Default)]
pub(crate) struct MemoryDisk(pub Mutex<BTreeMap<PathBuf, MemoryFile>>);

impl DiskFile for MemoryFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.lock().len() as u64)
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        let content = self.0.lock();
        let found = usize::try_from(at)
            .ok()
            .and_then(|at| content.get(at..at.checked_add(bytes.len())?));
        bytes.copy_from_slice(found.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let mut content = self.0.lock();
        let at = usize::try_from(at).unwrap_or(0);
        if content.len() < at + bytes.len() {
            content.resize(at + bytes.len(), 0);
        }
        content[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn allocate(&self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Disk for MemoryDisk {
    fn make_folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list_names(&self, _: &Path) -> io::Result<Vec<String>> {
        let files = self.0.lock();
        Ok(files
            .keys()
            .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
            .collect())
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let found = self.0.lock().get(path).cloned();
        Ok(Arc::new(
            found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?,
        ))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(
            self.0.lock().entry(path.to_path_buf()).or_default().clone(),
        ))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut files = self.0.lock();
        let file = files
            .remove(from)
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        files.insert(to.to_path_buf(), file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0
            .lock()
            .remove(path)
            .map(drop)
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    fn exists(&self, path: &Path) -> bool {
        self.0.lock().contains_key(path)
    }

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}
