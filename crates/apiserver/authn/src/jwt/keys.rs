//! Keys of an issuer: the discovery document (OpenID Connect Discovery 1.0, section 4) and the key
//! set that it names.

use super::config::IssuerConfig;
use super::environment::{FetchError, IssuerEnvironment};
use base_jwt::{PublicKey, parse_key_set};
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Time between two fetches of an issuer. Clients without credentials can cause fetches with
/// tokens of unknown keys.
const FETCH_INTERVAL: Duration = Duration::from_secs(5);
/// Time of a fetch: the discovery document and the keys.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Requests that wait for a fetch of an issuer. A request waits before it counts as one in flight.
const MAX_WAITING: usize = 256;
const WELL_KNOWN: &str = "/.well-known/openid-configuration";

/// Keys at a time; `None` until the first fetch has succeeded.
pub type KnownKeys = Option<Arc<Vec<PublicKey>>>;

#[derive(Default)]
struct State {
    keys: KnownKeys,
    key_set_url: Option<String>,
    /// Number of finished fetches.
    fetches: u64,
    is_fetching: bool,
    last: Option<Instant>,
}

/// The keys of an issuer, fetched when a token needs them.
pub struct KeyCache {
    issuer: IssuerConfig,
    environment: Arc<IssuerEnvironment>,
    state: Mutex<State>,
    /// The number of finished fetches, for those who wait.
    finished: watch::Sender<u64>,
}

impl KeyCache {
    /// Creates a cache without keys; fetches nothing.
    pub fn new(issuer: IssuerConfig, environment: Arc<IssuerEnvironment>) -> Arc<Self> {
        Arc::new(KeyCache {
            issuer,
            environment,
            state: Mutex::default(),
            finished: watch::Sender::new(0),
        })
    }

    /// Returns the issuer whose keys these are.
    pub fn issuer(&self) -> &IssuerConfig {
        &self.issuer
    }

    /// Returns the number of finished fetches and the keys.
    pub fn current(&self) -> (u64, KnownKeys) {
        let state = self.state.lock();
        (state.fetches, state.keys.clone())
    }

    /// Returns the keys after a fetch that ended after `seen` fetches. Callers share one fetch. A
    /// fetch is not repeated within its interval; then the known keys are returned, and also if too
    /// many callers wait.
    pub async fn refresh(self: &Arc<Self>, seen: u64) -> KnownKeys {
        let mut finished = self.finished.subscribe();
        {
            let mut state = self.state.lock();
            // Each subscriber but this one waits.
            if self.finished.receiver_count() > MAX_WAITING {
                return state.keys.clone();
            }
            let is_recent = state.last.is_some_and(|at| at.elapsed() < FETCH_INTERVAL);
            if state.fetches != seen || (is_recent && !state.is_fetching) {
                return state.keys.clone();
            }
            if !state.is_fetching {
                state.is_fetching = true;
                let fetch = Fetch(self.clone());
                // A task of its own: a client that disconnects must not abort the fetch that others
                // wait for.
                self.environment
                    .tasks
                    .spawn_isolated("keys of a token issuer", fetch.run());
            }
        }
        // The sender is in `self`, so that an error can't occur.
        let _ = finished.wait_for(|fetches| *fetches != seen).await;
        self.state.lock().keys.clone()
    }

    async fn fetch_keys(&self) -> Result<Vec<PublicKey>, FetchError> {
        let known = self.state.lock().key_set_url.clone();
        let url = match known {
            Some(url) => url,
            None => self.discover().await?,
        };
        let fetched = self.get(&url).await.and_then(|body| {
            let keys = parse_key_set(&body).map_err(Arc::new)?;
            Ok((body, keys))
        });
        let metrics = &self.environment.metrics;
        match fetched {
            Ok((body, keys)) => {
                metrics.record_key_set(&self.issuer.url, Some(&body));
                self.state.lock().key_set_url = Some(url);
                Ok(keys)
            }
            Err(error) => {
                metrics.record_key_set(&self.issuer.url, None);
                // The issuer may have moved its keys.
                self.state.lock().key_set_url = None;
                Err(error)
            }
        }
    }

    async fn get(&self, url: &str) -> Result<Bytes, FetchError> {
        let authority = &self.issuer.certificate_authority;
        self.environment.fetcher.fetch(url, authority).await
    }

    /// Returns the URL of the key set.
    async fn discover(&self) -> Result<String, FetchError> {
        let issuer = self.issuer.url.as_str();
        let url = if self.issuer.discovery_url.is_empty() {
            let base = issuer.strip_suffix('/').unwrap_or(issuer);
            format!("{base}{WELL_KNOWN}")
        } else {
            self.issuer.discovery_url.clone()
        };
        read_discovery(&self.get(&url).await?, issuer)
    }
}

fn read_discovery(body: &[u8], issuer: &str) -> Result<String, FetchError> {
    let document: Value =
        serde_json::from_slice(body).map_err(|_| FetchError::Discovery("is not JSON"))?;
    let text = |field: &str| {
        document
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    // Otherwise an issuer could publish the keys of another one as its own.
    if text("issuer") != issuer {
        return Err(FetchError::Discovery("is of another issuer"));
    }
    let url = text("jwks_uri");
    if !url.starts_with("https://") {
        return Err(FetchError::Discovery("has no https URL as jwks_uri"));
    }
    Ok(url.to_owned())
}

/// A fetch, which ends for all that wait even if it is dropped.
struct Fetch(Arc<KeyCache>);

impl Fetch {
    async fn run(self) {
        let fetched = tokio::time::timeout(FETCH_TIMEOUT, self.0.fetch_keys()).await;
        let fetched = fetched.unwrap_or(Err(FetchError::Timeout(FETCH_TIMEOUT)));
        let issuer = self.0.issuer.url.as_str();
        match fetched {
            Ok(keys) => {
                tracing::info!(
                    issuer,
                    keys = keys.len(),
                    "fetched the keys of a token issuer"
                );
                self.0.state.lock().keys = Some(Arc::new(keys));
            }
            Err(error) => {
                tracing::warn!(issuer, %error, "can't fetch the keys of a token issuer, trying again with a later token");
            }
        }
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_fetching = false;
        state.last = Some(Instant::now());
        state.fetches += 1;
        self.0.finished.send_replace(state.fetches);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn discovery_document_must_be_of_the_issuer() {
        for (body, expect) in [
            (
                r#"{"issuer": "https://i", "jwks_uri": "https://i/keys"}"#,
                Some("https://i/keys"),
            ),
            (
                r#"{"issuer": "https://i/", "jwks_uri": "https://i/keys"}"#,
                None,
            ),
            (
                r#"{"issuer": "https://i", "jwks_uri": "http://i/keys"}"#,
                None,
            ),
            (r#"{"issuer": "https://i"}"#, None),
            (r#"{"jwks_uri": "https://i/keys"}"#, None),
            ("", None),
        ] {
            let read = read_discovery(body.as_bytes(), "https://i").ok();
            assert_eq!(read.as_deref(), expect, "{body}");
        }
    }
}
