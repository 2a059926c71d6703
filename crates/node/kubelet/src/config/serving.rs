//! Settings of the HTTPS server and of the health check.

use super::file::Configuration;
use super::flags::Flags;
use super::parse::{parse_duration, prefer_flag};
use anyhow::Context;
use base_tls::Offer;
use component::AnswerLifetimes;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// Settings of the HTTPS server and of the health check.
#[derive(Clone, Debug)]
pub struct ServingSettings {
    /// Address of the HTTPS server.
    pub address: SocketAddr,
    /// Address of the plain-text health check; None disables it.
    pub healthz: Option<SocketAddr>,
    /// File to which the port of the HTTPS server is written.
    pub port_file: Option<PathBuf>,
    /// Certificate and key of the HTTPS server; None uses a self-signed certificate.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Versions of TLS and cipher suites of the HTTPS server.
    pub offer: Offer,
    /// Streams and logs are served.
    pub debugging: bool,
    /// Lifetime of cached TokenReview and SubjectAccessReview results.
    pub answer_lifetimes: AnswerLifetimes,
    /// CA that signs client certificates.
    pub client_ca: Option<PathBuf>,
    /// Accept requests without credentials as `system:anonymous`.
    pub anonymous: bool,
    /// Authenticate bearer tokens by TokenReview.
    pub webhook_tokens: bool,
    /// Authorize requests by SubjectAccessReview; without it every authenticated client may do
    /// everything.
    pub webhook_authorization: bool,
}

/// Merges flags and file.
///
/// # Errors
/// An invalid value, with its name.
pub(super) fn read_serving_settings(
    flags: &Flags,
    file: &Configuration,
) -> anyhow::Result<ServingSettings> {
    let listen = flags
        .address
        .or(file.address)
        .unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    Ok(ServingSettings {
        address: SocketAddr::new(listen, flags.port.or(file.port).unwrap_or(10250)),
        healthz: choose_healthz_address(flags, file),
        port_file: flags.port_file.clone(),
        tls: prefer_flag(&flags.tls_cert_file, &file.tls_cert_file).zip(prefer_flag(
            &flags.tls_private_key_file,
            &file.tls_private_key_file,
        )),
        offer: choose_tls_offer(flags, file)?,
        debugging: flags
            .enable_debugging_handlers
            .or(file.enable_debugging_handlers)
            .unwrap_or(true),
        answer_lifetimes: read_answer_lifetimes(flags, file)?,
        client_ca: prefer_flag(
            &flags.client_ca_file,
            &file.authentication.x509.client_ca_file,
        ),
        // Off, unlike upstream's deprecated flag: the port runs commands in every container of the
        // node.
        anonymous: flags
            .anonymous_auth
            .or(file.authentication.anonymous.enabled)
            .unwrap_or(false),
        webhook_tokens: flags
            .authentication_token_webhook
            .or(file.authentication.webhook.enabled)
            .unwrap_or(true),
        webhook_authorization: authorizes_by_webhook(flags, file)?,
    })
}

/// Returns the address of the health endpoint. Port 0 disables it, as upstream; it does not mean
/// any port.
fn choose_healthz_address(flags: &Flags, file: &Configuration) -> Option<SocketAddr> {
    // Flags override the file, as upstream: an installer's flag must hold whatever the file says.
    let port = flags.healthz_port.or(file.healthz_port).unwrap_or(10248);
    let address = flags
        .healthz_bind_address
        .or(file.healthz_bind_address)
        .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    (port > 0).then(|| SocketAddr::new(address, port))
}

fn authorizes_by_webhook(flags: &Flags, file: &Configuration) -> anyhow::Result<bool> {
    match prefer_flag(&flags.authorization_mode, &file.authorization.mode).as_deref() {
        Some("AlwaysAllow") => Ok(false),
        None | Some("Webhook") => Ok(true),
        Some(mode) => {
            anyhow::bail!("authorization mode {mode:?} is neither Webhook nor AlwaysAllow")
        }
    }
}

/// Returns what the HTTPS server offers.
fn choose_tls_offer(flags: &Flags, file: &Configuration) -> anyhow::Result<Offer> {
    let version = prefer_flag(&flags.tls_min_version, &file.tls_min_version).unwrap_or_default();
    let suites = flags
        .tls_cipher_suites
        .as_ref()
        .or(file.tls_cipher_suites.as_ref());
    let suites = suites.map(Vec::as_slice).unwrap_or_default();
    Offer::from_names(&version, suites).context("tlsMinVersion, tlsCipherSuites")
}

fn read_answer_lifetimes(flags: &Flags, file: &Configuration) -> anyhow::Result<AnswerLifetimes> {
    let (tokens, access) = (&file.authentication.webhook, &file.authorization.webhook);
    let time = |flag, file, default, name| {
        parse_duration(prefer_flag(flag, file).as_deref(), default, name)
    };
    Ok(AnswerLifetimes {
        tokens: time(
            &flags.authentication_token_webhook_cache_ttl,
            &tokens.cache_ttl,
            120,
            "cacheTTL",
        )?,
        authorized: time(
            &flags.authorization_webhook_cache_authorized_ttl,
            &access.cache_authorized_ttl,
            300,
            "cacheAuthorizedTTL",
        )?,
        unauthorized: time(
            &flags.authorization_webhook_cache_unauthorized_ttl,
            &access.cache_unauthorized_ttl,
            30,
            "cacheUnauthorizedTTL",
        )?,
    })
}
