//! Rewrites links in proxied HTML tag by tag.
//!
//! Bytes are copied unchanged, except the values of attributes that hold URLs. Comments and the
//! content of text-only elements (scripts, styles) are not touched. Memory use is one tag; longer
//! tags are copied unchanged.

/// Maximum length of a parsed tag or comment in bytes.
const LONGEST: usize = 64 * 1024;

/// Elements whose content is text, even if it looks like markup.
const TEXT_ONLY: [&[u8]; 10] = [
    b"iframe",
    b"noembed",
    b"noframes",
    b"noscript",
    b"plaintext",
    b"script",
    b"style",
    b"textarea",
    b"title",
    b"xmp",
];

/// Elements and their attributes that hold URLs, as HTML 4 and 5 list them.
const LINKS: [(&str, &[&str]); 25] = [
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["src", "usemap", "formaction"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];

/// Rewrites the links of a page that arrives in chunks.
pub struct HtmlRewriter<F> {
    rewrite: F,
    /// Bytes that may be the beginning of a tag.
    pending: Vec<u8>,
    /// The text-only element whose content is being copied.
    inside: Option<&'static [u8]>,
    scan: Scan,
}

/// State of the search for the end of the pending markup. A page may arrive byte by byte, and would
/// otherwise be searched from the start for each of them.
#[derive(Default)]
struct Scan {
    at: usize,
    /// The quote that is open at this position of a start tag.
    quote: Option<u8>,
    after_equals: bool,
}

/// The next part of a page.
enum Piece {
    /// This many bytes stay as they are; text-only content ends with them.
    Same(usize),
    /// This many bytes of text-only content.
    Text(usize),
    /// A start tag of this many bytes.
    Tag(usize),
    /// More bytes are needed.
    Unfinished,
}

impl<F: Fn(&str) -> Option<String>> HtmlRewriter<F> {
    /// Creates a rewriter; `rewrite` returns the new URL, or None to keep it.
    pub fn new(rewrite: F) -> Self {
        HtmlRewriter {
            rewrite,
            pending: Vec::new(),
            inside: None,
            scan: Scan::default(),
        }
    }

    /// Consumes a chunk of the page and returns the bytes that can be sent.
    pub fn push_chunk(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.pending.extend_from_slice(bytes);
        let page = std::mem::take(&mut self.pending);
        let (mut out, mut rest) = (Vec::new(), page.as_slice());
        while !rest.is_empty() {
            let piece = next_piece(rest, self.inside, &mut self.scan);
            // The rest of the tag comes with the next chunk.
            if matches!(piece, Piece::Unfinished) && rest.len() < LONGEST {
                break;
            }
            self.scan = Scan::default();
            let (taken, left) = match piece {
                // A tag that never ends must not fill the memory.
                Piece::Unfinished => rest.split_at(rest.len()),
                Piece::Text(length) => rest.split_at(length.min(rest.len())),
                Piece::Same(length) => {
                    self.inside = None;
                    rest.split_at(length.min(rest.len()))
                }
                Piece::Tag(length) => {
                    let (tag, left) = rest.split_at(length.min(rest.len()));
                    let name = tag_name(tag);
                    self.inside = TEXT_ONLY.into_iter().find(|text| name.as_bytes() == *text);
                    self.write_tag(&mut out, &name, tag);
                    rest = left;
                    continue;
                }
            };
            out.extend_from_slice(taken);
            rest = left;
        }
        self.pending = if rest.len() == page.len() {
            page
        } else {
            rest.to_vec()
        };
        out
    }

    /// Returns the remaining bytes at the end of the page.
    pub fn take_rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.pending)
    }

    fn write_tag(&self, out: &mut Vec<u8>, name: &str, tag: &[u8]) {
        let Some((_, wanted)) = LINKS.iter().find(|(element, _)| *element == name) else {
            return out.extend_from_slice(tag);
        };
        let mut copied = 0;
        for (attribute, value) in tag_attributes(tag, 1 + name.len()) {
            // A value that is not UTF-8 stays as it is: changed bytes could break the page.
            let text = tag
                .get(value.clone())
                .and_then(|bytes| std::str::from_utf8(bytes).ok());
            let is_link = wanted
                .iter()
                .any(|link| link.as_bytes().eq_ignore_ascii_case(attribute));
            if let Some(new) = text.filter(|_| is_link).and_then(&self.rewrite) {
                out.extend_from_slice(tag.get(copied..value.start).unwrap_or_default());
                out.extend_from_slice(new.as_bytes());
                copied = value.end;
            }
        }
        out.extend_from_slice(tag.get(copied..).unwrap_or_default());
    }
}

