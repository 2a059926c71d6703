//! Reads bbolt files.

use crate::format::{
    BRANCH, BUCKET, ELEMENT, LEAF, MAGIC, META_SUMMED, PAGE_HEAD, VERSION, compute_checksum,
};
use crate::source::Source;
use std::borrow::Cow;
use std::cell::Cell;

/// Maximum depth of a tree; a deeper one is a loop.
const MAX_DEPTH: usize = 64;

/// Defects of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BoltError {
    /// Neither meta page is valid.
    #[error("it is not a database file of etcd, or its beginning is damaged")]
    Meta,
    /// A page is invalid.
    #[error("page {0} is damaged or missing")]
    Page(u64),
    /// Reading the file failed.
    #[error("it can't be read at byte {0}: {1}")]
    Read(u64, String),
    /// The bucket does not exist.
    #[error("it has no bucket {0:?}")]
    Bucket(String),
}

/// A bbolt file. One page per level is in memory at a time.
pub struct File<'a> {
    source: &'a dyn Source,
    page_size: usize,
    root: u64,
    visited: Cell<u64>,
}

/// Items of a page or inline bucket.
struct Page<'a> {
    number: u64,
    bytes: Cow<'a, [u8]>,
}

/// Number of used bytes of a meta page.
const META: usize = PAGE_HEAD + META_SUMMED + 8;

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}
fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize)
}
fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

struct Meta {
    page_size: usize,
    root: u64,
    transaction: u64,
}

fn decode_meta(bytes: &[u8]) -> Option<Meta> {
    let meta = bytes.get(PAGE_HEAD..META)?;
    let valid = u32_at(meta, 0)? as u32 == MAGIC
        && u32_at(meta, 4)? as u32 == VERSION
        && compute_checksum(meta.get(..META_SUMMED)?) == u64_at(meta, META_SUMMED)?;
    let page_size = u32_at(meta, 8)?;
    (valid && (512..=1 << 20).contains(&page_size)).then_some(())?;
    Some(Meta {
        page_size,
        root: u64_at(meta, 16)?,
        transaction: u64_at(meta, 48)?,
    })
}

/// Called for each item of a page with its flags, key and value.
type PageVisit<'v, E> = dyn FnMut(u32, &[u8], &[u8]) -> Result<(), E> + 'v;

/// Called for each pair of a bucket.
type Visit<'v, E> = dyn FnMut(&[u8], &[u8]) -> Result<(), E> + 'v;

impl<'a> File<'a> {
    /// Opens a file, on disk or in memory.
    pub fn open(source: &'a dyn Source) -> Result<Self, BoltError> {
        let meta_at = |at: usize| decode_meta(&source.read_bytes(at as u64, META).ok()?);
        // bbolt writes its two meta pages in turn, so a crash damages one at most. If it is the
        // first, the page size is not known: 4096 is that of Linux on most processors.
        let first = meta_at(0);
        let second = meta_at(first.as_ref().map_or(4096, |meta| meta.page_size));
        let newest = [first, second]
            .into_iter()
            .flatten()
            .max_by_key(|meta| meta.transaction);
        let Meta {
            page_size, root, ..
        } = newest.ok_or(BoltError::Meta)?;
        Ok(File {
            source,
            page_size,
            root,
            visited: Cell::new(0),
        })
    }

    /// Returns the names of the buckets, in order.
    pub fn bucket_names(&self) -> Result<Vec<Vec<u8>>, BoltError> {
        let mut names = Vec::new();
        self.walk_tree::<BoltError>(self.read_page(self.root)?, 0, &mut |flags, name, _| {
            if flags & BUCKET != 0 {
                names.push(name.to_vec());
            }
            Ok(())
        })?;
        Ok(names)
    }

    /// Visits the pairs of a bucket in order.
    pub fn visit_pairs<E: From<BoltError>>(
        &self,
        bucket: &[u8],
        visit: &mut Visit<'_, E>,
    ) -> Result<(), E> {
        self.visited.set(0);
        let mut found = None;
        self.walk_tree::<BoltError>(self.read_page(self.root)?, 0, &mut |flags, name, value| {
            if flags & BUCKET != 0 && name == bucket {
                found = Some((
                    u64_at(value, 0).ok_or(BoltError::Page(self.root))?,
                    value.to_vec(),
                ));
            }
            Ok(())
        })?;
        let (root, value) =
            found.ok_or_else(|| BoltError::Bucket(String::from_utf8_lossy(bucket).into_owned()))?;
        // bbolt keeps a small bucket inline: its only page follows the bucket's header in the
        // value.
        let page = if root == 0 {
            Page {
                number: self.root,
                bytes: Cow::Owned(value.get(16..).unwrap_or_default().to_vec()),
            }
        } else {
            self.read_page(root)?
        };
        self.walk_tree(page, 0, &mut |_, key, value| visit(key, value))
    }

