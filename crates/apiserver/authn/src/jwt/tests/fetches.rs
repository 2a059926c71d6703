//! Requests to an issuer.

use crate::jwt::config::IssuerConfig;
use crate::jwt::environment::{FetchError, IssuerEnvironment, KeyFetcher};
use crate::jwt::keys::KeyCache;
use crate::jwt::metrics::JwtMetrics;
use base_task::{CancellationToken, Tasks};
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// An issuer that answers after a second.
#[derive(Default)]
struct SlowIssuer {
    is_down: Mutex<bool>,
    fetched: Mutex<Vec<String>>,
}

#[async_trait::async_trait]
impl KeyFetcher for SlowIssuer {
    async fn fetch(&self, url: &str, _: &str) -> Result<Bytes, FetchError> {
        self.fetched.lock().push(url.to_owned());
        tokio::time::sleep(Duration::from_secs(1)).await;
        if *self.is_down.lock() {
            return Err(FetchError::Request("down".to_owned()));
        }
        let document = if url.ends_with("/keys") {
            json!({"keys": [{"kty": "RSA", "kid": "r", "n": "AQAB", "e": "AQAB"}]})
        } else {
            json!({"issuer": "https://i", "jwks_uri": "https://i/keys"})
        };
        Ok(document.to_string().into())
    }
}

fn create_cache(fetcher: Arc<dyn KeyFetcher>) -> Arc<KeyCache> {
    let config = IssuerConfig {
        url: "https://i".to_owned(),
        ..IssuerConfig::default()
    };
    let environment = IssuerEnvironment {
        fetcher,
        tasks: Tasks::new(CancellationToken::new()),
        metrics: Arc::new(JwtMetrics::new("server")),
    };
    KeyCache::new(config, Arc::new(environment))
}

#[tokio::test(start_paused = true)]
async fn concurrent_callers_share_a_fetch_that_outlives_them() {
    let issuer = Arc::new(SlowIssuer::default());
    let cache = create_cache(issuer.clone());
    // A client that disconnects.
    let aborted = tokio::time::timeout(Duration::from_millis(10), cache.refresh(0)).await;
    assert!(aborted.is_err());
    let (one, two) = tokio::join!(cache.refresh(0), cache.refresh(0));
    assert_eq!(one.map(|keys| keys.len()), Some(1));
    assert_eq!(two.map(|keys| keys.len()), Some(1));
    let expect = [
        "https://i/.well-known/openid-configuration",
        "https://i/keys",
    ];
    assert_eq!(*issuer.fetched.lock(), expect);
}

#[tokio::test(start_paused = true)]
async fn fetches_are_limited_in_rate() {
    let issuer = Arc::new(SlowIssuer::default());
    let cache = create_cache(issuer.clone());
    assert!(cache.refresh(0).await.is_some());
    for _ in 0..100 {
        let (seen, _) = cache.current();
        assert!(cache.refresh(seen).await.is_some());
    }
    assert_eq!(issuer.fetched.lock().len(), 2);
    tokio::time::advance(Duration::from_secs(5)).await;
    // A caller that has seen older keys gets the newer ones without a fetch.
    assert!(cache.refresh(0).await.is_some());
    assert_eq!(issuer.fetched.lock().len(), 2);
    let (seen, _) = cache.current();
    assert!(cache.refresh(seen).await.is_some());
    assert_eq!(issuer.fetched.lock().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn failed_fetch_keeps_the_keys_and_is_repeated_with_discovery() {
    let issuer = Arc::new(SlowIssuer::default());
    let cache = create_cache(issuer.clone());
    *issuer.is_down.lock() = true;
    assert!(cache.refresh(0).await.is_none());
    *issuer.is_down.lock() = false;
    let (seen, keys) = cache.current();
    assert!(keys.is_none());
    assert!(cache.refresh(seen).await.is_none(), "too early");
    tokio::time::advance(Duration::from_secs(5)).await;
    assert!(cache.refresh(seen).await.is_some());
    *issuer.is_down.lock() = true;
    tokio::time::advance(Duration::from_secs(5)).await;
    let (seen, _) = cache.current();
    assert!(cache.refresh(seen).await.is_some());
    *issuer.is_down.lock() = false;
    tokio::time::advance(Duration::from_secs(5)).await;
    let (seen, _) = cache.current();
    assert!(cache.refresh(seen).await.is_some());
    let discoveries = issuer
        .fetched
        .lock()
        .iter()
        .filter(|url| url.ends_with("ion"))
        .count();
    assert_eq!(discoveries, 3);
}

/// An issuer that accepts requests and never answers.
struct SilentIssuer;

#[async_trait::async_trait]
impl KeyFetcher for SilentIssuer {
    async fn fetch(&self, _: &str, _: &str) -> Result<Bytes, FetchError> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn silent_issuer_holds_up_few_requests_for_ten_seconds() {
    let cache = create_cache(Arc::new(SilentIssuer));
    let begun = Instant::now();
    let mut waiting = JoinSet::new();
    for _ in 0..300 {
        let cache = cache.clone();
        waiting.spawn(async move {
            assert!(cache.refresh(0).await.is_none());
            begun.elapsed()
        });
    }
    let durations = waiting.join_all().await;
    let is_refused = |duration: &&Duration| **duration < Duration::from_secs(1);
    assert_eq!(durations.iter().filter(is_refused).count(), 300 - 256);
    assert_eq!(durations.iter().max().map(Duration::as_secs), Some(10));
}
