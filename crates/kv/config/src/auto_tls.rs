//! `--auto-tls` and `--peer-auto-tls`: self-signed certificates. They protect against passive
//! eavesdropping, but authenticate neither side.

use crate::flags::ServeFlags;
use crate::urls;
use anyhow::{Context, Result, bail};
use base_tls::ensure_self_signed_pair;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
// Without a bound, the end of validity could overflow the time type.
const LONGEST: u32 = 100;

/// Returns the flags with the requested certificate files, which are created if they don't exist.
pub fn with_auto_tls(mut flags: ServeFlags) -> Result<ServeFlags> {
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
        // Files of the operator take precedence: replacing them would break clients that trust
        // their CA.
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
    // The files are kept even if the URLs change, as etcd does. An operator who changes a host name
    // deletes them.
    let mut hosts = Vec::new();
    for (flag, list) in lists {
        // Sockets have no TLS.
        let (_, list) = kv_transport::split_sockets(flag, list)?;
        hosts.extend(
            urls::parse_urls(flag, &list)?
                .into_iter()
                .map(|url| url.host),
        );
    }
    let until = SystemTime::now() + YEAR * years;
    let created = ensure_self_signed_pair(&certificate, &key, || server_params(hosts, until))
        .with_context(|| format!("no self-signed certificate in {}", folder.display()))?;
    if created {
        tracing::warn!(path = %certificate.display(), years, "using a self-signed certificate");
    }
    Ok((certificate, key))
}

/// Returns the content of a certificate for the hosts of a server.
fn server_params(hosts: Vec<String>, until: SystemTime) -> Result<CertificateParams, rcgen::Error> {
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
    Ok(params)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::flags::Flags;
    use crate::tls::tls_config;
    use clap::Parser;

    fn with_flags(folder: &Path, words: &[&str]) -> Result<ServeFlags> {
        let data = format!("--data-dir={}", folder.display());
        let words = ["kvstore", &data].into_iter().chain(words.iter().copied());
        with_auto_tls(Flags::try_parse_from(words)?.serve)
    }

    #[test]
    fn certificates_are_made_for_both_ports_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let words = [
            "--auto-tls",
            "--peer-auto-tls",
            "--listen-client-urls=https://127.0.0.1:2379,unix:///run/s",
        ];
        let flags = with_flags(folder.path(), &words).unwrap();
        let made = folder.path().join("fixtures/client/cert.pem");
        assert_eq!(flags.cert_file.as_ref(), Some(&made));
        assert!(
            tls_config(&flags.client_files().unwrap())
                .unwrap()
                .is_some()
        );
        assert!(tls_config(&flags.peer_files().unwrap()).unwrap().is_some());
        let pem = std::fs::read(&made).unwrap();
        with_flags(folder.path(), &words).unwrap();
        assert_eq!(std::fs::read(&made).unwrap(), pem);
    }

    #[test]
    fn given_certificates_are_used_instead() {
        let folder = tempfile::tempdir().unwrap();
        let flags = with_flags(
            folder.path(),
            &["--auto-tls", "--cert-file=c", "--key-file=k"],
        );
        assert_eq!(flags.unwrap().cert_file, Some(PathBuf::from("c")));
        assert!(!folder.path().join("fixtures").exists());
    }

    #[test]
    fn validity_is_a_number_of_years() {
        let folder = tempfile::tempdir().unwrap();
        for (years, expect) in [("0", false), ("1", true), ("100", true), ("101", false)] {
            let validity = format!("--self-signed-cert-validity={years}");
            let made = with_flags(folder.path(), &["--auto-tls", &validity]);
            assert_eq!(made.is_ok(), expect, "{years} years");
        }
        let ignored = ["--self-signed-cert-validity=0"];
        assert!(
            with_flags(folder.path(), &ignored).is_ok(),
            "nothing is made"
        );
    }
}
