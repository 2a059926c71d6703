//! Random access to a file's bytes.

use std::borrow::Cow;
use std::io;
use std::os::unix::fs::FileExt;

/// A source of bytes.
pub trait Source {
    /// Returns the length in bytes.
    fn length(&self) -> u64;
    /// Returns `length` bytes at the offset `at`.
    fn read_bytes(&self, at: u64, length: usize) -> io::Result<Cow<'_, [u8]>>;
}

fn read_slice(bytes: &[u8], at: u64, length: usize) -> io::Result<Cow<'_, [u8]>> {
    let found = usize::try_from(at)
        .ok()
        .and_then(|at| bytes.get(at..at.checked_add(length)?));
    found
        .map(Cow::Borrowed)
        .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

impl Source for &[u8] {
    fn length(&self) -> u64 {
        self.len() as u64
    }
    fn read_bytes(&self, at: u64, length: usize) -> io::Result<Cow<'_, [u8]>> {
        read_slice(self, at, length)
    }
}

impl Source for Vec<u8> {
    fn length(&self) -> u64 {
        self.len() as u64
    }
    fn read_bytes(&self, at: u64, length: usize) -> io::Result<Cow<'_, [u8]>> {
        read_slice(self, at, length)
    }
}

/// The first bytes of a file on disk.
#[derive(Debug)]
pub struct FileSource {
    file: std::fs::File,
    length: u64,
}

impl FileSource {
    /// Limits a file to its first `length` bytes.
    pub fn new(file: std::fs::File, length: u64) -> Self {
        FileSource { file, length }
    }
}

impl Source for FileSource {
    fn length(&self) -> u64 {
        self.length
    }
    fn read_bytes(&self, at: u64, length: usize) -> io::Result<Cow<'_, [u8]>> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(Cow::Owned(bytes))
    }
}
