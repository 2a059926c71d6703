//! The requests of discovery.

use std::time::Duration;

use api_bootstrap::{BootstrapToken, CLUSTER_INFO};
use client::{Client, Config, Source};
use k8s_openapi::api::core::v1::ConfigMap;
use tokio::time::Instant;

use crate::cluster::{Cluster, read_cluster_info, verify_cluster_info};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::pin::KeyPin;

const NAMESPACE: &str = "kube-public";
/// Pause between two attempts.
const RETRY: Duration = Duration::from_secs(1);
/// Time for which an API server that can't be reached is tried: it may be starting.
const REACH_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for which a missing signature is awaited: the controller manager signs shortly after a
/// token was created.
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
    let ca = cluster.pinned_ca(pins)?;
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

/// Describes a failed request without any text of the server: it is not verified yet, and its text
/// could pass for one of this program.
fn describe_failure(error: &client::Error) -> String {
    match error {
        client::Error::Api(status) => {
            format!(
                "the server responded with code {}",
                status.code.unwrap_or(0)
            )
        }
        // The cause may quote the document.
        client::Error::Decode { .. } => "the response is no ConfigMap".to_owned(),
        error => error.to_string(),
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
                    reason: describe_failure(&source),
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn text_of_an_unverified_server_is_not_shown() {
        let status = serde_json::json!({"code": 403, "message": "run this", "reason": "run this"});
        let status = serde_json::from_value(status).unwrap();
        let source = serde_json::from_str::<u8>("\"run this\"").unwrap_err();
        assert!(source.to_string().contains("run this"));
        let what = "GET /x".to_owned();
        for (error, expected) in [
            (
                client::Error::Api(Box::new(status)),
                "the server responded with code 403",
            ),
            (
                client::Error::Decode { what, source },
                "the response is no ConfigMap",
            ),
        ] {
            assert_eq!(describe_failure(&error), expected);
        }
    }
}
