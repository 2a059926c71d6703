//! Container log files in CRI's format: `TIME stdout|stderr F|P TEXT`, where P marks a part of a
//! longer line.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// One record of a log file, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Time as written, RFC 3339 with nanoseconds.
    pub time: &'a str,
    /// The record is from standard error.
    pub stderr: bool,
    /// The line continues in the next record.
    pub partial: bool,
    /// The text, without a line end.
    pub text: &'a [u8],
}

/// Parses one line of a log file (with or without its line end).
pub fn parse_record(line: &[u8]) -> Option<Record<'_>> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    // The text may have blanks; only the first three separate fields.
    let mut parts = line.splitn(4, |b| *b == b' ');
    let time = std::str::from_utf8(parts.next()?).ok()?;
    let stderr = match parts.next()? {
        b"stdout" => false,
        b"stderr" => true,
        _ => return None,
    };
    let tags = parts.next()?;
    // CRI reserves more tags after a colon; the first one is F or P.
    let partial = tags.split(|b| *b == b':').next() == Some(b"P");
    Some(Record {
        time,
        stderr,
        partial,
        text: parts.next().unwrap_or_default(),
    })
}

/// Returns the end of a log: at most `lines` lines and `bytes` bytes of text, as a termination
/// message.
///
/// # Errors
/// The file can't be read.
pub fn read_tail(path: &Path, lines: usize, bytes: usize) -> io::Result<Vec<u8>> {
    let mut file = std::fs::File::open(path)?;
    let size = file.metadata()?.len();
    // A record has about 50 bytes in addition to its text.
    let window = (bytes + lines * 64) as u64;
    file.seek(SeekFrom::Start(size.saturating_sub(window)))?;
    let mut raw = Vec::new();
    file.read_to_end(&mut raw)?;
    let mut records: Vec<&[u8]> = raw.split_inclusive(|b| *b == b'\n').collect();
    // The window starts in the middle of a record, which has no time and no tag.
    if size > window && !records.is_empty() {
        records.remove(0);
    }
    let mut text = Vec::new();
    let skip = records.len().saturating_sub(lines);
    for record in records.into_iter().skip(skip).filter_map(parse_record) {
        text.extend_from_slice(record.text);
        if !record.partial {
            text.push(b'\n');
        }
    }
    // The end of the text is kept: the error is usually there.
    let cut = text.len().saturating_sub(bytes);
    Ok(text.split_off(cut))
}

/// Returns the byte offset at which the last `lines` whole lines of the file begin, and their
/// number. Partial records of one line count once.
///
/// # Errors
/// The file can't be read.
pub fn find_tail_offset(file: &mut std::fs::File, lines: u64) -> io::Result<(u64, u64)> {
    const BLOCK: u64 = 64 * 1024;
    let end = file.seek(SeekFrom::End(0))?;
    let (mut from, mut found, mut later_start) = (end, 0u64, end);
    let mut tail: Vec<u8> = Vec::new();
    while from > 0 {
        let size = BLOCK.min(from);
        from -= size;
        let mut block = vec![0; usize::try_from(size).unwrap_or_default()];
        file.seek(SeekFrom::Start(from))?;
        file.read_exact(&mut block)?;
        block.extend_from_slice(&tail);
        // Scans whole records of this window, from the last to the first.
        let first_break = if from == 0 {
            Some(0)
        } else {
            block.iter().position(|b| *b == b'\n').map(|i| i + 1)
        };
        let Some(first) = first_break else {
            tail = block;
            continue;
        };
        let mut stop = block.len();
        while stop > first {
            let start = block
                .get(first..stop - 1)
                .and_then(|b| b.iter().rposition(|b| *b == b'\n'))
                .map_or(first, |i| first + i + 1);
            let record = block.get(start..stop).unwrap_or_default();
            // Counted at the end of a line, because the parts of a long line come before its end.
            if parse_record(record).is_some_and(|r| !r.partial) {
                if found == lines {
                    return Ok((later_start, found));
                }
                found += 1;
            }
            later_start = from + start as u64;
            stop = start;
        }
        tail = block.get(..first).unwrap_or_default().to_vec();
    }
    Ok((if lines == 0 { end } else { 0 }, found))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use std::io::Write;

    const LOG: &str = "2026-01-01T00:00:00.1Z stdout F one\n2026-01-01T00:00:00.2Z stderr P tw\n\
                       2026-01-01T00:00:00.3Z stderr F o\n2026-01-01T00:00:00.4Z stdout F \n";

    #[test]
    fn log_records_are_parsed() {
        let got = parse_record(b"T stdout P a b").unwrap();
        assert_eq!(
            (got.time, got.stderr, got.partial, got.text),
            ("T", false, true, b"a b".as_slice())
        );
        assert_eq!(parse_record(b"garbage"), None);
    }

    #[test]
    fn tail_returns_the_last_lines_within_its_limits() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(LOG.as_bytes()).unwrap();
        assert_eq!(read_tail(file.path(), 80, 2048).unwrap(), b"one\ntwo\n\n");
        assert_eq!(read_tail(file.path(), 80, 5).unwrap(), b"two\n\n");
        let starts: Vec<usize> = LOG
            .split_inclusive('\n')
            .scan(0, |at, l| {
                let s = *at;
                *at += l.len();
                Some(s)
            })
            .collect();
        let mut handle = file.reopen().unwrap();
        for (lines, want) in [
            (0, LOG.len()),
            (1, starts[3]),
            (2, starts[1]),
            (3, 0),
            (9, 0),
        ] {
            assert_eq!(
                find_tail_offset(&mut handle, lines).unwrap().0,
                want as u64,
                "{lines} lines"
            );
        }
    }

    #[test]
    fn record_without_text_or_with_more_tags_is_read() {
        let empty = parse_record(b"T stderr F").unwrap();
        assert_eq!(
            (empty.stderr, empty.partial, empty.text),
            (true, false, &b""[..])
        );
        assert!(parse_record(b"T stdout P:x:y part").unwrap().partial);
        assert_eq!(parse_record(b"T stdlog F text"), None);
        assert_eq!(parse_record(b"T stdout"), None);
    }

    #[test]
    fn tail_of_more_records_than_lines_starts_at_a_whole_record() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        for n in 0..100 {
            writeln!(file, "2026-01-01T00:00:00.123456789Z stdout F line {n}").unwrap();
        }
        assert_eq!(
            read_tail(file.path(), 2, 1024).unwrap(),
            b"line 98\nline 99\n"
        );
        assert_eq!(read_tail(file.path(), 80, 10).unwrap(), b"8\nline 99\n");
    }

    /// The file is read backwards in blocks of 64 KiB; a record may span two of them.
    #[test]
    fn tail_offset_is_found_across_blocks() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut starts = Vec::new();
        let mut size = 0;
        for n in 0..40 {
            let record = format!("T stdout F {}\n", "x".repeat(5_000 + n));
            starts.push(size);
            size += record.len() as u64;
            file.write_all(record.as_bytes()).unwrap();
        }
        let mut handle = file.reopen().unwrap();
        for lines in [1, 12, 13, 14, 26, 39, 40] {
            let expected = (starts[40 - lines], lines as u64);
            assert_eq!(
                find_tail_offset(&mut handle, lines as u64).unwrap(),
                expected,
                "{lines} lines"
            );
        }
        assert_eq!(find_tail_offset(&mut handle, 41).unwrap(), (0, 40));
    }
}
