//! The body of a list of cached objects, in parts.
//!
//! A list is several times as large as all buffers of a connection. It is encoded as fast as the
//! client reads it, so that its memory is one part, whatever its length.

use crate::body::BodyError;
use crate::negotiate::{Format, MediaType, Transform};
use api_codec::list::{self, ListMeta};
use api_kinds::Resource;
use api_meta::ApiError;
use apiserver_cache::Entry;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body::{Body, Frame};
use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Bytes after which a part is sent: larger parts save nothing, since HTTP/2 frames are smaller.
const PART: usize = 64 * 1024;
/// Bytes of a gzip encoder.
const GZIP_STATE: usize = 320 * 1024;

/// Lifetime of the encodings that a list needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encodings {
    /// Kept with the object for later readers.
    Kept,
    /// Dropped: the objects are deleted.
    Dropped,
}

/// A list that is encoded in parts.
pub struct ListBody {
    resource: Arc<Resource>,
    format: ListFormat,
    encodings: Encodings,
    entries: std::vec::IntoIter<Arc<Entry>>,
    /// Encoded bytes that are not sent yet.
    part: Vec<u8>,
    is_first: bool,
    is_complete: bool,
    /// Expected bytes of all items: those of the stored objects.
    expected: usize,
    /// Bytes of memory that the list occupies while it is sent.
    size: usize,
    gzip: Option<GzEncoder<Vec<u8>>>,
}

/// A representation whose items are encoded one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListFormat {
    /// Compact JSON.
    Json,
    /// Protobuf.
    Proto,
}

impl ListFormat {
    /// Returns the format of a media type, if it can be encoded in parts.
    pub fn from_media_type(media_type: MediaType) -> Option<Self> {
        match (media_type.transform, media_type.format) {
            (Transform::None, Format::Protobuf) => Some(ListFormat::Proto),
            (Transform::None, Format::Json) if !media_type.pretty => Some(ListFormat::Json),
            _ => None,
        }
    }
}

impl ListBody {
    /// Creates the body of a list.
    ///
    /// # Errors
    /// An object can't be encoded. Later, that would break the stream.
    pub fn new(
        resource: &Arc<Resource>,
        format: ListFormat,
        entries: Vec<Arc<Entry>>,
        meta: &ListMeta,
        encodings: Encodings,
    ) -> Result<Self, ApiError> {
        let (mut size, mut largest) = (entries.len() * size_of::<Arc<Entry>>(), 0);
        let mut expected = 0;
        for entry in &entries {
            entry.check_readable(resource)?;
            largest = largest.max(entry.stored_size());
            expected += entry.stored_size();
            // Only this list has the object: it is converted, or of an old revision.
            if Arc::strong_count(entry) == 1 {
                size += entry.stored_size();
            }
        }
        let (api_version, kind) = (resource.api_version(), &resource.list_kind);
        let part = match format {
            ListFormat::Json => list::json_head(&api_version, kind, meta),
            ListFormat::Proto => {
                // The length of all items precedes them.
                let mut length = 0;
                for entry in &entries {
                    length += list::proto_item_length(entry.encode_proto(resource)?.len());
                }
                list::proto_head(&api_version, kind, meta, length)
            }
        };
        Ok(ListBody {
            resource: resource.clone(),
            format,
            encodings,
            entries: entries.into_iter(),
            part,
            is_first: true,
            is_complete: false,
            expected,
            // The next part, and the one that the connection has.
            size: size + 2 * (PART + largest),
            gzip: None,
        })
    }

    /// Encodes items until the part has `length` bytes or the list is complete; returns whether it
    /// is.
    ///
    /// # Errors
    /// An object can't be encoded.
    pub fn fill_part(&mut self, length: usize) -> Result<bool, ApiError> {
        if !self.is_complete {
            // At once: a buffer that grows becomes up to twice as large as its content.
            let expected = self.expected.min(length);
            let room = expected.saturating_add(expected / 4);
            self.part.reserve(room.saturating_sub(self.part.len()));
        }
        while self.part.len() < length && !self.is_complete {
            match self.entries.next() {
                Some(entry) => self.write_entry(&entry)?,
                None => self.write_tail(),
            }
        }
        Ok(self.is_complete)
    }

    /// Returns the rest of the body as one part.
    ///
    /// # Errors
    /// An object can't be encoded.
    pub fn into_bytes(mut self) -> Result<Vec<u8>, ApiError> {
        self.fill_part(usize::MAX)?;
        Ok(self.part)
    }

    /// Returns the bytes of memory that the list occupies while it is sent. The objects belong to
    /// the cache.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Compresses all parts.
    pub fn compress(&mut self) {
        // Level 1, as upstream: higher levels need much more processor time for little.
        self.size += GZIP_STATE;
        self.gzip = Some(GzEncoder::new(Vec::new(), Compression::fast()));
    }

    fn write_entry(&mut self, entry: &Entry) -> Result<(), ApiError> {
        match self.format {
            ListFormat::Json => {
                let item = match self.encodings {
                    Encodings::Kept => entry.encode_json(&self.resource)?,
                    Encodings::Dropped => entry.encode_json_once(&self.resource)?,
                };
                if !std::mem::take(&mut self.is_first) {
                    self.part.push(b',');
                }
                list::write_json_item(&item, strips_type_meta(&self.resource), &mut self.part);
            }
            ListFormat::Proto => {
                let item = entry.encode_proto(&self.resource)?;
                list::write_proto_item(&item, &mut self.part);
            }
        }
        Ok(())
    }

    fn write_tail(&mut self) {
        self.is_complete = true;
        match self.format {
            ListFormat::Json => {
                self.part.extend_from_slice(list::JSON_TAIL);
                self.part.push(b'\n');
            }
            ListFormat::Proto => self.part.extend_from_slice(list::PROTO_TAIL),
        }
    }

    fn next_part(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            self.fill_part(PART)?;
            let mut part = std::mem::take(&mut self.part);
            let Some(gzip) = &mut self.gzip else {
                return Ok((!part.is_empty()).then(|| part.into()));
            };
            gzip.write_all(&part)?;
            let packed = if self.is_complete {
                self.gzip.take().map(GzEncoder::finish).transpose()?
            } else {
                Some(std::mem::take(gzip.get_mut()))
            };
            // Compressed already, so that its memory serves the next part.
            part.clear();
            self.part = part;
            match packed {
                // The encoder buffers several parts before it writes.
                Some(packed) if packed.is_empty() => {}
                packed => return Ok(packed.map(Bytes::from)),
            }
        }
    }
}

impl Body for ListBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let part = self.next_part().transpose();
        Poll::Ready(part.map(|part| part.map(Frame::data)))
    }
}

/// Returns whether items of a list have no `kind` and `apiVersion`. Custom resources keep them, as
/// upstream, where their items are maps.
pub fn strips_type_meta(resource: &Resource) -> bool {
    resource.schema.has_protobuf()
}
