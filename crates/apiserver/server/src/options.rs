//! The command line: upstream's flags, with their defaults.

use crate::audit_flags::AuditFlags;
use crate::authz_flags::AuthzFlags;
use crate::credentials::IdentityHeaders;
use crate::durations::parse_duration;
use crate::endpoint_reconciler::EndpointReconciler;
use crate::oidc_flags::OidcFlags;
use crate::release_flags::ReleaseFlags;
use anyhow::bail;
use apiserver_authn::{
    Anonymous, LoadedConfiguration, Options as AuthnOptions, RequestHeader, ServiceAccounts,
    read_authentication_config,
};
use apiserver_storage::StoreConfig;
use base_telemetry::LogOptions;
use clap::Parser;
use ipnet::IpNet;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Serves the Kubernetes API over an etcd v3 store.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "kube-apiserver",
    version,
    about,
    disable_help_subcommand = true
)]
pub struct ServerOptions {
    /// Members of the store, as http:// or https:// URLs
    #[arg(long, value_delimiter = ',', required = true)]
    pub etcd_servers: Vec<String>,
    /// CA that signed the store's certificates
    #[arg(long)]
    pub etcd_cafile: Option<PathBuf>,
    /// Client certificate for the store
    #[arg(long)]
    pub etcd_certfile: Option<PathBuf>,
    /// Key of the client certificate for the store
    #[arg(long)]
    pub etcd_keyfile: Option<PathBuf>,
    /// Prefix of all keys in the store
    #[arg(long, default_value = "/registry")]
    pub etcd_prefix: String,
    /// Interval between two compactions of the store's history, 0 for never
    #[arg(long, default_value = "5m")]
    pub etcd_compaction_interval: String,
    /// How long events are kept
    #[arg(long, default_value = "1h0m0s")]
    pub event_ttl: String,

    /// Address to listen on
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// Port to serve HTTPS on; 0 picks a free one
    #[arg(long, default_value_t = 6443)]
    pub secure_port: u16,
    /// Write the bound port to this file
    #[arg(long)]
    pub port_file: Option<PathBuf>,
    /// Address under which other members of the cluster reach this server
    #[arg(long)]
    pub advertise_address: Option<IpAddr>,
    /// Writer of the endpoints of the Service kubernetes: lease (each running server) or none
    /// (another program)
    #[arg(long, default_value = "lease")]
    pub endpoint_reconciler_type: EndpointReconciler,
    /// Host name or address in links to this server
    #[arg(long, default_value = "")]
    pub external_hostname: String,
    /// Server certificate
    #[arg(long, required = true)]
    pub tls_cert_file: PathBuf,
    /// Key of the server certificate
    #[arg(long, required = true)]
    pub tls_private_key_file: PathBuf,

    /// Minimum version of TLS: VersionTLS12 or VersionTLS13
    #[arg(long, default_value = "")]
    pub tls_min_version: String,
    /// Cipher suites for TLS 1.2, by Go's names
    #[arg(long, value_delimiter = ',')]
    pub tls_cipher_suites: Vec<String>,
    /// Serve HTTP/1.1 only
    #[arg(long, num_args = 0..=1, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub disable_http2_serving: bool,
    /// Concurrent requests on one HTTP/2 connection, 0 for the default of 1000
    #[arg(long, default_value_t = 0)]
    pub http2_max_streams_per_connection: u32,
    /// Concurrent reading requests, 0 for no limit
    #[arg(long, default_value_t = 400)]
    pub max_requests_inflight: usize,
    /// Concurrent mutating requests, 0 for no limit
    #[arg(long, default_value_t = 200)]
    pub max_mutating_requests_inflight: usize,
    /// Timeout of a request that is no watch, stream or proxy
    #[arg(long, default_value = "1m0s")]
    pub request_timeout: String,
    /// Time to keep serving after a stop signal, while /readyz fails
    #[arg(long, default_value = "0s")]
    pub shutdown_delay_duration: String,

