//! TLS of ports, from the files that flags name.

use anyhow::{Result, bail};
use base_tls::rustls::{ServerConfig, SupportedProtocolVersion};
use base_tls::{ClientAuth, Offer, ServerTls};
use std::path::Path;
use std::sync::Arc;

/// TLS files of a kind of port, and the prefix of the flags that name them.
pub struct TlsFiles<'a> {
    /// Prefix of the flags: empty, or `peer-`.
    pub prefix: &'static str,
    /// Certificate file.
    pub certificate: Option<&'a Path>,
    /// Key file.
    pub key: Option<&'a Path>,
    /// CA of client certificates.
    pub ca: Option<&'a Path>,
    /// True if client certificates are required. A CA implies that too.
    pub demand: bool,
    /// Versions and suites of TLS.
    pub offer: Offer,
}

/// Enabled versions of TLS.
pub type Versions = &'static [&'static SupportedProtocolVersion];

/// Returns the TLS configuration of a port. If a CA is given, clients without a certificate of it
/// are rejected.
pub fn tls_config(files: &TlsFiles<'_>) -> Result<Option<Arc<ServerConfig>>> {
    let prefix = files.prefix;
    let client_auth = match files.ca {
        // As in etcd, a CA alone requires certificates; --client-cert-auth only adds that they name
        // users.
        Some(ca) => ClientAuth::Require(ca.to_path_buf()),
        None if files.demand => bail!(
            "--{prefix}client-cert-auth needs the CA that certificates are checked with: give it with --{prefix}trusted-ca-file"
        ),
        None => ClientAuth::None,
    };
    let (certificate, key) = match (files.certificate, files.key) {
        (Some(certificate), Some(key)) => (certificate.to_path_buf(), key.to_path_buf()),
        (None, None) => return Ok(None),
        // Falling back to plain text for one missing file would expose everything without notice.
        _ => bail!("--{prefix}cert-file and --{prefix}key-file need each other: give both or none"),
    };
    // HTTP/1.1 for the pages and for probes.
    let alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some(base_tls::server_config_with(
        &ServerTls {
            certificate,
            key,
            client_auth,
            alpn,
        },
        &files.offer,
    )?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn files<'a>(
        prefix: &'static str,
        certificate: Option<&'a Path>,
        demand: bool,
    ) -> TlsFiles<'a> {
        TlsFiles {
            prefix,
            certificate,
            key: None,
            ca: None,
            demand,
            offer: Offer::from_names("", &[]).unwrap(),
        }
    }

    #[test]
    fn port_without_files_has_no_tls() {
        assert!(tls_config(&files("", None, false)).unwrap().is_none());
    }

    #[test]
    fn incomplete_files_are_rejected_with_the_names_of_their_flags() {
        let certificate = Path::new("c.crt");
        for (files, flag) in [
            (files("", None, true), "--trusted-ca-file"),
            (files("peer-", None, true), "--peer-trusted-ca-file"),
            (files("", Some(certificate), false), "--key-file"),
            (files("peer-", Some(certificate), false), "--peer-key-file"),
        ] {
            let rejected = tls_config(&files).err().unwrap().to_string();
            assert!(rejected.contains(flag), "{rejected}");
        }
    }
}
