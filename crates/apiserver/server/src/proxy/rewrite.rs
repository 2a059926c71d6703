//! Rewrites links in a backend's responses, so that they lead through the proxy again.

use super::html::HtmlRewriter;
use crate::body::{Body, BodyError, stream_body};
use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, LOCATION};
use http::{HeaderMap, Response};
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming};
use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Base of a backend's paths on this server.
#[derive(Clone, Debug)]
pub struct Links {
    /// The path up to the subresource `proxy`, as sent.
    pub prefix: String,
    /// The backend's `host:port`.
    pub backend: String,
    /// The `Host` header of the client.
    pub client: String,
}

impl Links {
    /// Returns the URL through the proxy; None if the URL needs no change.
    ///
    /// Relative links work unchanged, and links to other hosts bypass the proxy.
    pub fn rewrite_url(&self, url: &str) -> Option<String> {
        let (host, path) = split_url(url);
        // Redirects name the backend by the Host that it received, or by the client's that was
        // forwarded.
        let here = host.is_none_or(|host| host == self.backend || host == self.client);
        if !here || !path.starts_with('/') {
            return None;
        }
        let kept = host
            .filter(|host| *host == self.client)
            .map_or("", |_| url.strip_suffix(path).unwrap_or_default());
        // The backend knows its prefix and has added it already.
        if path.starts_with(&self.prefix) {
            return (kept.is_empty() && host.is_some()).then(|| path.to_owned());
        }
        Some(format!("{kept}{}{path}", self.prefix))
    }

    /// Rewrites the response's `Location`, or the links of an HTML page.
    pub fn rewrite_response(self, response: Response<Incoming>) -> Response<Body> {
        let (mut parts, body) = response.into_parts();
        let location = parts
            .headers
            .get(LOCATION)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        if let Some(location) = location {
            if let Some(Ok(value)) = self
                .rewrite_url(&location)
                .map(|url| HeaderValue::from_str(&url))
            {
                parts.headers.insert(LOCATION, value);
            }
            return Response::from_parts(parts, plain_body(body));
        }
        let Some(decoder) = find_decoder(&parts.headers) else {
            // Not HTML, or in an encoding that is not supported here; then the links lead past the
            // proxy.
            return Response::from_parts(parts, plain_body(body));
        };
        // The rewritten page has another length, and is sent without compression.
        parts.headers.remove(CONTENT_LENGTH);
        parts.headers.remove(CONTENT_ENCODING);
        let rewriter =
            HtmlRewriter::new(Box::new(move |url: &str| self.rewrite_url(url)) as Rewrite);
        let page = Page {
            body,
            received: Bytes::new(),
            decoder,
            rewriter,
            finished: false,
        };
        Response::from_parts(parts, stream_body(page, 0))
    }
}

fn plain_body(body: Incoming) -> Body {
    stream_body(body.map_err(|e| Box::new(e) as BodyError), 0)
}

/// Splits a URL into host and path; the path has everything after the host.
fn split_url(url: &str) -> (Option<&str>, &str) {
    let scheme =
        |scheme: &str| !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric());
    let after = match url.split_once("//") {
        Some(("", rest)) => rest,
        Some((before, rest)) if before.strip_suffix(':').is_some_and(scheme) => rest,
        _ => return (None, url),
    };
    let end = after.find(['/', '?', '#']).unwrap_or(after.len());
    let (host, path) = after.split_at(end);
    (Some(host), path)
}

type Rewrite = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Bytes of a compressed page that are decoded at once. Deflate expands a byte to at most 1,032,
/// and each link grows by the length of the prefix.
const GZIP_PIECE: usize = 256;
/// Bytes of an uncompressed page that are rewritten at once.
const PLAIN_PIECE: usize = 16 * 1024;

/// The content encoding of a page.
enum Decoder {
    Plain,
    Gzip(MultiGzDecoder<Vec<u8>>),
}

/// Returns a decoder for pages whose links can be rewritten; None for other responses.
fn find_decoder(headers: &HeaderMap) -> Option<Decoder> {
    let text = |name| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let media_type = text(CONTENT_TYPE)
        .split(';')
        .next()
        .unwrap_or_default()
        .trim();
    match text(CONTENT_ENCODING) {
        _ if !media_type.eq_ignore_ascii_case("text/html") => None,
        "" | "identity" => Some(Decoder::Plain),
        "gzip" => Some(Decoder::Gzip(MultiGzDecoder::new(Vec::new()))),
        _ => None,
    }
}

impl Decoder {
    fn decode_chunk(&mut self, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        match self {
            Decoder::Plain => Ok(bytes.to_vec()),
            Decoder::Gzip(gzip) => {
                gzip.write_all(bytes)?;
                Ok(std::mem::take(gzip.get_mut()))
            }
        }
    }

    fn finish_decoding(&mut self) -> std::io::Result<Vec<u8>> {
        match self {
            Decoder::Plain => Ok(Vec::new()),
            Decoder::Gzip(gzip) => {
                gzip.try_finish()?;
                Ok(std::mem::take(gzip.get_mut()))
            }
        }
    }
}