    /// CA of client certificates
    #[arg(long)]
    pub client_ca_file: Option<PathBuf>,
    /// File of static tokens
    #[arg(long)]
    pub token_auth_file: Option<PathBuf>,
    /// Accept bootstrap tokens
    #[arg(long, num_args = 0..=1, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub enable_bootstrap_token_auth: bool,
    /// Accept requests without credentials as system:anonymous (default true, false with
    /// AlwaysAllow)
    #[arg(long, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub anonymous_auth: Option<bool>,
    /// File with issuers of tokens and with the paths open to requests without credentials
    #[arg(long)]
    pub authentication_config: Option<PathBuf>,
    /// One issuer of tokens.
    #[command(flatten)]
    pub oidc: OidcFlags,
    /// Keys that verify ServiceAccount tokens
    #[arg(long)]
    pub service_account_key_file: Vec<PathBuf>,
    /// Key that signs ServiceAccount tokens
    #[arg(long)]
    pub service_account_signing_key_file: Option<PathBuf>,
    /// Issuers of ServiceAccount tokens, the first one signs
    #[arg(long, value_delimiter = ',')]
    pub service_account_issuer: Vec<String>,
    /// URL under which the keys are published
    #[arg(long, default_value = "")]
    pub service_account_jwks_uri: String,
    /// Extend the lifetime of tokens that pods mount
    #[arg(long, num_args = 0..=1, default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub service_account_extend_token_expiration: bool,
    /// Maximum lifetime of a ServiceAccount token, at least an hour, 0 for upstream's bounds only
    #[arg(long, default_value = "0s")]
    pub service_account_max_token_expiration: String,
    /// Audiences of this server
    #[arg(long, value_delimiter = ',')]
    pub api_audiences: Vec<String>,
    /// Client certificate for extension servers
    #[arg(long, requires = "proxy_client_key_file")]
    pub proxy_client_cert_file: Option<PathBuf>,
    /// Key of the client certificate for extension servers
    #[arg(long, requires = "proxy_client_cert_file")]
    pub proxy_client_key_file: Option<PathBuf>,
    /// CA of front proxies
    #[arg(long)]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// Common names of front proxies
    #[arg(long, value_delimiter = ',')]
    pub requestheader_allowed_names: Vec<String>,
    /// Headers with a user's name
    #[arg(long, value_delimiter = ',', default_value = "x-remote-user")]
    pub requestheader_username_headers: Vec<String>,
    /// Headers with a user's groups
    #[arg(long, value_delimiter = ',', default_value = "x-remote-group")]
    pub requestheader_group_headers: Vec<String>,
    /// Headers with a user's UID
    #[arg(long, value_delimiter = ',')]
    pub requestheader_uid_headers: Vec<String>,
    /// Prefixes of headers with extra information about a user
    #[arg(long, value_delimiter = ',', default_value = "x-remote-extra-")]
    pub requestheader_extra_headers_prefix: Vec<String>,

    /// Authorization.
    #[command(flatten)]
    pub authz: AuthzFlags,
    /// Admission plugins to enable
    #[arg(long, value_delimiter = ',')]
    pub enable_admission_plugins: Vec<String>,
    /// Admission plugins to disable
    #[arg(long, value_delimiter = ',')]
    pub disable_admission_plugins: Vec<String>,
    /// File with credentials for admission webhooks
    #[arg(long)]
    pub admission_control_config_file: Option<PathBuf>,
    /// Names of admission webhooks that are not called, to recover a cluster from a broken one
    #[arg(long, value_delimiter = ',')]
    pub skip_admission_webhooks: Vec<String>,
    /// A component of the cluster enforces NetworkPolicies; without this flag, writes of them get a
    /// warning
    #[arg(long)]
    pub network_policies_enforced: bool,
    /// Connect to endpoints of webhooks' Services instead of their cluster IPs
    #[arg(long, num_args = 0..=1, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub enable_aggregator_routing: bool,

