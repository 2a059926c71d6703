//! Wires the issuers of tokens: the file or the flags, and the requests to the issuers' servers.

use crate::bootstrap::identity::Identity;
use crate::options::ServerOptions;
use crate::webhooks::build_resolver;
use anyhow::bail;
use apiserver_authn::{
    FetchError, IssuerEnvironment, JwtMetrics, JwtTokens, KeyFetcher, LoadedConfiguration,
    MAX_DOCUMENT,
};
use apiserver_request::Objects;
use apiserver_webhook_client::{CallError, Credentials, Endpoint, Transport};
use base_task::Tasks;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Interval in which a changed file is noticed.
const RELOAD_INTERVAL: Duration = Duration::from_secs(10);

/// Builds the authenticator of other issuers' tokens; `None` if none is configured.
///
/// # Errors
/// A file or flag that can't be used.
pub fn build_tokens(
    options: &ServerOptions,
    loaded: Option<LoadedConfiguration>,
    objects: &Arc<dyn Objects>,
    tasks: &Tasks,
) -> anyhow::Result<Option<Arc<JwtTokens>>> {
    let environment = || IssuerEnvironment {
        fetcher: Arc::new(IssuerServers(Transport::new(
            tasks.clone(),
            build_resolver(options, objects),
            Credentials::default(),
        ))),
        tasks: tasks.clone(),
        metrics: Arc::new(JwtMetrics::new(Identity::of_host().name())),
    };
    let disallowed = &options.service_account_issuer;
    let file = options.authentication_config.as_ref().zip(loaded);
    let tokens = match (file, options.oidc.issuer()?) {
        (Some(_), Some(_)) => {
            bail!("--authentication-config and --oidc-* flags are mutually exclusive")
        }
        (Some((path, loaded)), None) => {
            let disallowed = disallowed.clone();
            JwtTokens::from_file(path, loaded, disallowed, environment(), RELOAD_INTERVAL)?
        }
        (None, Some(jwt)) => {
            JwtTokens::from_flags(jwt, &options.oidc.algorithms(), disallowed, environment())?
        }
        (None, None) => return Ok(None),
    };
    Ok(Some(Arc::new(tokens)))
}

/// The servers of issuers. Connections are those of webhooks to a URL, with the proxy of the
/// environment.
struct IssuerServers(Arc<Transport>);

#[async_trait::async_trait]
impl KeyFetcher for IssuerServers {
    async fn fetch(&self, url: &str, authority: &str) -> Result<Bytes, FetchError> {
        let server = json!({"url": url, "caBundle": STANDARD.encode(authority)});
        let endpoint = Endpoint::parse(&server).map_err(FetchError::Request)?;
        let fetched = self.0.get_json(&endpoint, url, MAX_DOCUMENT).await;
        fetched.map_err(|error| FetchError::Request(describe(error)))
    }
}

fn describe(error: CallError) -> String {
    match error {
        CallError::Failed { url, why } => format!("Get {url:?}: {why}"),
        CallError::Deadline { url } => format!("Get {url:?}: no response in time"),
        CallError::Config(why) | CallError::Status { message: why, .. } => why,
    }
}
