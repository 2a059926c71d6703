//! Writes bbolt files from sorted pairs, page by page.

use crate::format::{
    BRANCH, BUCKET, ELEMENT, FREELIST, LEAF, MAGIC, META, META_SUMMED, PAGE, PAGE_HEAD, VERSION,
    compute_checksum,
};
use std::io::{self, Seek, SeekFrom, Write};

/// A page's first key and its number.
type Child = (Vec<u8>, u64);

/// Writes buckets one after the other. `finish` makes the file valid.
pub struct Writer<W> {
    out: W,
    next: u64,
    buckets: Vec<(Vec<u8>, u64)>,
    open: Option<Open>,
}

/// The bucket in progress.
struct Open {
    name: Vec<u8>,
    items: Vec<(Vec<u8>, Vec<u8>)>,
    bytes: usize,
    leaves: Vec<Child>,
}

impl<W: Write + Seek> Writer<W> {
    /// Starts a file.
    pub fn new(mut out: W) -> io::Result<Self> {
        // The two meta pages are written last, when their content is known.
        out.write_all(&[0; 2 * PAGE])?;
        Ok(Writer {
            out,
            next: 2,
            buckets: Vec::new(),
            open: None,
        })
    }

    /// Starts a bucket.
    pub fn start_bucket(&mut self, name: &str) -> io::Result<()> {
        self.close_bucket()?;
        self.open = Some(Open {
            name: name.into(),
            items: Vec::new(),
            bytes: 0,
            leaves: Vec::new(),
        });
        Ok(())
    }

    /// Adds a pair to the bucket. Keys must be in ascending order.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let size = ELEMENT + key.len() + value.len();
        let Some(open) = &mut self.open else {
            return Err(io::Error::other("no bucket is begun"));
        };
        // A pair that exceeds a page gets a page of its own, with overflow.
        let full = PAGE_HEAD + open.bytes + size > PAGE && !open.items.is_empty();
        open.bytes += size;
        if full {
            open.bytes = size;
            let items = std::mem::take(&mut open.items);
            self.flush_leaf(items)?;
        }
        if let Some(open) = &mut self.open {
            open.items.push((key.to_vec(), value.to_vec()));
        }
        Ok(())
    }

    fn flush_leaf(&mut self, items: Vec<(Vec<u8>, Vec<u8>)>) -> io::Result<()> {
        let first = items
            .first()
            .map(|(key, _)| key.clone())
            .unwrap_or_default();
        let flagged: Vec<_> = items
            .into_iter()
            .map(|(key, value)| (0, key, value))
            .collect();
        let page = self.write_leaf(&flagged)?;
        if let Some(open) = &mut self.open {
            open.leaves.push((first, page));
        }
        Ok(())
    }

    fn write_leaf(&mut self, items: &[(u32, Vec<u8>, Vec<u8>)]) -> io::Result<u64> {
        let mut heads: Vec<u8> = Vec::new();
        let mut bodies: Vec<u8> = Vec::new();
        for (number, (flags, key, value)) in items.iter().enumerate() {
            let position = (items.len() - number) * ELEMENT + bodies.len();
            heads.extend(flags.to_le_bytes());
            heads.extend((position as u32).to_le_bytes());
            heads.extend((key.len() as u32).to_le_bytes());
            heads.extend((value.len() as u32).to_le_bytes());
            bodies.extend(key);
            bodies.extend(value);
        }
        heads.extend(bodies);
        self.write_page(LEAF, items.len(), &heads)
    }

    fn write_branch(&mut self, children: &[Child]) -> io::Result<u64> {
        let mut heads: Vec<u8> = Vec::new();
        let mut bodies: Vec<u8> = Vec::new();
        for (number, (key, page)) in children.iter().enumerate() {
            let position = (children.len() - number) * ELEMENT + bodies.len();
            heads.extend((position as u32).to_le_bytes());
            heads.extend((key.len() as u32).to_le_bytes());
            heads.extend(page.to_le_bytes());
            bodies.extend(key);
        }
        heads.extend(bodies);
        self.write_page(BRANCH, children.len(), &heads)
    }

    fn write_page(&mut self, flags: u16, count: usize, body: &[u8]) -> io::Result<u64> {
        let number = self.next;
        let pages = (PAGE_HEAD + body.len()).div_ceil(PAGE).max(1);
        self.out
            .write_all(&encode_page_head(number, flags, count, pages))?;
        self.out.write_all(body)?;
        self.out
            .write_all(&vec![0; pages * PAGE - PAGE_HEAD - body.len()])?;
        self.next += pages as u64;
        Ok(number)
    }

    fn close_bucket(&mut self) -> io::Result<()> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        let items = std::mem::take(&mut open.items);
        // An empty bucket needs a page too, because root page 0 means an inline bucket.
        if !items.is_empty() || open.leaves.is_empty() {
            self.flush_leaf(items)?;
        }
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        let root = self.write_tree(open.leaves)?;
        self.buckets.push((open.name, root));
        Ok(())
    }

    /// Writes branch pages over a level of pages, until a single one remains.
    fn write_tree(&mut self, mut level: Vec<Child>) -> io::Result<u64> {
        while level.len() > 1 {
            let mut above = Vec::new();
            let mut group: Vec<Child> = Vec::new();
            let mut bytes = PAGE_HEAD;
            for child in level {
                let size = ELEMENT + child.0.len();
                // At least two children per branch page. Otherwise keys larger than a page would
                // add levels for ever.
                if bytes + size > PAGE && group.len() >= 2 {
                    above.push(self.write_group(&group)?);
                    group.clear();
                    bytes = PAGE_HEAD;
                }
                bytes += size;
                group.push(child);
            }
            above.push(self.write_group(&group)?);
            level = above;
        }
        Ok(level.first().map_or(0, |(_, page)| *page))
    }

    fn write_group(&mut self, group: &[Child]) -> io::Result<Child> {
        let first = group
            .first()
            .map(|(key, _)| key.clone())
            .unwrap_or_default();
        Ok((first, self.write_branch(group)?))
    }

    /// Completes the file. Returns it with its size.
    pub fn finish(mut self) -> io::Result<(W, u64)> {
        self.close_bucket()?;
        // bbolt finds buckets by binary search.
        self.buckets.sort();
        let buckets = std::mem::take(&mut self.buckets);
        let entries: Vec<_> = buckets
            .into_iter()
            .map(|(name, root)| (BUCKET, name, [root.to_le_bytes(), [0; 8]].concat()))
            .collect();
        let root = self.write_leaf(&entries)?;
        // No page of a file written in one pass is free. Without this list bbolt would search the
        // whole file for free pages.
        let freelist = self.write_page(FREELIST, 0, &[])?;
        let end = self.next;
        // Until here both meta pages are zero, so an interrupted export is no valid file.
        self.out.seek(SeekFrom::Start(0))?;
        for number in 0..2 {
            let mut page = encode_page_head(number, META, 0, 1).to_vec();
            page.extend(encode_meta(root, freelist, end, number));
            page.resize(PAGE, 0);
            self.out.write_all(&page)?;
        }
        self.out.flush()?;
        Ok((self.out, end * PAGE as u64))
    }
}

