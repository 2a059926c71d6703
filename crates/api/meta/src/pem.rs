//! PEM blocks (RFC 7468), by the rules of Go's `encoding/pem`.
//!
//! Validation must find the blocks that clients written in Go find, or they would use a certificate
//! that was never validated. Text between blocks, and blocks that can't be decoded, are skipped.
//! Reading takes linear time, because a client sends the text.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"\n-----END ";
const DASHES: &[u8] = b"-----";

/// Go's decoder ignores the unused bits of the last character.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// A block of a PEM text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PemBlock {
    /// The type, such as `CERTIFICATE`.
    pub label: String,
    /// True if lines `KEY: VALUE` precede the data.
    pub has_headers: bool,
    /// The decoded data.
    pub contents: Vec<u8>,
}

/// Returns the blocks in order.
pub fn read_blocks(text: &[u8]) -> impl Iterator<Item = PemBlock> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (block, after) = read_block(rest)?;
        rest = after;
        Some(block)
    })
}

/// Formats a block without headers, in lines of 64 characters.
#[must_use]
pub fn format_block(label: &str, contents: &[u8]) -> String {
    let mut text = format!("-----BEGIN {label}-----\n");
    // 48 bytes are 64 characters.
    for line in contents.chunks(48) {
        BASE64.encode_string(line, &mut text);
        text.push('\n');
    }
    text + &format!("-----END {label}-----\n")
}

/// Returns the first block and what follows it.
fn read_block(text: &[u8]) -> Option<(PemBlock, &[u8])> {
    let mut rest = text;
    loop {
        let end = find_part(rest, END)?;
        let (before, trailer) = (rest.get(..end)?, rest.get(end + END.len()..)?);
        if let Some(block) = find_start(before).and_then(|start| parse_block(start, trailer)) {
            return Some((block, take_line(trailer).1));
        }
        // The text is searched once: what precedes an END line has no other one.
        rest = trailer;
    }
}

/// Returns what follows the last BEGIN: a repeated one has no END of its own.
fn find_start(before: &[u8]) -> Option<&[u8]> {
    let at = before
        .windows(BEGIN.len())
        .rposition(|window| window == BEGIN)?;
    let is_line = at == 0 || before.get(at - 1) == Some(&b'\n');
    before.get(at + BEGIN.len()..).filter(|_| is_line)
}

/// Parses a block from the type in its first line to the type in its last line.
fn parse_block(start: &[u8], trailer: &[u8]) -> Option<PemBlock> {
    let (line, mut body) = take_line(start);
    let label = line.strip_suffix(DASHES)?;
    let after = trailer.strip_prefix(label)?.strip_prefix(DASHES)?;
    if !take_line(after).0.is_empty() {
        return None;
    }
    let mut has_headers = false;
    loop {
        let (line, next) = take_line(body);
        if !line.contains(&b':') {
            break;
        }
        // The line break belongs to the END line, which has to follow another one.
        if next.is_empty() && !body.ends_with(b"\n") {
            return None;
        }
        (has_headers, body) = (true, next);
    }
    let is_data = |byte: &u8| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let data: Vec<u8> = body.iter().copied().filter(is_data).collect();
    Some(PemBlock {
        label: String::from_utf8_lossy(label).into_owned(),
        has_headers,
        contents: BASE64.decode(data).ok()?,
    })
}

/// Returns the first line without white space at its end, and the rest.
fn take_line(text: &[u8]) -> (&[u8], &[u8]) {
    let (line, rest) = match text.iter().position(|byte| *byte == b'\n') {
        Some(at) => {
            let (line, rest) = text.split_at(at);
            (line.strip_suffix(b"\r").unwrap_or(line), rest.get(1..))
        }
        None => (text, None),
    };
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let length = line.iter().rposition(|byte| !is_blank(byte));
    let line = line.get(..length.map_or(0, |at| at + 1));
    (line.unwrap_or_default(), rest.unwrap_or_default())
}

fn find_part(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn describe(text: &str) -> Vec<String> {
        read_blocks(text.as_bytes())
            .map(|block| {
                let headers = if block.has_headers { "+" } else { "" };
                let contents = String::from_utf8_lossy(&block.contents).into_owned();
                format!("{}{headers}={contents}", block.label)
            })
            .collect()
    }

    #[test]
    fn blocks_are_found_as_by_go() {
        const A: &str = "-----BEGIN A-----\nYQ==\n-----END A-----\n";
        let with = |from: &str, to: &str| A.replacen(from, to, 1);
        for (text, expect) in [
            (A.to_owned(), &["A=a"][..]),
            (format!("{A}{A}"), &["A=a", "A=a"]),
            (format!("text\n{A}more\n{A}end"), &["A=a", "A=a"]),
            (A.trim_end().to_owned(), &["A=a"]),
            (A.replace('\n', "\r\n"), &["A=a"]),
            (with("YQ==", "Y\nQ =\t="), &["A=a"]),
            (with("YQ==", "YR=="), &["A=a"]),
            (with("YQ==", "YQ==\n\n"), &["A=a"]),
            (with("A-----\n", "A----- \t\n"), &["A=a"]),
            (with("END A-----", "END A-----  "), &["A=a"]),
            (with("YQ==", "K: v\n\nYQ=="), &["A+=a"]),
            (with("YQ==", "K: v\nL:\nYQ=="), &["A+=a"]),
            (with("YQ==", ""), &["A="]),
            (with("YQ==", "K: v\n"), &["A+="]),
            // Not at the start of a line.
            (format!(" {A}"), &[]),
            (format!("x {A}{A}"), &["A=a"]),
            // Malformed blocks are skipped.
            (with("YQ==", "K: v"), &[]),
            (with("A-----", "A---"), &[]),
            (with("END A", "END B"), &[]),
            (with("END A-----", "END A----- x"), &[]),
            (with("YQ==", "Y"), &[]),
            (with("\n-----END", "-----END"), &[]),
            (format!("-----BEGIN A-----\nYQ==\n{A}"), &["A=a"]),
            (
                format!("-----BEGIN B-----\n%\n-----END B-----\n{A}"),
                &["A=a"],
            ),
            (format!("\n-----END A-----\n{A}"), &["A=a"]),
            (String::new(), &[]),
        ] {
            assert_eq!(describe(&text), expect, "{text:?}");
        }
    }

    #[test]
    fn formatted_block_is_read_as_it_was_written() {
        for length in [0, 1, 48, 49, 1000] {
            let contents = vec![0xfb; length];
            let text = format_block("A", &contents);
            assert!(text.lines().all(|line| line.len() <= 64), "{text}");
            let read: Vec<_> = read_blocks(text.as_bytes()).collect();
            let expected = PemBlock {
                label: "A".to_owned(),
                has_headers: false,
                contents,
            };
            assert_eq!(read, [expected], "{text}");
        }
    }

    #[test]
    fn reading_takes_linear_time() {
        let (done, all_read) = std::sync::mpsc::channel();
        // In a thread, so that the test fails at its deadline: the steps are a million for each
        // text, and 10^12 if the time is the square.
        std::thread::spawn(move || {
            let counts = [
                "-----BEGIN A-----\n",
                "\n-----END A-----",
                "-----BEGIN A-----\n%\n-----END A-----\n",
            ]
            .map(|line| describe(&line.repeat(1_000_000 / line.len())).len());
            done.send(counts)
        });
        let deadline = std::time::Duration::from_secs(60);
        assert_eq!(all_read.recv_timeout(deadline), Ok([0, 0, 0]));
    }
}
