//! `--auto-tls` and `--peer-auto-tls`: self-signed certificates. They protect against passive
//! eavesdropping, but authenticate neither side.

use crate::settings::Serve;
use crate::sockets;
use crate::urls;
use anyhow::{Context, Result, bail};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
const LONGEST: u32 = 100;

/// Returns the flags with the requested certificate files, which are created if they don't exist.
pub(crate) fn with_auto_tls(mut flags: Serve) -> Result<Serve> {
    let folder = flags.data_folder().join("fixtures");
    let auto = flags.auto_tls.clone();
    if (auto.auto_tls || auto.peer_auto_tls)
        && !(1..=LONGEST).contains(&auto.self_signed_cert_validity)
    {
        bail!(
            "--self-signed-cert-validity {} is invalid: it is a number of years from 1 to {LONGEST}",
            auto.self_signed_cert_validity
        );
    }
    if auto.auto_tls {
        if flags.cert_file.is_some() || flags.key_file.is_some() {
            tracing::warn!("ignoring client auto TLS since certs given");
        } else {
            let lists = [
                ("listen-client-urls", &flags.listen_client_urls),
                ("listen-client-http-urls", &flags.listen_client_http_urls),
            ];
            let (certificate, key) = ensure_certificate(
                &folder.join("client"),
                &lists,
                auto.self_signed_cert_validity,
            )?;
            (flags.cert_file, flags.key_file) = (Some(certificate), Some(key));
        }
    }
    if auto.peer_auto_tls {
        if flags.peer_cert_file.is_some() || flags.peer_key_file.is_some() {
            tracing::warn!("ignoring peer auto TLS since certs given");
        } else {
            let lists = [("listen-peer-urls", &flags.listen_peer_urls)];
            let (certificate, key) =
                ensure_certificate(&folder.join("peer"), &lists, auto.self_signed_cert_validity)?;
            (flags.peer_cert_file, flags.peer_key_file) = (Some(certificate), Some(key));
        }
    }
    Ok(flags)
}

/// Returns certificate and key in a directory, valid for the hosts of the URL lists. Creates them
/// if they don't exist.
fn ensure_certificate(
    folder: &Path,
    lists: &[(&str, &String)],
    years: u32,
) -> Result<(PathBuf, PathBuf)> {
    let (certificate, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    if certificate.exists() && key.exists() {
        return Ok((certificate, key));
    }
    let mut hosts = Vec::new();
    for (flag, list) in lists {
        // Sockets have no TLS.
        let (_, list) = sockets::split_sockets(flag, list)?;
        hosts.extend(
            urls::parse_urls(flag, &list)?
                .into_iter()
                .map(|url| url.host),
        );
    }
    let signed = self_sign(hosts, SystemTime::now() + YEAR * years)
        .context("a certificate can't be made")?;
    let failed = || format!("the certificate can't be written to {}", folder.display());
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .with_context(failed)?;
    // The key first: if the certificate is missing, the next start creates both again.
    write_private(&key, &signed.1)
        .and_then(|()| write_private(&certificate, &signed.0))
        .with_context(failed)?;
    tracing::warn!(path = %certificate.display(), years, "using a self-signed certificate");
    Ok((certificate, key))
}

fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let next = path.with_extension("tmp");
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&next)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&next, path)
}

fn self_sign(hosts: Vec<String>, until: SystemTime) -> Result<(String, String), rcgen::Error> {
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::OrganizationName, "etcd");
    // etcd creates CA certificates, which strict clients reject for a server.
    params.is_ca = IsCa::NoCa;
    params.key_usages = vec![
        KeyUsagePurpose::KeyEncipherment,
        KeyUsagePurpose::DigitalSignature,
    ];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.not_before = SystemTime::now().into();
    params.not_after = until.into();
    let key = KeyPair::generate()?;
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}