/// Splits off the next part.
fn next_piece(page: &[u8], inside: Option<&[u8]>, scan: &mut Scan) -> Piece {
    // Scripts hold strings with tags, whose change would alter the program.
    if let Some(element) = inside {
        return text_only(page, element, scan);
    }
    match page.iter().position(|b| *b == b'<') {
        None => Piece::Same(page.len()),
        Some(0) => parse_markup(page, scan),
        Some(at) => Piece::Same(at),
    }
}

/// Parses the content of a text-only element, up to its end tag.
fn text_only(page: &[u8], element: &[u8], scan: &mut Scan) -> Piece {
    let ends = |window: &[u8]| {
        window.starts_with(b"</")
            && window
                .get(2..)
                .unwrap_or_default()
                .eq_ignore_ascii_case(element)
    };
    let length = element.len() + 2;
    match page.windows(length).position(ends) {
        Some(0) => scan
            .find_end(page, 0, b">")
            .map_or(Piece::Unfinished, Piece::Same),
        Some(at) => Piece::Text(at),
        // The chunk may end inside the end tag.
        None => match page.len().saturating_sub(length - 1) {
            0 => Piece::Unfinished,
            passed => Piece::Text(passed),
        },
    }
}

/// Parses markup, which begins with `<`.
fn parse_markup(page: &[u8], scan: &mut Scan) -> Piece {
    let end_of = |end: Option<usize>| end.map_or(Piece::Unfinished, Piece::Same);
    match page {
        [b'<'] => Piece::Unfinished,
        [b'<', b'!', b'-', b'-', ..] => end_of(scan.find_end(page, 4, b"-->")),
        [b'<', b'!'] | [b'<', b'!', b'-'] => Piece::Unfinished,
        [b'<', b'!' | b'/' | b'?', ..] => end_of(scan.find_end(page, 0, b">")),
        [b'<', first, ..] if first.is_ascii_alphabetic() => scan
            .find_end_of_tag(page)
            .map_or(Piece::Unfinished, Piece::Tag),
        // In HTML, `<` before any other character is text.
        _ => Piece::Same(1),
    }
}

impl Scan {
    /// Returns the length of the markup that `end` closes; `end` is not before `from`.
    fn find_end(&mut self, page: &[u8], from: usize, end: &[u8]) -> Option<usize> {
        let from = self.at.max(from);
        let rest = page.get(from..).unwrap_or_default();
        let found = rest.windows(end.len()).position(|window| window == end);
        // The chunk may end inside the end.
        self.at = from.max((page.len() + 1).saturating_sub(end.len()));
        found.map(|at| from + at + end.len())
    }

    /// Returns the length of a start tag; `>` in a quoted value does not end it.
    fn find_end_of_tag(&mut self, page: &[u8]) -> Option<usize> {
        for byte in page.iter().skip(self.at) {
            self.at += 1;
            match (self.quote, byte) {
                (Some(open), byte) if open == *byte => self.quote = None,
                (Some(_), _) => {}
                (None, b'>') => return Some(self.at),
                // Elsewhere a quote is part of a name, and opens no value.
                (None, b'"' | b'\'') if self.after_equals => self.quote = Some(*byte),
                _ => {}
            }
            self.after_equals = *byte == b'=' || self.after_equals && byte.is_ascii_whitespace();
        }
        None
    }
}

/// Returns the name of a start tag, in lower case.
fn tag_name(tag: &[u8]) -> String {
    let name = tag
        .iter()
        .skip(1)
        .take_while(|b| !b.is_ascii_whitespace() && !matches!(b, b'/' | b'>'));
    name.map(|b| char::from(b.to_ascii_lowercase())).collect()
}