/// A page whose links are rewritten while it streams. Invariant: it holds one piece in decoded
/// form, because a backend may send a page that is a thousand times as large as its compressed
/// form.
struct Page<B> {
    body: B,
    /// Received, and not decoded yet.
    received: Bytes,
    decoder: Decoder,
    rewriter: HtmlRewriter<Rewrite>,
    finished: bool,
}

impl<B> Page<B> {
    /// Decodes the next piece of what was received; returns the bytes that can be sent.
    fn decode_piece(&mut self) -> std::io::Result<Vec<u8>> {
        let length = match self.decoder {
            Decoder::Plain => PLAIN_PIECE,
            Decoder::Gzip(_) => GZIP_PIECE,
        };
        let piece = self.received.split_to(length.min(self.received.len()));
        let plain = self.decoder.decode_chunk(&piece)?;
        Ok(self.rewriter.push_chunk(&plain))
    }

    fn finish_page(&mut self) -> std::io::Result<Vec<u8>> {
        self.finished = true;
        let plain = self.decoder.finish_decoding()?;
        let mut last = self.rewriter.push_chunk(&plain);
        last.extend(self.rewriter.take_rest());
        Ok(last)
    }
}

impl<B> hyper::body::Body for Page<B>
where
    B: hyper::body::Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let page = self.get_mut();
        loop {
            if page.finished {
                return Poll::Ready(None);
            }
            let out = if page.received.is_empty() {
                match std::task::ready!(Pin::new(&mut page.body).poll_frame(cx)) {
                    Some(Err(error)) => return Poll::Ready(Some(Err(Box::new(error)))),
                    // Trailers may hold a checksum of the page before its change.
                    Some(Ok(frame)) => {
                        page.received = frame.into_data().unwrap_or_default();
                        continue;
                    }
                    None => page.finish_page(),
                }
            } else {
                page.decode_piece()
            };
            match out {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => return Poll::Ready(Some(Ok(Frame::data(bytes.into())))),
                Err(error) => {
                    page.finished = true;
                    return Poll::Ready(Some(Err(Box::new(error))));
                }
            }
        }
    }
}

/// Escapes a path for an attribute of a page.
pub fn quote_path(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for c in path.chars() {
        match c {
            '"' | '\'' | '<' | '>' | '`' | '&' => out.push_str(&format!("%{:02X}", c as u32)),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn links_to_the_backend_lead_through_the_proxy() {
        let links = Links {
            prefix: "/api/v1/namespaces/d/pods/p/proxy".into(),
            backend: "10.0.0.9:80".into(),
            client: "localhost:8001".into(),
        };
        for (url, expect) in [
            ("/x?y#z", Some("/api/v1/namespaces/d/pods/p/proxy/x?y#z")),
            ("/", Some("/api/v1/namespaces/d/pods/p/proxy/")),
            (
                "http://10.0.0.9:80/x",
                Some("/api/v1/namespaces/d/pods/p/proxy/x"),
            ),
            (
                "//10.0.0.9:80/x",
                Some("/api/v1/namespaces/d/pods/p/proxy/x"),
            ),
            (
                "http://localhost:8001/x",
                Some("http://localhost:8001/api/v1/namespaces/d/pods/p/proxy/x"),
            ),
            ("/api/v1/namespaces/d/pods/p/proxy/x", None),
            (
                "http://10.0.0.9:80/api/v1/namespaces/d/pods/p/proxy/x",
                Some("/api/v1/namespaces/d/pods/p/proxy/x"),
            ),
            ("http://example.com/x", None),
            ("//example.com/x", None),
            ("x", None),
            ("x//y", None),
            ("?a=http://10.0.0.9:80/x", None),
            ("http://10.0.0.9:80", None),
            ("", None),
        ] {
            assert_eq!(links.rewrite_url(url).as_deref(), expect, "{url}");
        }
    }

    #[test]
    fn only_html_is_looked_at() {
        let check = |content_type: &'static str, encoding: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
            find_decoder(&headers).is_some()
        };
        assert!(check("text/html; charset=utf-8", "") && check("Text/HTML", "gzip"));
        assert!(!check("text/plain", "") && !check("text/html", "br"));
    }

    /// A page of zeros is a thousandth of its size in compressed form: one received chunk of 400
    /// KiB would take 400 MiB.
    #[tokio::test]
    async fn compressed_page_is_decoded_in_small_pieces() {
        const LENGTH: usize = 16 * 1024 * 1024;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(&vec![b' '; LENGTH]).unwrap();
        let body = http_body_util::Full::new(Bytes::from(encoder.finish().unwrap()));
        let mut page = Page {
            body,
            received: Bytes::new(),
            decoder: Decoder::Gzip(MultiGzDecoder::new(Vec::new())),
            rewriter: HtmlRewriter::new(Box::new(|_: &str| None) as Rewrite),
            finished: false,
        };
        let mut seen = 0;
        while let Some(frame) = page.frame().await {
            let length = frame.unwrap().into_data().unwrap().len();
            assert!(length <= 512 * 1024, "a piece of {length} bytes");
            seen += length;
        }
        assert_eq!(seen, LENGTH);
    }

    #[test]
    fn prefix_ends_no_attribute() {
        assert_eq!(quote_path("/a\"b'<&"), "/a%22b%27%3C%26");
    }
}
