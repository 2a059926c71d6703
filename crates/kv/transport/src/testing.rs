//! Request bodies for tests.

use bytes::Bytes;
use http_body::Frame;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A body that arrives in these pieces, and then ends or stays open.
pub(crate) struct Pieces {
    pieces: VecDeque<Bytes>,
    open: bool,
}

impl Pieces {
    pub fn new(pieces: &[&[u8]]) -> Pieces {
        let pieces = pieces.iter().map(|piece| Bytes::copy_from_slice(piece));
        Pieces {
            pieces: pieces.collect(),
            open: false,
        }
    }

    /// Never ends.
    pub fn open(pieces: &[&[u8]]) -> Pieces {
        Pieces {
            open: true,
            ..Pieces::new(pieces)
        }
    }
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.pieces.pop_front() {
            Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            None if self.open => Poll::Pending,
            None => Poll::Ready(None),
        }
    }
}