/// Returns the attributes of a start tag from `at` on: name, and byte range of the value.
fn tag_attributes(tag: &[u8], mut at: usize) -> Vec<(&[u8], std::ops::Range<usize>)> {
    let skip = |from: usize, while_true: &dyn Fn(u8) -> bool| {
        from + tag
            .iter()
            .skip(from)
            .take_while(|b| while_true(**b))
            .count()
    };
    let mut all = Vec::new();
    loop {
        let begin = skip(at, &|b| b.is_ascii_whitespace() || b == b'/');
        let end = skip(begin, &|b| {
            !b.is_ascii_whitespace() && !matches!(b, b'=' | b'>' | b'/')
        });
        let equals = skip(end, &|b| b.is_ascii_whitespace());
        match tag.get(equals) {
            Some(b'=') => {}
            None | Some(b'>') => return all,
            // An attribute without a value, or a stray byte.
            Some(_) => {
                // At least one byte further: a stray `=` would otherwise repeat the loop forever.
                at = end.max(begin + 1);
                continue;
            }
        }
        let start = skip(equals + 1, &|b| b.is_ascii_whitespace());
        let value = match tag.get(start) {
            Some(quote @ (b'"' | b'\'')) => start + 1..skip(start + 1, &|b| b != *quote),
            _ => start..skip(start, &|b| !b.is_ascii_whitespace() && b != b'>'),
        };
        at = value.end + usize::from(value.start > start);
        all.push((tag.get(begin..end).unwrap_or_default(), value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(page: &str, piece: usize) -> String {
        let mut rewriter =
            HtmlRewriter::new(|url| url.starts_with('/').then(|| format!("/p{url}")));
        let mut out = Vec::new();
        for bytes in page.as_bytes().chunks(piece) {
            out.extend(rewriter.push_chunk(bytes));
        }
        out.extend(rewriter.take_rest());
        String::from_utf8_lossy(&out).into_owned()
    }

    fn check(page: &str, expect: &str) {
        for piece in [1, 2, 3, 7, page.len().max(1)] {
            assert_eq!(rewritten(page, piece), expect, "in pieces of {piece}");
        }
    }

    #[test]
    fn links_are_rewritten() {
        check("<a href=\"/x\">test</a>", "<a href=\"/p/x\">test</a>");
        check(
            "<A class=b HREF='/x?a=<b>'>",
            "<A class=b HREF='/p/x?a=<b>'>",
        );
        check(
            "<a href = /x id=y><img/src=/i>",
            "<a href = /p/x id=y><img/src=/p/i>",
        );
        check(
            "<a href=\"y\"><a href=\"http://o/x\">",
            "<a href=\"y\"><a href=\"http://o/x\">",
        );
        check(
            "<form disabled action=\"/f\" title=\"/t\"/>",
            "<form disabled action=\"/p/f\" title=\"/t\"/>",
        );
    }

    #[test]
    fn what_is_no_tag_is_left_alone() {
        for page in [
            "",
            "a < b, <1 and <",
            "<!-- <a href=\"/x\"> --><!doctype html>",
            "<title><a href=\"/x\"></title>",
            "<span href=\"/x\">\u{e9}</span>",
            "<a href=\"/x",
            "<a = = '' \"\" href>",
            "<!-- -- -> --><a>",
            "<!--><a href='/x'>-->",
            "<a title='>' x>b</a ><br/>",
        ] {
            check(page, page);
        }
        check(
            "<script src=/a>'<a href=\"/x\">'</SCRIPT><a href=/b>",
            "<script src=/p/a>'<a href=\"/x\">'</SCRIPT><a href=/p/b>",
        );
    }

    #[test]
    fn waiting_bytes_are_searched_once() {
        for page in ["<a title=\">", "<!-- ", "</a ", "<script></script "] {
            let mut rewriter = HtmlRewriter::new(|_: &str| None);
            rewriter.push_chunk(page.as_bytes());
            for _ in 0..100 {
                let before = rewriter.scan.at;
                rewriter.push_chunk(b"x");
                let searched = rewriter.scan.at - before;
                assert!(searched <= 1, "{page}: {searched} bytes for one");
                assert!(rewriter.scan.at + 3 > rewriter.pending.len(), "{page}");
            }
        }
    }

    #[test]
    fn endless_tag_is_passed_on() {
        let page = format!("<a title=\"{}", "x".repeat(3 * LONGEST));
        assert_eq!(rewritten(&page, 1000), page);
        let script = format!("<script>{}", "y".repeat(3 * LONGEST));
        assert_eq!(rewritten(&script, 1000), script);
    }
}
