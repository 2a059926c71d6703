//! Posts JSON to webhooks: resolution, TLS, connection reuse, timeout, size limit.
//!
//! Knows nothing of admission. One client serves all webhooks with the same server and CA, and
//! keeps its idle connections.

mod call;
mod connector;
mod error;
mod http1;
mod http2;
mod pool;
mod proxy;
#[cfg(test)]
mod tests;
mod tls;

pub use error::CallError;
pub use tls::{client_config as verified_client, describe_tls};

use crate::credentials::{AuthInfo, Credentials, Identity};
use crate::endpoint::{ClientKey, Endpoint};
use crate::resolver::ServiceResolver;
use base_task::Tasks;
use bytes::Bytes;
use call::{Call, MAX_RESPONSE, Reply};
use connector::Route;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use http::{Method, Uri};
use parking_lot::Mutex;
use pool::Pool;
use proxy::ProxyRules;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Clients kept at most, as upstream.
const MAX_CLIENTS: usize = 200;
/// Idle connections to a server, as client-go.
const MAX_IDLE: usize = 25;
/// Time between two reads of the files of a client certificate.
const IDENTITY_INTERVAL: Duration = Duration::from_secs(1);
/// Headers of a request, with those of the protocol.
const HEADERS: usize = 8;
/// Characters of an error body that reach the client.
const MAX_ERROR_TEXT: usize = 2048;

/// A body for a webhook.
pub struct Post<'a> {
    /// The destination.
    pub endpoint: &'a Endpoint,
    /// The body, in JSON.
    pub body: Bytes,
    /// Time for connection, request and response.
    pub timeout: Duration,
    /// `User-Agent`.
    pub user_agent: &'static str,
    /// Maximum size of the response in bytes.
    pub max_response: usize,
}

/// Posts JSON to webhooks.
pub struct Transport {
    tasks: Tasks,
    resolver: Arc<dyn ServiceResolver>,
    credentials: Credentials,
    proxies: ProxyRules,
    max_idle: usize,
    clients: Mutex<Clients>,
}

#[derive(Default)]
struct Clients {
    by_key: HashMap<ClientKey, (u64, Arc<Client>)>,
    uses: u64,
}

impl Clients {
    fn find(&mut self, key: &ClientKey) -> Option<Arc<Client>> {
        self.uses += 1;
        let (used, client) = self.by_key.get_mut(key)?;
        *used = self.uses;
        Some(client.clone())
    }

    /// Adds a client, in the place of the least recently used one if there are too many.
    fn insert(&mut self, key: ClientKey, client: Arc<Client>) {
        if self.by_key.len() >= MAX_CLIENTS {
            let oldest = self.by_key.iter().min_by_key(|(_, (used, _))| *used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.by_key.remove(&oldest);
            }
        }
        self.by_key.insert(key, (self.uses, client));
    }
}

struct Client {
    pool: Pool,
    auth: Option<AuthInfo>,
    /// The certificate of the connections.
    identity: Option<Identity>,
    /// Time at which its files were read.
    checked: Mutex<Instant>,
    has_warned: AtomicBool,
}

impl Transport {
    /// Creates a transport whose connections are tasks of `tasks`.
    pub fn new(
        tasks: Tasks,
        resolver: Arc<dyn ServiceResolver>,
        credentials: Credentials,
    ) -> Arc<Self> {
        Self::with_max_idle(tasks, resolver, credentials, MAX_IDLE)
    }

    /// Creates a transport that keeps more or fewer than 25 idle connections to a server.
    pub fn with_max_idle(
        tasks: Tasks,
        resolver: Arc<dyn ServiceResolver>,
        credentials: Credentials,
        max_idle: usize,
    ) -> Arc<Self> {
        Arc::new(Transport {
            tasks,
            resolver,
            credentials,
            proxies: ProxyRules::from_environment(),
            max_idle,
            clients: Mutex::default(),
        })
    }

