//! The events of a watch.

use crate::DEADLINE;
use bytes::BytesMut;
use http::HeaderMap;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;

/// A running watch; dropping it cancels the request.
pub struct Watch {
    /// Headers of the response.
    pub headers: HeaderMap,
    body: Incoming,
    buffer: BytesMut,
}

impl Watch {
    pub(crate) fn new(headers: HeaderMap, body: Incoming) -> Self {
        Self {
            headers,
            body,
            buffer: BytesMut::new(),
        }
    }

    /// Returns the next JSON event; `None` after the end of the watch.
    ///
    /// # Panics
    /// If none arrives within [`DEADLINE`], or it is not JSON.
    pub async fn next(&mut self) -> Option<Value> {
        let end = loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                break end;
            }
            if !self.read().await {
                return None;
            }
        };
        let line = self.buffer.split_to(end + 1);
        match serde_json::from_slice(&line) {
            Ok(event) => Some(event),
            Err(error) => panic!("{error}: {}", String::from_utf8_lossy(&line)),
        }
    }

    /// Returns type and object of the next event.
    ///
    /// # Panics
    /// If the watch ends before.
    pub async fn event(&mut self) -> (String, Value) {
        match self.next().await {
            Some(mut event) => {
                let kind = event["type"].as_str().unwrap_or_default().to_owned();
                (kind, event["object"].take())
            }
            None => panic!("the watch ended"),
        }
    }

    /// Returns the type and the object's name of each of the next events.
    ///
    /// # Panics
    /// If the watch ends before.
    pub async fn take(&mut self, count: usize) -> Vec<(String, String)> {
        let mut events = Vec::new();
        for _ in 0..count {
            let (kind, object) = self.event().await;
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            events.push((kind, name.to_owned()));
        }
        events
    }

    /// Returns the next frame of a protobuf watch, without its length.
    ///
    /// # Panics
    /// If the watch ends before.
    pub async fn frame(&mut self) -> Vec<u8> {
        loop {
            if let Some(length) = self.buffer.first_chunk::<4>() {
                let end = 4 + u32::from_be_bytes(*length) as usize;
                if self.buffer.len() >= end {
                    return self.buffer.split_to(end)[4..].to_vec();
                }
            }
            assert!(self.read().await, "the watch ended");
        }
    }

    /// Returns the next item of a watch whose items have no separator: the shortest start of the
    /// stream that is one, as `is_item` decides.
    ///
    /// # Panics
    /// If the watch ends before.
    pub async fn item(&mut self, is_item: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        loop {
            let ends = 1..=self.buffer.len();
            if let Some(end) = ends.into_iter().find(|&end| is_item(&self.buffer[..end])) {
                return self.buffer.split_to(end).to_vec();
            }
            assert!(self.read().await, "the watch ended");
        }
    }

    /// Reads more bytes; `false` at the end.
    async fn read(&mut self) -> bool {
        match tokio::time::timeout(DEADLINE, self.body.frame()).await {
            Ok(None) => false,
            Ok(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    self.buffer.extend_from_slice(&data);
                }
                true
            }
            Ok(Some(Err(error))) => panic!("the watch broke: {error}"),
            Err(_) => panic!("no event within {DEADLINE:?}"),
        }
    }
}
