//! Where a file's bytes are.

use std::borrow::Cow;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that are read piece by piece.
pub trait Source {
    /// How many there are.
    fn length(&self) -> u64;
    /// The bytes at a place.
    fn read(&self, at: u64, length: usize) -> io::Result<Cow<'_, [u8]>>;
}

fn slice(bytes: &[u8], at: u64, length: usize) -> io::Result<Cow<'_, [u8]>> {
    let found = usize::try_from(at).ok().and_then(|at| bytes.get(at..at.checked_add(length)?));
    found.map(Cow::Borrowed).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

impl Source for &[u8] {
    fn length(&self) -> u64 {
        self.len() as u64
    }
    fn read(&self, at: u64, length: usize) -> io::Result<Cow<'_, [u8]>> {
        slice(self, at, length)
    }
}

impl Source for Vec<u8> {
    fn length(&self) -> u64 {
        self.len() as u64
    }
    fn read(&self, at: u64, length: usize) -> io::Result<Cow<'_, [u8]>> {
        slice(self, at, length)
    }
}

/// The beginning of a file on disk.
#[derive(Debug)]
pub struct OnDisk {
    file: std::fs::File,
    length: u64,
}

impl OnDisk {
    /// This many bytes of a file; the rest is not looked at.
    pub fn new(file: std::fs::File, length: u64) -> Self {
        OnDisk { file, length }
    }
}

impl Source for OnDisk {
    fn length(&self) -> u64 {
        self.length
    }
    fn read(&self, at: u64, length: usize) -> io::Result<Cow<'_, [u8]>> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(Cow::Owned(bytes))
    }
}
