//! HTTP requests of probes and hooks: HTTP/1.1, certificates unverified, redirects followed on the
//! same host only.

use base_tls::{ClientTls, client_config};
use bytes::Bytes;
use http::header::{ACCEPT, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION, USER_AGENT};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use url::Url;

const MAX_REDIRECTS: usize = 10;
const MAX_BODY_BYTES: usize = 10 * 1024;

/// The response to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpResponse {
    /// Status code.
    pub status: u16,
    /// At most 10 KiB of the body.
    pub body: String,
}

/// GETs `url` within `timeout`.
///
/// # Errors
/// The reason why there is no response, as text for an event.
pub async fn http_get(
    url: &str,
    headers: &[(String, String)],
    timeout: Duration,
) -> Result<HttpResponse, String> {
    // One timeout for all redirects together, as in Go's http.Client.
    let all = follow_redirects(url, headers);
    tokio::time::timeout(timeout, all)
        .await
        .unwrap_or_else(|_| {
            Err("context deadline exceeded (Client.Timeout exceeded while awaiting headers)".into())
        })
}

async fn follow_redirects(url: &str, headers: &[(String, String)]) -> Result<HttpResponse, String> {
    let mut url = Url::parse(url).map_err(|e| e.to_string())?;
    for _ in 0..MAX_REDIRECTS {
        let (response, location) = get_once(&url, headers).await?;
        let next = location
            .filter(|_| (300..400).contains(&response.status))
            .and_then(|l| url.join(&l).ok());
        match next {
            Some(next) if next.host_str() == url.host_str() => url = next,
            // A redirect to another host counts as the container's response and is not followed.
            _ => return Ok(response),
        }
    }
    Err("stopped after 10 redirects".into())
}

async fn get_once(
    url: &Url,
    headers: &[(String, String)],
) -> Result<(HttpResponse, Option<String>), String> {
    let host = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default().unwrap_or(80);
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((address, port))
        .await
        .map_err(|e| format!("dial tcp {host}:{port}: connect: {e}"))?;
    if url.scheme() != "https" {
        return send_request_over(stream, url, headers).await;
    }
    let tls = ClientTls {
        // A pod has a certificate for its Service, if any, and never for its address.
        insecure: true,
        ..ClientTls::default()
    };
    let config = client_config(&tls).map_err(|e| e.to_string())?;
    let name = ServerName::try_from(address.to_owned()).map_err(|e| e.to_string())?;
    let stream = tokio_rustls::TlsConnector::from(config)
        .connect(name, stream)
        .await
        .map_err(|e| e.to_string())?;
    send_request_over(stream, url, headers).await
}

async fn send_request_over<T>(
    io: T,
    url: &Url,
    headers: &[(String, String)],
) -> Result<(HttpResponse, Option<String>), String>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(io))
        .await
        .map_err(|e| e.to_string())?;
    // Drives the connection while the response is read; a connection error shows up in the
    // response.
    let driver = async {
        let _ = connection.await;
        std::future::pending::<()>().await;
    };
    let target = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let mut request = http::Request::get(target)
        .body(Empty::<Bytes>::new())
        .map_err(|e| e.to_string())?;
    *request.headers_mut() = header_map(url, headers);
    tokio::select! {
        result = read_response(&mut sender, request) => result,
        () = driver => Err("the connection ended".into()),
    }
}

async fn read_response(
    sender: &mut hyper::client::conn::http1::SendRequest<Empty<Bytes>>,
    request: http::Request<Empty<Bytes>>,
) -> Result<(HttpResponse, Option<String>), String> {
    let response = sender
        .send_request(request)
        .await
        .map_err(|e| e.to_string())?;
    let status = response.status().as_u16();
    let location = response
        .headers()
        .get(LOCATION)
        .and_then(|l| l.to_str().ok())
        .map(str::to_owned);
    // A body that is too long, or breaks off, does not change the result: the status has arrived.
    let body = Limited::new(response.into_body(), MAX_BODY_BYTES)
        .collect()
        .await
        .map(|b| b.to_bytes())
        .unwrap_or_default();
    Ok((
        HttpResponse {
            status,
            body: String::from_utf8_lossy(&body).into_owned(),
        },
        location,
    ))
}

fn header_map(url: &Url, headers: &[(String, String)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            // Host may occur only once; other headers may repeat.
            if name == HOST {
                map.insert(name, value)
            } else {
                map.append(name, value);
                None
            };
        }
    }
    let authority = match url.port() {
        Some(port) => format!("{}:{port}", url.host_str().unwrap_or_default()),
        None => url.host_str().unwrap_or_default().to_owned(),
    };
    let defaults = [
        (HOST, authority.as_str()),
        (USER_AGENT, "kube-probe/1.36"),
        (ACCEPT, "*/*"),
    ];
    for (name, value) in defaults {
        if let (false, Ok(value)) = (map.contains_key(&name), HeaderValue::try_from(value)) {
            map.insert(name, value);
        }
    }
    // An empty value removes the default header.
    for name in [USER_AGENT, ACCEPT] {
        if map.get(&name).is_some_and(HeaderValue::is_empty) {
            map.remove(&name);
        }
    }
    map
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::serve_once;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn redirect(location: &str) -> String {
        format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n")
    }

    #[tokio::test]
    async fn redirect_on_the_same_host_is_followed() {
        let ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_owned();
        let (address, server) = serve_once(vec![redirect("/next?x=1"), ok]).await;
        let response = http_get(&format!("http://{address}/first"), &[], TIMEOUT).await;
        assert_eq!(
            response.unwrap(),
            HttpResponse {
                status: 200,
                body: "ok".into()
            }
        );
        let requests = server.await.unwrap();
        assert!(requests[1].starts_with("GET /next?x=1 "), "{requests:?}");
    }

    /// A redirect must not make the kubelet connect to a host that the pod's author chose.
    #[tokio::test]
    async fn redirect_to_another_host_is_the_result() {
        let (address, _) = serve_once(vec![redirect("http://192.0.2.1/")]).await;
        let response = http_get(&format!("http://{address}/"), &[], TIMEOUT).await;
        assert_eq!(response.unwrap().status, 302);
    }

    #[tokio::test]
    async fn redirects_end_after_ten() {
        let (address, _) = serve_once(vec![redirect("/"); MAX_REDIRECTS]).await;
        let response = http_get(&format!("http://{address}/"), &[], TIMEOUT).await;
        assert_eq!(response.unwrap_err(), "stopped after 10 redirects");
    }

    #[test]
    fn headers_of_the_probe_replace_the_defaults_and_an_empty_value_removes_them() {
        let url = Url::parse("http://10.0.0.1:8080/").unwrap();
        let of = |headers: &[(&str, &str)]| {
            let headers: Vec<(String, String)> = headers
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            let map = header_map(&url, &headers);
            ["host", "user-agent", "accept"].map(|name| {
                let values = map.get_all(name).iter();
                let values: Vec<&str> = values.map(|v| v.to_str().unwrap()).collect();
                values.join("|")
            })
        };
        assert_eq!(of(&[]), ["10.0.0.1:8080", "kube-probe/1.36", "*/*"]);
        assert_eq!(
            of(&[("Host", "a"), ("host", "b"), ("Accept", "x")]),
            ["b", "kube-probe/1.36", "x"]
        );
        assert_eq!(
            of(&[("User-Agent", ""), ("Accept", "")]),
            ["10.0.0.1:8080", "", ""]
        );
    }
}