    /// CIDRs of cluster IPs
    #[arg(long, value_delimiter = ',', default_value = "10.0.0.0/24")]
    pub service_cluster_ip_range: Vec<IpNet>,
    /// Node ports of Services, FIRST-LAST
    #[arg(long, default_value = "30000-32767", value_parser = port_range)]
    pub service_node_port_range: RangeInclusive<u16>,
    /// Client certificate for kubelets
    #[arg(long)]
    pub kubelet_client_certificate: Option<PathBuf>,
    /// Key of the client certificate for kubelets
    #[arg(long)]
    pub kubelet_client_key: Option<PathBuf>,
    /// CA of kubelets' certificates
    #[arg(long)]
    pub kubelet_certificate_authority: Option<PathBuf>,
    /// Types of node addresses to use, most preferred first
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "InternalIP,ExternalIP,Hostname"
    )]
    pub kubelet_preferred_address_types: Vec<String>,

    /// Built-in APIs to serve or not: GROUP/VERSION=BOOL, GROUP/VERSION/RESOURCE=BOOL,
    /// api/all=BOOL, api/ga=BOOL, api/beta=BOOL, api/alpha=BOOL
    #[arg(long, value_delimiter = ',')]
    pub runtime_config: Vec<String>,
    /// Media type of stored objects of built-in kinds: application/vnd.kubernetes.protobuf or
    /// application/json
    #[arg(long, default_value = "application/vnd.kubernetes.protobuf")]
    pub storage_media_type: String,
    /// Feature gates, NAME=BOOL; a feature that this version does not have can't be enabled
    #[arg(long, value_delimiter = ',')]
    pub feature_gates: Vec<String>,
    /// The release that is emulated.
    #[command(flatten)]
    pub release: ReleaseFlags,

    /// Audit.
    #[command(flatten)]
    pub audit: AuditFlags,

    /// Logging.
    #[command(flatten)]
    pub logs: LogOptions,
}

fn port_range(text: &str) -> Result<RangeInclusive<u16>, String> {
    let range = text
        .split_once('-')
        .and_then(|(first, last)| Some(first.parse().ok()?..=last.parse().ok()?));
    range
        // Port 0 means "none" in a Service, so that it can't be allocated.
        .filter(|r| r.start() <= r.end() && *r.start() > 0)
        .ok_or_else(|| format!("{text:?} is not FIRST-LAST"))
}

impl ServerOptions {
    /// Returns the options of the store's client.
    pub fn store_config(&self) -> StoreConfig {
        StoreConfig {
            servers: self.etcd_servers.clone(),
            ca_file: self.etcd_cafile.clone(),
            cert_file: self.etcd_certfile.clone(),
            key_file: self.etcd_keyfile.clone(),
        }
    }

    /// Reads the file of `--authentication-config`, if there is one.
    ///
    /// # Errors
    /// The file can't be used.
    pub fn load_authentication_config(&self) -> anyhow::Result<Option<LoadedConfiguration>> {
        let path = self.authentication_config.as_ref();
        let load = |path: &PathBuf| read_authentication_config(path, &self.service_account_issuer);
        Ok(path.map(load).transpose()?)
    }

    /// Returns the options of authentication. `configured` is what the file of
    /// `--authentication-config` says about anonymous requests, and `allows_all` whether there is
    /// the authorizer AlwaysAllow.
    ///
    /// # Errors
    /// A flag that can't be used.
    pub fn authn_options(
        &self,
        configured: Option<Anonymous>,
        allows_all: bool,
    ) -> anyhow::Result<AuthnOptions> {
        // Without keys no token can be verified, so that the authenticator does not exist.
        let accounts = !self.service_account_key_file.is_empty()
            || self.service_account_signing_key_file.is_some();
        Ok(AuthnOptions {
            client_ca_file: self.client_ca_file.clone(),
            request_header: self
                .requestheader_client_ca_file
                .clone()
                .map(|ca| self.request_header(ca)),
            token_auth_file: self.token_auth_file.clone(),
            bootstrap_tokens: self.enable_bootstrap_token_auth,
            audiences: self.service_accounts()?.api_audiences(),
            service_accounts: accounts.then(|| self.service_accounts()).transpose()?,
            // Built with the server, because it needs connections.
            jwt: None,
            anonymous: self.anonymous_access(configured, allows_all)?,
        })
    }

