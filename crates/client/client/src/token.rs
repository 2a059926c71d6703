//! Bearer token of a client.

use std::time::Duration;

use http::HeaderValue;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::config::Source;
use crate::error::{Error, Result};

/// Time after which the file of a token is read again, as in client-go: kubelets renew projected
/// tokens in their file.
const TOKEN_AGE: Duration = Duration::from_secs(60);

/// A token, or none, with the header made of it.
pub(crate) struct BearerToken {
    source: Option<Source>,
    cached: Mutex<Option<(Instant, HeaderValue)>>,
}

impl BearerToken {
    pub(crate) fn new(source: Option<Source>) -> Self {
        Self {
            source,
            cached: Mutex::new(None),
        }
    }

    /// Returns the value of the header `Authorization`; `None` without a token. Reads a file at
    /// most once a minute.
    pub(crate) fn read_header(&self) -> Result<Option<HeaderValue>> {
        let Some(source) = &self.source else {
            return Ok(None);
        };
        let mut cached = self.cached.lock();
        if let Some((read, value)) = cached.as_ref()
            && (matches!(source, Source::Inline(_)) || read.elapsed() < TOKEN_AGE)
        {
            return Ok(Some(value.clone()));
        }
        let token = source.read_bytes()?;
        let token = token.trim_ascii();
        let mut value = HeaderValue::from_bytes(&[b"Bearer ", token].concat())
            .map_err(|_| Error::Config("the token holds characters that no token has".into()))?;
        // Keeps the token out of debug output and out of HTTP/2's compression table.
        value.set_sensitive(true);
        *cached = Some((Instant::now(), value.clone()));
        Ok(Some(value))
    }

    /// Makes the next request read the file.
    pub(crate) fn forget(&self) {
        *self.cached.lock() = None;
    }
}