    /// Posts a body with the limits and the name of admission; otherwise as [`Transport::post`].
    ///
    /// # Errors
    /// As [`Transport::post`].
    pub async fn post_json(
        &self,
        endpoint: &Endpoint,
        body: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, CallError> {
        let post = Post {
            endpoint,
            body,
            timeout,
            user_agent: "kube-apiserver-admission",
            max_response: MAX_RESPONSE,
        };
        self.post(post).await
    }

    /// Posts a body of JSON and returns that of a successful response.
    ///
    /// # Errors
    /// No connection, an unverified server, another status than 200 to 206, a response that is too
    /// large, or the end of the timeout.
    pub async fn post(&self, post: Post<'_>) -> Result<Bytes, CallError> {
        let nanos = i64::try_from(post.timeout.as_nanos()).unwrap_or(i64::MAX);
        // The webhook can give up in time itself.
        let limit = base_duration::format_duration(nanos);
        let url = format!("{}?timeout={limit}", post.endpoint.url());
        let timeout = post.timeout;
        let exchange = self.exchange(post, &url);
        // One limit for connection, request and response, as the deadline of upstream's context.
        match tokio::time::timeout(timeout, exchange).await {
            Ok(done) => done,
            Err(_) => Err(CallError::Deadline { url: url.clone() }),
        }
    }

    async fn exchange(&self, post: Post<'_>, url: &str) -> Result<Bytes, CallError> {
        let failed = |why: String| CallError::Failed {
            url: url.to_owned(),
            why,
        };
        let client = self.find_client(post.endpoint)?;
        let uri: Uri = url
            .parse()
            .map_err(|e: http::uri::InvalidUri| failed(e.to_string()))?;
        let mut headers = HeaderMap::with_capacity(HEADERS);
        for (name, value) in [
            (CONTENT_TYPE, "application/json"),
            (ACCEPT, "application/json, */*"),
            (USER_AGENT, post.user_agent),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        if let Some(auth) = &client.auth
            && let Some(value) = auth.authorization().await.map_err(CallError::Config)?
        {
            let mut value =
                HeaderValue::from_str(&value).map_err(|_| failed("invalid token".into()))?;
            // Keeps the token out of HPACK's table (RFC 7541, section 7.1) and out of debug output.
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let call = Call {
            method: Method::POST,
            uri: &uri,
            headers,
            body: post.body,
            max_response: post.max_response,
        };
        let reply = client.pool.send(&call).await;
        check_status(reply.map_err(|error| failed(error.describe()))?)
    }

    /// Gets the body at a URL of the endpoint's server, for keys of token issuers. Redirects are
    /// not followed. The caller limits the time.
    ///
    /// # Errors
    /// As [`Transport::post_json`], with `max_response` as the limit of size.
    pub async fn get_json(
        &self,
        endpoint: &Endpoint,
        url: &str,
        max_response: usize,
    ) -> Result<Bytes, CallError> {
        let failed = |why: String| CallError::Failed {
            url: url.to_owned(),
            why,
        };
        let client = self.find_client(endpoint)?;
        let uri: Uri = url
            .parse()
            .map_err(|e: http::uri::InvalidUri| failed(e.to_string()))?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static("kube-apiserver"));
        let call = Call {
            method: Method::GET,
            uri: &uri,
            headers,
            body: Bytes::new(),
            max_response,
        };
        let reply = client.pool.send(&call).await;
        check_status(reply.map_err(|error| failed(error.describe()))?)
    }

    /// Returns the client of a server, which has its open connections. A rotated certificate makes
    /// a new client, because connections stay authenticated with the certificate of their start.
    fn find_client(&self, endpoint: &Endpoint) -> Result<Arc<Client>, CallError> {
        let key = endpoint.client_key();
        let known = self.clients.lock().find(&key);
        let auth = self.credentials.find_auth(&endpoint.host_port());
        let is_rotated = auth.is_some_and(AuthInfo::is_rotated);
        if let Some(client) = &known
            && !(is_rotated && client.begin_check())
        {
            return Ok(client.clone());
        }
        let identity = base_task::blocking(|| auth.map(AuthInfo::identity).transpose());
        let identity = identity.map(Option::flatten).map_err(CallError::Config);
        if let (Some(client), Ok(identity)) = (&known, &identity)
            && client.identity == *identity
        {
            return Ok(client.clone());
        }
        let built = identity.and_then(|identity| self.build_client(endpoint, auth, identity));
        match (built, known) {
            (Ok(client), _) => {
                let client = Arc::new(client);
                // Of two at once, the later one stays.
                self.clients.lock().insert(key, client.clone());
                Ok(client)
            }
            // A rotation may have written one of the two files only.
            (Err(error), Some(client)) => {
                client.warn_once(endpoint, &error);
                Ok(client)
            }
            (Err(error), None) => Err(error),
        }
    }

    fn build_client(
        &self,
        endpoint: &Endpoint,
        auth: Option<&AuthInfo>,
        identity: Option<Identity>,
    ) -> Result<Client, CallError> {
        let config = tls::client_config(endpoint, identity.clone()).map_err(CallError::Config)?;
        let proxy = match endpoint.service() {
            Some(_) => None,
            None => self
                .proxies
                .find_proxy(endpoint.host(), endpoint.port())
                .map_err(CallError::Config)?,
        };
        let route = Route::new(endpoint, config, self.resolver.clone(), proxy)?;
        Ok(Client {
            pool: Pool::new(route, self.tasks.clone(), self.max_idle),
            auth: auth.cloned(),
            identity,
            checked: Mutex::new(Instant::now()),
            has_warned: AtomicBool::new(false),
        })
    }
}

impl Client {
    /// Returns whether it is time to read the files of the certificate. Only one caller does so.
    fn begin_check(&self) -> bool {
        let mut checked = self.checked.lock();
        let is_due = checked.elapsed() >= IDENTITY_INTERVAL;
        if is_due {
            *checked = Instant::now();
        }
        is_due
    }

    /// Logs the first time that the rotated certificate can't be used.
    fn warn_once(&self, endpoint: &Endpoint, error: &CallError) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            let server = endpoint.host_port();
            tracing::warn!(server, %error, "using the earlier client certificate for a webhook, trying again");
        }
    }
}

/// Returns the body of a successful response.
fn check_status(Reply { status, body }: Reply) -> Result<Bytes, CallError> {
    // The range that client-go takes for success.
    if (200..=206).contains(&status.as_u16()) {
        return Ok(body);
    }
    let text: String = String::from_utf8_lossy(&body)
        .trim()
        .chars()
        .take(MAX_ERROR_TEXT)
        .collect();
    Err(CallError::of_status(status.as_u16(), &text))
}
