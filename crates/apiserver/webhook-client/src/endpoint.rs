//! The destination of a review.

use api_meta::tree::{get, has, int, opt_text, text};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use serde_json::Value;
use std::net::IpAddr;

/// A Service's port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServiceName {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Port of the Service.
    pub port: u16,
}

/// The destination of a review: a Service, or a URL. Without `Debug`, so that no log line has a CA
/// bundle.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    url: String,
    host: String,
    port: u16,
    service: Option<ServiceName>,
    ca_bundle: Vec<u8>,
}

/// The part of an endpoint that connections depend on.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct ClientKey {
    host: String,
    port: u16,
    service: bool,
    ca_bundle: Vec<u8>,
}

impl Endpoint {
    /// Reads a `clientConfig`, which webhook configurations and custom resource definitions share.
    ///
    /// # Errors
    /// Neither a Service nor a usable URL, or a CA bundle that is not base64.
    pub fn parse(config: &Value) -> Result<Self, String> {
        let ca_bundle = match opt_text(config, "caBundle") {
            Some(text) => STANDARD
                .decode(text)
                .map_err(|_| "the caBundle is not base64".to_owned())?,
            None => Vec::new(),
        };
        if has(config, "service") {
            Self::parse_service(get(config, "service"), ca_bundle)
        } else if !text(config, "url").is_empty() {
            Self::parse_url(text(config, "url"), ca_bundle)
        } else {
            Err("webhook configuration must have either service or URL".to_owned())
        }
    }

    fn parse_service(service: &Value, ca_bundle: Vec<u8>) -> Result<Self, String> {
        let (namespace, name) = (text(service, "namespace"), text(service, "name"));
        let port = u16::try_from(int(service, "port").unwrap_or(443))
            .map_err(|_| "the port of the service is not valid".to_owned())?;
        // The name in the certificate, which is not resolved.
        let host = format!("{name}.{namespace}.svc");
        let path = text(service, "path");
        let slash = if path.starts_with('/') { "" } else { "/" };
        let url = format!("https://{host}:{port}{slash}{path}");
        // Definitions that an older server has stored may hold any name: one with a line break
        // would add headers to the request.
        check_url(&url)?;
        Ok(Endpoint {
            url,
            host,
            port,
            service: Some(ServiceName {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                port,
            }),
            ca_bundle,
        })
    }

    fn parse_url(url: &str, ca_bundle: Vec<u8>) -> Result<Self, String> {
        let parsed = check_url(url)?;
        let host = parsed.host().unwrap_or_default();
        // Addresses are resolved and verified without the brackets of a URL.
        let host = host.trim_start_matches('[').trim_end_matches(']');
        // The default of https, as only this scheme is valid.
        let port = parsed.port_u16().unwrap_or(443);
        let path = parsed.path();
        let authority = parsed.authority().map_or("", |a| a.as_str());
        Ok(Endpoint {
            // Queries and fragments are not valid here. Left out, they can't collide with
            // `timeout`.
            url: format!("https://{authority}{path}"),
            host: host.to_owned(),
            port,
            service: None,
            ca_bundle,
        })
    }

    /// Returns `https://host:port/path`.
    pub fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn service(&self) -> Option<&ServiceName> {
        self.service.as_ref()
    }

    pub(crate) fn ca_bundle(&self) -> &[u8] {
        &self.ca_bundle
    }

    /// Returns the key under which a kubeconfig has the credentials for this server.
    pub(crate) fn host_port(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Returns whether the URL names this machine.
    pub(crate) fn is_local(&self) -> bool {
        self.service.is_none()
            && (self.host.eq_ignore_ascii_case("localhost")
                || self.host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback()))
    }

    pub(crate) fn client_key(&self) -> ClientKey {
        ClientKey {
            host: self.host.clone(),
            port: self.port,
            // A URL with the host `NAME.NAMESPACE.svc` is resolved by DNS, so that it must not
            // share the client of that Service.
            service: self.service.is_some(),
            ca_bundle: self.ca_bundle.clone(),
        }
    }
}

fn check_url(url: &str) -> Result<Uri, String> {
    let parsed: Uri = url
        .parse()
        .map_err(|e| format!("unparsable URL {url:?}: {e}"))?;
    // A password in the URL would be in every error message.
    let has_user = parsed.authority().is_some_and(|a| a.as_str().contains('@'));
    if has_user {
        return Err("user information is not permitted in the URL".to_owned());
    }
    if parsed.scheme_str() != Some("https") || parsed.host().is_none_or(str::is_empty) {
        return Err(format!("the URL {url:?} is not an https URL with a host"));
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn parse(config: Value) -> Result<(String, String), String> {
        let endpoint = Endpoint::parse(&config)?;
        Ok((endpoint.url.clone(), endpoint.host_port()))
    }

    #[test]
    fn service_is_called_by_its_dns_name() {
        let service = |fields: Value| {
            let mut service = json!({"namespace": "n", "name": "hook"});
            service
                .as_object_mut()
                .unwrap()
                .extend(fields.as_object().unwrap().clone());
            parse(json!({"service": service})).unwrap()
        };
        let expect = |url: &str, host: &str| (url.to_owned(), host.to_owned());
        assert_eq!(
            service(json!({})),
            expect("https://hook.n.svc:443/", "hook.n.svc:443")
        );
        assert_eq!(
            service(json!({"path": "/a/b", "port": 8443})),
            expect("https://hook.n.svc:8443/a/b", "hook.n.svc:8443")
        );
    }

    #[test]
    fn url_keeps_host_port_and_path() {
        for (url, host_port) in [
            ("https://example.com/a", "example.com:443"),
            ("https://127.0.0.1:8443/", "127.0.0.1:8443"),
            ("https://[::1]:8443/x", "[::1]:8443"),
        ] {
            let found = parse(json!({"url": url})).unwrap();
            assert_eq!(found, (url.to_owned(), host_port.to_owned()));
        }
    }

    #[test]
    fn unusable_client_config_is_an_error() {
        for config in [
            json!({}),
            json!({"url": "http://example.com/"}),
            json!({"url": "https:///x"}),
            json!({"url": "not a url"}),
            json!({"url": "https://user:password@example.com/"}),
            json!({"service": {"namespace": "n", "name": "x", "port": 70000}}),
            json!({"service": {"namespace": "n\r\n", "name": "x"}}),
            json!({"url": "https://example.com/", "caBundle": "%"}),
        ] {
            assert!(parse(config.clone()).is_err(), "{config}");
        }
    }

    #[test]
    fn only_urls_of_this_machine_are_local() {
        let local = |config: Value| Endpoint::parse(&config).unwrap().is_local();
        assert!(local(json!({"url": "https://localhost:1/"})));
        assert!(local(json!({"url": "https://127.9.0.1:1/"})));
        assert!(local(json!({"url": "https://[::1]:1/"})));
        assert!(!local(json!({"url": "https://example.com/"})));
        assert!(!local(
            json!({"service": {"namespace": "n", "name": "localhost"}})
        ));
    }
}