fn encode_page_head(number: u64, flags: u16, count: usize, pages: usize) -> [u8; PAGE_HEAD] {
    let mut head = [0; PAGE_HEAD];
    head[..8].copy_from_slice(&number.to_le_bytes());
    head[8..10].copy_from_slice(&flags.to_le_bytes());
    head[10..12].copy_from_slice(&(count as u16).to_le_bytes());
    head[12..].copy_from_slice(&(pages as u32 - 1).to_le_bytes());
    head
}

fn encode_meta(root: u64, freelist: u64, end: u64, transaction: u64) -> Vec<u8> {
    let mut meta = Vec::with_capacity(64);
    meta.extend(MAGIC.to_le_bytes());
    meta.extend(VERSION.to_le_bytes());
    meta.extend((PAGE as u32).to_le_bytes());
    meta.extend(0u32.to_le_bytes());
    meta.extend(root.to_le_bytes());
    meta.extend(0u64.to_le_bytes());
    meta.extend(freelist.to_le_bytes());
    meta.extend(end.to_le_bytes());
    meta.extend((transaction + 1).to_le_bytes());
    let sum = compute_checksum(&meta[..META_SUMMED]);
    meta.extend(sum.to_le_bytes());
    meta
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{BoltError, File};
    use std::io::Cursor;

    fn u16_in(bytes: &[u8], at: usize) -> u16 {
        u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
    }

    fn u32_in(bytes: &[u8], at: usize) -> usize {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
    }

    fn u64_in(bytes: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
    }

    /// Returns a file with one bucket.
    fn bucket_file(pairs: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut writer = Writer::new(Cursor::new(Vec::new())).unwrap();
        writer.start_bucket("b").unwrap();
        for (key, value) in pairs {
            writer.put(key, value).unwrap();
        }
        writer.finish().unwrap().0.into_inner()
    }

    /// Completes a file whose root page was written by hand.
    fn finish_with_root(mut writer: Writer<Cursor<Vec<u8>>>, root: u64) -> Vec<u8> {
        let freelist = writer.write_page(FREELIST, 0, &[]).unwrap();
        let mut bytes = writer.out.into_inner();
        for number in 0..2 {
            let mut page = encode_page_head(number, META, 0, 1).to_vec();
            page.extend(encode_meta(root, freelist, writer.next, number));
            bytes[number as usize * PAGE..][..page.len()].copy_from_slice(&page);
        }
        bytes
    }

    type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

    fn pairs_of(bytes: &[u8], bucket: &[u8]) -> Result<Pairs, BoltError> {
        let mut found = Vec::new();
        File::open(&bytes)?.visit_pairs::<BoltError>(bucket, &mut |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn every_page_starts_with_its_number_flags_and_count() {
        let bytes = bucket_file(&[(b"k1", b"v1"), (b"k2", b"v2")]);
        assert_eq!(bytes.len() % PAGE, 0);
        for (page, flags, count) in [
            (0, META, 0),
            (1, META, 0),
            (2, LEAF, 2),
            (3, LEAF, 1),
            (4, FREELIST, 0),
        ] {
            let head = &bytes[page * PAGE..][..PAGE_HEAD];
            assert_eq!(u64_in(head, 0), page as u64);
            assert_eq!(
                (u16_in(head, 8), u16_in(head, 10)),
                (flags, count),
                "page {page}"
            );
            assert_eq!(u32_in(head, 12), 0, "page {page} has no overflow");
        }
    }

    #[test]
    fn leaf_elements_give_positions_relative_to_themselves() {
        let bytes = bucket_file(&[(b"key1", b"value-1"), (b"k2", b"")]);
        let page = &bytes[2 * PAGE..3 * PAGE];
        for (number, key, value) in [(0, &b"key1"[..], &b"value-1"[..]), (1, b"k2", b"")] {
            let element = PAGE_HEAD + number * ELEMENT;
            let key_at = element + u32_in(page, element + 4);
            let (key_size, value_size) = (u32_in(page, element + 8), u32_in(page, element + 12));
            assert_eq!(&page[key_at..key_at + key_size], key);
            assert_eq!(&page[key_at + key_size..][..value_size], value);
        }
    }

    #[test]
    fn large_value_takes_overflow_pages() {
        for (size, overflow) in [(4_000, 0), (4_080, 1), (3 * PAGE, 3), (100_000, 24)] {
            let value = vec![7; size];
            let bytes = bucket_file(&[(b"a", &value), (b"b", b"small")]);
            assert_eq!(u32_in(&bytes, 2 * PAGE + 12), overflow, "{size} bytes");
            let found = pairs_of(&bytes, b"b").unwrap();
            assert_eq!(found[0].1.len(), size);
            assert_eq!(found[1].1, b"small");
        }
    }

    #[test]
    fn meta_page_with_the_higher_transaction_wins_and_the_other_replaces_it() {
        let bytes = bucket_file(&[(b"k", b"v")]);
        assert_eq!(u64_in(&bytes, PAGE_HEAD + 48), 1);
        assert_eq!(u64_in(&bytes, PAGE + PAGE_HEAD + 48), 2);
        for (damaged, readable) in [(&[0][..], true), (&[1], true), (&[0, 1], false)] {
            let mut bytes = bytes.clone();
            for page in damaged {
                bytes[page * PAGE + PAGE_HEAD + 20] ^= 1;
            }
            let opened = File::open(&bytes).map(|file| file.bucket_names().unwrap());
            match readable {
                true => assert_eq!(opened.unwrap(), [b"b".to_vec()], "{damaged:?}"),
                false => assert_eq!(opened.unwrap_err(), BoltError::Meta),
            }
        }
    }

    #[test]
    fn inline_bucket_is_read_from_its_value() {
        let mut writer = Writer::new(Cursor::new(Vec::new())).unwrap();
        // bbolt keeps a small bucket in the value of its entry: root page 0, sequence, then a page.
        let mut inline = vec![0; 16];
        inline.extend(encode_page_head(0, LEAF, 1, 1));
        for number in [0, 16, 1, 2] {
            inline.extend(u32::to_le_bytes(number));
        }
        inline.extend(b"kvv");
        let root = writer
            .write_leaf(&[(BUCKET, b"small".to_vec(), inline)])
            .unwrap();
        let bytes = finish_with_root(writer, root);
        assert_eq!(
            pairs_of(&bytes, b"small").unwrap(),
            [(b"k".to_vec(), b"vv".to_vec())]
        );
    }

    #[test]
    fn pages_that_refer_to_each_other_are_an_error() {
        let mut writer = Writer::new(Cursor::new(Vec::new())).unwrap();
        let loops = writer.next;
        writer
            .write_branch(&[(b"a".to_vec(), loops), (b"b".to_vec(), loops)])
            .unwrap();
        let entry = [loops.to_le_bytes(), [0; 8]].concat();
        let root = writer
            .write_leaf(&[(BUCKET, b"b".to_vec(), entry)])
            .unwrap();
        let bytes = finish_with_root(writer, root);
        assert_eq!(pairs_of(&bytes, b"b"), Err(BoltError::Page(loops)));
    }

    #[test]
    fn page_under_a_wrong_number_is_an_error() {
        let mut bytes = bucket_file(&[(b"k", b"v")]);
        bytes[2 * PAGE] = 9;
        assert_eq!(pairs_of(&bytes, b"b"), Err(BoltError::Page(2)));
    }

    #[test]
    fn checksum_is_fnv_1a() {
        for (text, expect) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(compute_checksum(text.as_bytes()), expect, "{text:?}");
        }
    }

    #[test]
    fn pair_without_a_bucket_is_rejected() {
        let mut writer = Writer::new(Cursor::new(Vec::new())).unwrap();
        assert!(writer.put(b"k", b"v").is_err());
    }
}
