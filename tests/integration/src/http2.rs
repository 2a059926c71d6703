//! An HTTP/2 client. Paths, headers and bodies are sent exactly as given.

use crate::{DEADLINE, Watch};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use std::sync::Arc;
use testkit_control_plane::{Caller, Reply};
use tokio::task::JoinSet;

/// The media type of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// `application/json-patch+json` (RFC 6902).
    Json,
    /// `application/merge-patch+json` (RFC 7386).
    Merge,
    /// `application/strategic-merge-patch+json`.
    Strategic,
    /// `application/apply-patch+yaml`: server-side apply.
    Apply,
}

impl PatchType {
    fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Apply => "application/apply-patch+yaml",
        }
    }
}

/// One HTTP/2 connection over TLS with one identity. Clones share the connection.
#[derive(Clone)]
pub struct Http2Client {
    sender: SendRequest<Full<Bytes>>,
    authority: String,
    headers: Vec<(String, String)>,
    // Aborts the connection's task with the last clone.
    _driver: Arc<JoinSet<()>>,
}

impl Http2Client {
    /// Connects with the identity of `caller`.
    ///
    /// # Panics
    /// If the connection fails or the server does not select HTTP/2.
    pub async fn connect(caller: &Caller) -> Self {
        let caller = caller.clone().with_protocols(&["h2"]);
        let stream = match caller.connect().await {
            Ok(stream) => stream,
            Err(error) => panic!("the connection: {error}"),
        };
        assert_eq!(
            stream.get_ref().1.alpn_protocol(),
            Some(b"h2".as_slice()),
            "the selected protocol"
        );
        let shaken = handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (sender, connection) = match shaken {
            Ok(pair) => pair,
            Err(error) => panic!("the HTTP/2 handshake: {error}"),
        };
        let mut driver = JoinSet::new();
        driver.spawn(async move { drop(connection.await) });
        Self {
            sender,
            authority: caller.address().to_string(),
            headers: caller.headers().to_vec(),
            _driver: Arc::new(driver),
        }
    }

    /// Returns a client on the same connection that sends this header with every request.
    #[must_use]
    pub fn with_header(&self, name: &str, value: &str) -> Self {
        let mut client = self.clone();
        client.headers.push((name.to_owned(), value.to_owned()));
        client
    }

    /// Returns a client on the same connection that impersonates this user. The client itself has to
    /// be allowed to do so.
    #[must_use]
    pub fn impersonate(&self, user: &str, groups: &[&str]) -> Self {
        let client = self.with_header("impersonate-user", user);
        groups.iter().fold(client, |client, group| {
            client.with_header("impersonate-group", group)
        })
    }

    /// Sends a request and returns the head of the response.
    ///
    /// # Panics
    /// If there is no response, like the following methods.
    pub async fn open(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Response<Incoming> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("https://{}{path}", self.authority));
        let own = self.headers.iter().map(|(n, v)| (n.as_str(), v.as_str()));
        for (name, value) in own.chain(headers.iter().copied()) {
            let pair = HeaderName::try_from(name)
                .ok()
                .zip(HeaderValue::try_from(value).ok());
            let Some((name, value)) = pair else {
                panic!("header {name}: {value:?} can't be sent");
            };
            request = request.header(name, value);
        }
        let request = match request.body(Full::new(body.into())) {
            Ok(request) => request,
            Err(error) => panic!("{path} can't be sent: {error}"),
        };
        let mut sender = self.sender.clone();
        match tokio::time::timeout(DEADLINE, sender.send_request(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => panic!("{path}: {error:?}"),
            Err(_) => panic!("{path}: no response within {DEADLINE:?}"),
        }
    }

    /// Sends a request and reads the complete response.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Reply {
        let (parts, body) = self.open(method, path, headers, body).await.into_parts();
        let body = match tokio::time::timeout(DEADLINE, body.collect()).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) => panic!("the body of {path}: {error}"),
            Err(_) => panic!("the body of {path} does not end within {DEADLINE:?}"),
        };
        Reply {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body,
        }
    }

    /// Sends GET.
    pub async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, &[], "").await
    }

    /// Sends GET with an `Accept` header.
    pub async fn get_as(&self, path: &str, accept: &str) -> Reply {
        self.send(Method::GET, path, &[("accept", accept)], "")
            .await
    }

    /// Sends POST with a JSON body.
    pub async fn post(&self, path: &str, body: &Value) -> Reply {
        self.post_as(path, "application/json", body.to_string())
            .await
    }

    /// Sends POST with a body of this media type.
    pub async fn post_as(&self, path: &str, media_type: &str, body: impl Into<Bytes>) -> Reply {
        self.send(Method::POST, path, &[("content-type", media_type)], body)
            .await
    }

    /// Sends PUT with a JSON body.
    pub async fn put(&self, path: &str, body: &Value) -> Reply {
        let headers = [("content-type", "application/json")];
        self.send(Method::PUT, path, &headers, body.to_string())
            .await
    }

    /// Sends PATCH.
    pub async fn patch(&self, patch_type: PatchType, path: &str, patch: &Value) -> Reply {
        let headers = [("content-type", patch_type.media_type())];
        self.send(Method::PATCH, path, &headers, patch.to_string())
            .await
    }

    /// Sends a JSON merge patch.
    pub async fn merge_patch(&self, path: &str, patch: &Value) -> Reply {
        self.patch(PatchType::Merge, path, patch).await
    }

    /// Sends a server-side apply of a field manager.
    pub async fn apply(&self, path: &str, manager: &str, object: &Value) -> Reply {
        let path = format!("{path}?fieldManager={manager}");
        self.patch(PatchType::Apply, &path, object).await
    }

    /// Sends a server-side apply of a field manager that takes conflicting fields.
    pub async fn force_apply(&self, path: &str, manager: &str, object: &Value) -> Reply {
        let path = format!("{path}?fieldManager={manager}&force=true");
        self.patch(PatchType::Apply, &path, object).await
    }

    /// Sends DELETE.
    pub async fn delete(&self, path: &str) -> Reply {
        self.send(Method::DELETE, path, &[], "").await
    }

    /// Sends DELETE with `DeleteOptions` of these fields.
    pub async fn delete_with(&self, path: &str, options: &Value) -> Reply {
        let mut body = serde_json::json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        if let (Some(body), Some(options)) = (body.as_object_mut(), options.as_object()) {
            body.extend(options.clone());
        }
        let headers = [("content-type", "application/json")];
        self.send(Method::DELETE, path, &headers, body.to_string())
            .await
    }

    /// Starts a watch of JSON events. The path has the query, with `watch=true`.
    ///
    /// # Panics
    /// If the status is not 200.
    pub async fn watch(&self, path: &str) -> Watch {
        self.watch_as(path, "application/json").await
    }

    /// Starts a watch in this media type.
    ///
    /// # Panics
    /// If the status is not 200.
    pub async fn watch_as(&self, path: &str, accept: &str) -> Watch {
        let response = self
            .open(Method::GET, path, &[("accept", accept)], "")
            .await;
        let (parts, body) = response.into_parts();
        if parts.status != http::StatusCode::OK {
            let body = body.collect().await.map(|body| body.to_bytes());
            panic!("watch {path}: status {}: {body:?}", parts.status);
        }
        Watch::new(parts.headers, body)
    }
}