    /// Returns the paths open to anonymous requests. With AlwaysAllow there are none: every
    /// anonymous request would be allowed.
    fn anonymous_access(
        &self,
        configured: Option<Anonymous>,
        allows_all: bool,
    ) -> anyhow::Result<Anonymous> {
        // As upstream, neither has precedence: an operator could not tell which one protects the
        // server.
        if configured.is_some() && self.anonymous_auth.is_some() {
            bail!(
                "--anonymous-auth can't be given when --authentication-config has the field anonymous; leave it out"
            );
        }
        // Upstream's default.
        let everywhere = self.anonymous_auth.unwrap_or(true);
        let flag = if everywhere {
            Anonymous::AllPaths
        } else {
            Anonymous::Disabled
        };
        let anonymous = configured.unwrap_or(flag);
        if anonymous != Anonymous::Disabled && allows_all {
            tracing::warn!(
                "requests without credentials are rejected, because there is the authorizer AlwaysAllow"
            );
            return Ok(Anonymous::Disabled);
        }
        Ok(anonymous)
    }

    /// Returns the files with certificates, with the flags that name them.
    pub(crate) fn list_certificate_files(&self) -> Vec<(&'static str, PathBuf)> {
        let files = [
            ("tls-cert-file", Some(&self.tls_cert_file)),
            ("client-ca-file", self.client_ca_file.as_ref()),
            ("etcd-cafile", self.etcd_cafile.as_ref()),
            ("etcd-certfile", self.etcd_certfile.as_ref()),
            (
                "kubelet-certificate-authority",
                self.kubelet_certificate_authority.as_ref(),
            ),
            (
                "kubelet-client-certificate",
                self.kubelet_client_certificate.as_ref(),
            ),
            (
                "proxy-client-cert-file",
                self.proxy_client_cert_file.as_ref(),
            ),
            (
                "requestheader-client-ca-file",
                self.requestheader_client_ca_file.as_ref(),
            ),
        ];
        let named = files.into_iter();
        named
            .filter_map(|(flag, path)| path.map(|path| (flag, path.clone())))
            .collect()
    }

    fn request_header(&self, client_ca_file: PathBuf) -> RequestHeader {
        RequestHeader {
            client_ca_file,
            allowed_names: self.requestheader_allowed_names.clone(),
            username_headers: self.requestheader_username_headers.clone(),
            group_headers: self.requestheader_group_headers.clone(),
            extra_header_prefixes: self.requestheader_extra_headers_prefix.clone(),
            uid_headers: self.requestheader_uid_headers.clone(),
        }
    }

    /// Returns the headers in which a front proxy sends the user.
    pub fn identity_headers(&self) -> IdentityHeaders {
        let names = [
            &self.requestheader_username_headers,
            &self.requestheader_group_headers,
            &self.requestheader_uid_headers,
        ];
        IdentityHeaders::new(
            names.into_iter().flatten(),
            &self.requestheader_extra_headers_prefix,
        )
    }

    fn service_accounts(&self) -> anyhow::Result<ServiceAccounts> {
        Ok(ServiceAccounts {
            issuers: self.service_account_issuer.clone(),
            key_files: self.service_account_key_file.clone(),
            signing_key_file: self.service_account_signing_key_file.clone(),
            audiences: self.api_audiences.clone(),
            extend_expiration: self.service_account_extend_token_expiration,
            max_expiration_seconds: self.max_token_seconds()?,
            jwks_uri: self.service_account_jwks_uri.clone(),
        })
    }

