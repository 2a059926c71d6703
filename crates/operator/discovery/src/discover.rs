//! The requests of discovery.

use std::time::Duration;

use api_bootstrap::{BootstrapToken, CLUSTER_INFO};
use client::{Client, Config, Source};
use k8s_openapi::api::core::v1::ConfigMap;
use tokio::time::Instant;

use crate::cluster::{Cluster, read_cluster_info, verify_cluster_info};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::pin::{KeyPin, pin_certificates, retain_pinned};

const NAMESPACE: &str = "kube-public";
/// Pause between two attempts.
const RETRY: Duration = Duration::from_secs(1);
/// Time for which an API server that can't be reached is tried: it may be starting.
const REACH_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for which a missing signature is awaited: the controller manager signs shortly after a token
/// was created.
const SIGN_TIMEOUT: Duration = Duration::from_secs(10);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The means by which the CA in cluster-info is verified, in addition to the token's signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// One of its certificates has one of these keys.
    Pins(Vec<KeyPin>),
    /// Not at all: every holder of the token can pose as the cluster.
    TokenOnly,
}

/// Returns the cluster whose API server is at `endpoint`.
///
/// # Errors
/// The server can't be reached within 30 s, has no signature of the token within 10 s, or can't be
/// verified.
pub async fn discover_cluster(
    endpoint: &Endpoint,
    token: &BootstrapToken,
    trust: &Trust,
    user_agent: &str,
) -> Result<Cluster, Error> {
    let config = Config::builder(endpoint.url())
        .user_agent(user_agent)
        .with_timeout(REQUEST_TIMEOUT);
    let mut unverified = config.clone();
    unverified.insecure = true;
    let text = read_signed(&Client::new(unverified), endpoint, token).await?;
    let cluster = read_cluster_info(&text)?;
    let Trust::Pins(pins) = trust else {
        return Ok(cluster);
    };
    let ca = retain_pinned(cluster.ca.as_bytes(), pins);
    if ca.is_empty() {
        let found = pin_certificates(cluster.ca.as_bytes());
        let found: Vec<_> = found.iter().map(KeyPin::to_string).collect();
        return Err(Error::NotPinned {
            found: found.join(", "),
        });
    }
    // A holder of the token can sign a cluster-info of its own, with the CA that is pinned and
    // another server. Only the owner of the CA's key passes this connection.
    let verified = Client::new(config.with_ca(Source::Inline(ca.into_bytes())));
    let map = fetch_cluster_info(&verified)
        .await
        .map_err(|source| Error::Untrusted {
            endpoint: endpoint.to_string(),
            source,
        })?;
    match verify_cluster_info(&map, token)? == text {
        true => Ok(cluster),
        false => Err(Error::Changed),
    }
}

async fn fetch_cluster_info(client: &Client) -> client::Result<ConfigMap> {
    client
        .namespaced::<ConfigMap>(NAMESPACE)
        .get(CLUSTER_INFO)
        .await
}

/// Reads cluster-info until it has a signature of the token.
async fn read_signed(
    client: &Client,
    endpoint: &Endpoint,
    token: &BootstrapToken,
) -> Result<String, Error> {
    let began = Instant::now();
    let mut answered = None;
    let mut is_first = true;
    loop {
        let (failure, is_late) = match fetch_cluster_info(client).await {
            Ok(map) => match verify_cluster_info(&map, token) {
                Ok(text) => return Ok(text.to_owned()),
                Err(unsigned @ Error::Unsigned { .. }) => {
                    let since = *answered.get_or_insert_with(Instant::now);
                    (unsigned, since.elapsed() >= SIGN_TIMEOUT)
                }
                Err(error) => return Err(error),
            },
            Err(source) => {
                let retry = source.is_unavailable();
                let failure = Error::Request {
                    endpoint: endpoint.to_string(),
                    source,
                };
                (failure, !retry || began.elapsed() >= REACH_TIMEOUT)
            }
        };
        if is_late {
            return Err(failure);
        }
        if std::mem::take(&mut is_first) {
            tracing::info!(%failure, "trying again for some seconds");
        }
        tokio::time::sleep(RETRY).await;
    }
}
