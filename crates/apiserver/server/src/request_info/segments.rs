//! A path split at its slashes.
//!
//! As in Go, an escaped slash separates segments too. Each segment records its end in the path as
//! sent, so that a proxy forwards exactly the bytes after its subresource, whatever the preceding
//! names look like.

use super::bad_path::BadPath;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// Characters that are escaped in a segment.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'%')
    .add(b'?')
    .add(b'#')
    .add(b'"')
    .add(b'<')
    .add(b'>');

/// The segments of a path, without empty ones at both ends.
pub struct Segments<'a> {
    raw: &'a str,
    /// The whole path, decoded.
    pub path: String,
    words: Vec<String>,
    ends: Vec<usize>,
}

impl<'a> Segments<'a> {
    /// Decodes a path.
    ///
    /// # Errors
    /// A broken escape, bytes that are not UTF-8, or a NUL.
    pub fn parse(raw: &'a str) -> Result<Self, BadPath> {
        let path = decode_segment(raw)?;
        let (mut words, mut ends) = (Vec::new(), Vec::new());
        for (start, end) in cut_segments(raw) {
            words.push(decode_segment(raw.get(start..end).unwrap_or_default())?);
            ends.push(end);
        }
        // The path begins with a slash, and may end with one: neither makes it unclean.
        if words.first().is_some_and(String::is_empty) {
            words.remove(0);
            ends.remove(0);
        }
        if words.last().is_some_and(String::is_empty) {
            words.pop();
            ends.pop();
        }
        Ok(Segments {
            raw,
            path,
            words,
            ends,
        })
    }

    /// Returns the decoded segments.
    pub fn words(&self) -> Vec<&str> {
        self.words.iter().map(String::as_str).collect()
    }

    /// Returns the path after the segment `at`, as sent: empty, or with its leading slash.
    pub fn path_after(&self, at: usize) -> String {
        let rest = self
            .ends
            .get(at)
            .and_then(|end| self.raw.get(*end..))
            .unwrap_or_default();
        match separator_length(rest) {
            // The target of a request must begin with a plain slash.
            3 => format!("/{}", rest.get(3..).unwrap_or_default()),
            _ => rest.to_owned(),
        }
    }

    /// Rejects `.` and `..`, and empty segments among the first `count`; the remaining segments
    /// belong to a backend.
    pub fn expect_clean(&self, count: usize) -> Result<(), BadPath> {
        // In the backend's part, too: a client could otherwise leave the proxied path by `..`.
        let dots = self
            .words
            .iter()
            .any(|word| matches!(word.as_str(), "." | ".."));
        let empty = self.words.iter().take(count).any(String::is_empty);
        if dots || empty {
            Err(BadPath::Unclean(clean_path(&self.words)))
        } else {
            Ok(())
        }
    }
}

/// Returns start and end of each segment.
fn cut_segments(raw: &str) -> Vec<(usize, usize)> {
    let (mut all, mut start, mut at) = (Vec::new(), 0, 0);
    while at < raw.len() {
        match raw.get(at..).map_or(0, separator_length) {
            0 => at += 1,
            length => {
                all.push((start, at));
                at += length;
                start = at;
            }
        }
    }
    all.push((start, raw.len()));
    all
}

/// Returns the length of the slash at the start of `text`, plain or escaped; 0 if there is none.
fn separator_length(text: &str) -> usize {
    let escaped = text
        .get(..3)
        .is_some_and(|escape| escape.eq_ignore_ascii_case("%2f"));
    if text.starts_with('/') {
        1
    } else {
        3 * usize::from(escaped)
    }
}

fn decode_segment(raw: &str) -> Result<String, BadPath> {
    let bytes = raw.as_bytes();
    let broken = bytes.iter().enumerate().any(|(at, b)| {
        *b == b'%'
            && !bytes
                .get(at + 1..at + 3)
                .is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))
    });
    // The decoder keeps broken escapes unchanged, and a backend might read them differently.
    if broken {
        return Err(BadPath::Malformed);
    }
    let text = percent_decode_str(raw)
        .decode_utf8()
        .map_err(|_| BadPath::Malformed)?
        .into_owned();
    // A NUL would end names in C programs behind a proxy.
    if text.contains('\0') {
        Err(BadPath::Malformed)
    } else {
        Ok(text)
    }
}

/// Returns the path without `.` and empty segments, with `..` resolved, for a `Location` header.
fn clean_path(words: &[String]) -> String {
    let mut out: Vec<&str> = Vec::new();
    for word in words {
        match word.as_str() {
            "" | "." => {}
            ".." => drop(out.pop()),
            word => out.push(word),
        }
    }
    out.iter()
        .map(|word| format!("/{}", utf8_percent_encode(word, ESCAPED)))
        .collect()
}
