//! TLS of the client: the files of its configuration, HTTP/2 by ALPN.

use std::path::PathBuf;
use std::sync::Arc;

use base_tls::{ClientTls, TlsError};
use rustls::ClientConfig;

use crate::config::{Config, Source};
use crate::error::{Error, Result};

const SYSTEM_ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Builds the rustls configuration from the current content of the files.
pub(crate) fn client_config(config: &Config) -> Result<Arc<ClientConfig>> {
    let identity = match &config.identity {
        None => None,
        Some(identity) => {
            let (chain, key) = (
                identity.certificate.read_bytes()?,
                identity.key.read_bytes()?,
            );
            // Parsed here once more only for an error that names the file.
            base_tls::parse_certificates(&chain, &source_path(&identity.certificate))
                .map_err(|error| unusable_error("client certificate", &error))?;
            base_tls::parse_private_key(&key, &source_path(&identity.key))
                .map_err(|error| unusable_error("client key", &error))?;
            Some((chain, key))
        }
    };
    let tls = ClientTls {
        ca: if config.insecure {
            None
        } else {
            Some(read_roots(config)?)
        },
        identity,
        insecure: config.insecure,
        alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
    };
    base_tls::client_config(&tls).map_err(|error| Error::Config(format!("TLS: {error}")))
}

/// Reads the certificate authorities, at least one.
fn read_roots(config: &Config) -> Result<Vec<u8>> {
    let system = Source::File(SYSTEM_ROOTS.into());
    let source = config.ca.as_ref().unwrap_or(&system);
    let (pem, place) = (source.read_bytes()?, source_path(source));
    let roots = base_tls::parse_roots(&pem, &place)
        .map_err(|error| unusable_error("certificate authority", &error))?;
    // An empty store would reject every server, with a message about its certificate instead of
    // this file.
    if roots.is_empty() {
        return Err(Error::Config(format!(
            "{} holds no certificate authority",
            place.display()
        )));
    }
    Ok(pem)
}

fn unusable_error(what: &str, error: &TlsError) -> Error {
    Error::Config(format!("the {what} can't be used: {error}"))
}

/// Returns the path for errors.
fn source_path(source: &Source) -> PathBuf {
    match source {
        Source::Inline(_) => "the inline data".into(),
        Source::File(path) => path.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_file_without_certificates() {
        let inline =
            Config::builder("https://127.0.0.1:1").with_ca(Source::Inline(b"nothing".to_vec()));
        let error = client_config(&inline).map(drop).map_err(|e| e.to_string());
        assert!(
            error
                .as_ref()
                .is_err_and(|error| error.contains("the inline data holds no certificate")),
            "{error:?}"
        );
    }
}