    fn read_page(&self, number: u64) -> Result<Page<'a>, BoltError> {
        let wrong = || BoltError::Page(number);
        let start = number
            .checked_mul(self.page_size as u64)
            .ok_or_else(wrong)?;
        let head = self.read_page_bytes(number, start, PAGE_HEAD)?;
        let pages = u32_at(&head, 12)
            .and_then(|overflow| overflow.checked_add(1))
            .ok_or_else(wrong)?;
        let size = pages.checked_mul(self.page_size).ok_or_else(wrong)?;
        // bbolt writes each page's number into it. Another number means a damaged reference or
        // page.
        if u64_at(&head, 0) != Some(number) {
            return Err(wrong());
        }
        Ok(Page {
            number,
            bytes: self.read_page_bytes(number, start, size)?,
        })
    }

    /// Returns the bytes of a page, never beyond the end of the file.
    fn read_page_bytes(
        &self,
        number: u64,
        start: u64,
        size: usize,
    ) -> Result<Cow<'a, [u8]>, BoltError> {
        // Counts come from the file: without this check a damaged one would request any amount of
        // memory.
        if start
            .checked_add(size as u64)
            .is_none_or(|end| end > self.source.length())
        {
            return Err(BoltError::Page(number));
        }
        self.source
            .read_bytes(start, size)
            .map_err(|e| BoltError::Read(start, e.to_string()))
    }

    fn walk_tree<E: From<BoltError>>(
        &self,
        page: Page<'_>,
        depth: usize,
        visit: &mut PageVisit<'_, E>,
    ) -> Result<(), E> {
        let wrong = || E::from(BoltError::Page(page.number));
        if depth > MAX_DEPTH {
            return Err(wrong());
        }
        // Pages that refer to each other would loop forever.
        let visited = self.visited.get() + 1;
        self.visited.set(visited);
        if visited > 4 * (self.source.length() / self.page_size as u64 + 4) {
            return Err(wrong());
        }
        let flags = u16_at(&page.bytes, 8).ok_or_else(wrong)?;
        let count = u16_at(&page.bytes, 10).ok_or_else(wrong)?;
        for number in 0..usize::from(count) {
            let at = PAGE_HEAD + number * ELEMENT;
            if flags & BRANCH != 0 {
                let child = u64_at(&page.bytes, at + 8).ok_or_else(wrong)?;
                self.walk_tree(self.read_page(child)?, depth + 1, visit)?;
            } else if flags & LEAF != 0 {
                let (flags, key, value) = decode_element(&page.bytes, at).ok_or_else(wrong)?;
                visit(flags, key, value)?;
            } else {
                return Err(wrong());
            }
        }
        Ok(())
    }
}

fn decode_element(page: &[u8], at: usize) -> Option<(u32, &[u8], &[u8])> {
    let flags = u32_at(page, at)? as u32;
    let key_at = at.checked_add(u32_at(page, at + 4)?)?;
    let value_at = key_at.checked_add(u32_at(page, at + 8)?)?;
    let end = value_at.checked_add(u32_at(page, at + 12)?)?;
    Some((flags, page.get(key_at..value_at)?, page.get(value_at..end)?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Writer;
    use std::io::Cursor;

    fn sample_file(items: u32) -> Vec<u8> {
        let mut writer = Writer::new(Cursor::new(Vec::new())).unwrap();
        writer.start_bucket("key").unwrap();
        for number in 0..items {
            writer
                .put(
                    &number.to_be_bytes(),
                    &vec![number as u8; number as usize % 9_000],
                )
                .unwrap();
        }
        writer.start_bucket("empty").unwrap();
        let (out, size) = writer.finish().unwrap();
        assert_eq!(out.get_ref().len() as u64, size);
        out.into_inner()
    }

    #[test]
    fn written_buckets_and_pairs_are_read_in_order() {
        for items in [0, 1, 1_000, 20_000] {
            let bytes = sample_file(items);
            let file = File::open(&bytes).unwrap();
            assert_eq!(
                file.bucket_names().unwrap(),
                [b"empty".to_vec(), b"key".to_vec()]
            );
            let mut next = 0u32;
            file.visit_pairs::<BoltError>(b"key", &mut |key, value| {
                assert_eq!(key, next.to_be_bytes());
                assert_eq!(value, vec![next as u8; next as usize % 9_000]);
                next += 1;
                Ok(())
            })
            .unwrap();
            assert_eq!(next, items);
            assert_eq!(
                file.visit_pairs::<BoltError>(b"none", &mut |_, _| Ok(())),
                Err(BoltError::Bucket("none".into()))
            );
        }
    }

    #[test]
    fn damaged_or_truncated_file_never_panics() {
        let bytes = sample_file(300);
        for at in (0..bytes.len()).step_by(97) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0xff;
            if let Ok(file) = File::open(&damaged) {
                let _ = file.visit_pairs::<BoltError>(b"key", &mut |_, _| Ok(()));
            }
            if let Ok(file) = File::open(&&bytes[..at]) {
                let _ = file.visit_pairs::<BoltError>(b"key", &mut |_, _| Ok(()));
            }
        }
    }
}