    /// Returns the seconds of `--service-account-max-token-expiration`, within upstream's bounds.
    fn max_token_seconds(&self) -> anyhow::Result<Option<i64>> {
        const FLAG: &str = "service-account-max-token-expiration";
        let seconds = parse_duration(FLAG, &self.service_account_max_token_expiration)?.as_secs();
        match seconds {
            0 => Ok(None),
            // Upstream's bounds: an hour, and 2^32 seconds.
            3600..=4_294_967_296 => Ok(i64::try_from(seconds).ok()),
            _ => bail!("--{FLAG} must be between 1h and 2^32 seconds, or 0 for no bound"),
        }
    }

    /// Returns the address for other components: the advertised one, the one to listen on, or this
    /// machine's.
    pub fn advertised_address(&self) -> IpAddr {
        // Endpoints with such an address would lead every node to itself.
        let unusable = self.bind_address.is_unspecified() || self.bind_address.is_loopback();
        self.advertise_address.unwrap_or_else(|| {
            if unusable {
                own_address()
            } else {
                self.bind_address
            }
        })
    }
}

/// Returns the source address of the default route; sends no packet.
fn own_address() -> IpAddr {
    let route = || {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
        // An address for documentation (RFC 5737). Connecting a UDP socket only looks up the route.
        socket.connect("192.0.2.1:9").ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    route().unwrap_or(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(flags: &[&str]) -> ServerOptions {
        let fixed = [
            "x",
            "--etcd-servers=http://x",
            "--tls-cert-file=x",
            "--tls-private-key-file=x",
        ];
        ServerOptions::try_parse_from(fixed.iter().chain(flags)).unwrap()
    }

    fn anonymous(flags: &[&str]) -> Anonymous {
        let options = parse(flags);
        let allows_all = options.authz.authorizers().unwrap().allow_all();
        options.anonymous_access(None, allows_all).unwrap()
    }

    #[test]
    fn max_token_expiration_has_upstreams_bounds() {
        let longest = |text: &str| {
            parse(&[&format!("--service-account-max-token-expiration={text}")]).max_token_seconds()
        };
        assert_eq!(parse(&[]).max_token_seconds().unwrap(), None);
        assert_eq!(longest("24h").unwrap(), Some(86_400));
        assert!(longest("59m").is_err() && longest("1200000h").is_err());
    }

    #[test]
    fn files_with_certificates_are_listed_with_their_flags() {
        assert_eq!(
            parse(&[]).list_certificate_files(),
            [("tls-cert-file", "x".into())]
        );
        let flags = [
            "client-ca-file",
            "etcd-cafile",
            "etcd-certfile",
            "kubelet-certificate-authority",
            "kubelet-client-certificate",
            "proxy-client-cert-file",
            "requestheader-client-ca-file",
        ];
        let given = flags.map(|flag| format!("--{flag}=/{flag}.crt"));
        // A key has no expiration.
        let mut words: Vec<&str> = given.iter().map(String::as_str).collect();
        words.extend(["--etcd-keyfile=/k", "--proxy-client-key-file=/k"]);
        let listed = parse(&words).list_certificate_files();
        let expected = flags.map(|flag| (flag, PathBuf::from(format!("/{flag}.crt"))));
        assert_eq!(listed[1..], expected);
    }

    #[test]
    fn always_allow_rejects_anonymous_requests() {
        assert_eq!(
            anonymous(&[]),
            Anonymous::Disabled,
            "AlwaysAllow is the default"
        );
        assert_eq!(anonymous(&["--anonymous-auth"]), Anonymous::Disabled);
        assert_eq!(
            anonymous(&["--authorization-mode=RBAC,AlwaysAllow"]),
            Anonymous::Disabled
        );
        assert_eq!(
            anonymous(&["--authorization-mode=Node,RBAC"]),
            Anonymous::AllPaths
        );
        assert_eq!(
            anonymous(&["--authorization-mode=RBAC", "--anonymous-auth=false"]),
            Anonymous::Disabled
        );
    }
}
