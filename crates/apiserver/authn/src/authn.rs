//! The authenticators in order, built from options.

use crate::anonymous::Anonymous;
use crate::bootstrap_token::BootstrapTokens;
use crate::jwt::JwtTokens;
use crate::life::CertificateLife;
use crate::options_error::OptionsError;
use crate::request_header::{HeaderAuthenticator, RequestHeader};
use crate::service_account::{AccountTokens, ServiceAccounts, TokenIssuer};
use crate::token_file::TokenFile;
use crate::x509::ClientCertificates;
use apiserver_request::{Authenticator, AuthnError, Credentials, Objects, User};
use base_telemetry::Histogram;
use std::path::PathBuf;
use std::sync::Arc;

/// The group of every authenticated user.
pub const AUTHENTICATED: &str = "system:authenticated";

/// Options of authentication.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `--client-ca-file`
    pub client_ca_file: Option<PathBuf>,
    /// `--requestheader-*`
    pub request_header: Option<RequestHeader>,
    /// `--token-auth-file`
    pub token_auth_file: Option<PathBuf>,
    /// `--enable-bootstrap-token-auth`
    pub bootstrap_tokens: bool,
    /// `--service-account-*`
    pub service_accounts: Option<ServiceAccounts>,
    /// Audiences that mean this server: `--api-audiences`, or else the issuers of accounts.
    pub audiences: Vec<String>,
    /// `--authentication-config` or `--oidc-*`
    pub jwt: Option<Arc<JwtTokens>>,
    /// `--anonymous-auth` or an AuthenticationConfiguration.
    pub anonymous: Anonymous,
}

/// All authenticators.
pub struct Authn {
    certificates: Vec<Arc<dyn Authenticator>>,
    life: Arc<CertificateLife>,
    tokens: Vec<Arc<dyn Authenticator>>,
    accounts: Option<Arc<AccountTokens>>,
    issuer: Option<Arc<TokenIssuer>>,
    /// Audiences that mean this server.
    audiences: Vec<String>,
    jwt: Option<Arc<JwtTokens>>,
    anonymous: Anonymous,
}

impl Authn {
    /// Loads the files of `options`. Bound tokens are checked against `objects`.
    pub fn new(options: Options, objects: Arc<dyn Objects>) -> Result<Arc<Authn>, OptionsError> {
        let life = Arc::new(CertificateLife::default());
        let mut certificates: Vec<Arc<dyn Authenticator>> = Vec::new();
        // Before client certificates: a front proxy's own certificate must not become the user.
        if let Some(headers) = options.request_header {
            certificates.push(Arc::new(HeaderAuthenticator::new(headers)?));
        }
        if let Some(ca) = &options.client_ca_file {
            certificates.push(Arc::new(ClientCertificates::from_file(ca, life.clone())?));
        }
        let mut tokens: Vec<Arc<dyn Authenticator>> = Vec::new();
        if let Some(path) = &options.token_auth_file {
            // The cheapest check is first: a lookup in memory before signatures and Secrets.
            tokens.push(Arc::new(TokenFile::from_file(path)?));
        }
        let (mut accounts, mut issuer) = (None, None);
        if let Some(options) = options.service_accounts {
            let one = Arc::new(AccountTokens::new(&options, objects.clone())?);
            tokens.push(one.clone());
            issuer = TokenIssuer::new(&options, objects.clone())?.map(Arc::new);
            accounts = Some(one);
        }
        if options.bootstrap_tokens {
            tokens.push(Arc::new(BootstrapTokens::new(objects)));
        }
        // Last, as upstream: only these may have to wait for another server.
        if let Some(jwt) = &options.jwt {
            tokens.push(jwt.clone());
        }
        Ok(Arc::new(Authn {
            certificates,
            life,
            tokens,
            accounts,
            issuer,
            audiences: options.audiences,
            jwt: options.jwt,
            anonymous: options.anonymous,
        }))
    }

    /// Returns the user of a request for `path`. An error is a 401; its text is only for the log.
    pub async fn identify(
        &self,
        path: &str,
        credentials: &Credentials,
    ) -> Result<User, AuthnError> {
        match self.authenticate(credentials).await? {
            Some(user) => Ok(user),
            // Only without credentials: a client with a wrong token must learn that, not lose its
            // rights silently.
            None if self.anonymous.allows_path(path) => Ok(User::anonymous()),
            None => Err(AuthnError("the request carries no credentials".into())),
        }
    }

    /// Returns the issuer of ServiceAccount tokens; None without a signing key.
    pub fn issuer(&self) -> Option<Arc<TokenIssuer>> {
        self.issuer.clone()
    }

    /// Returns the histogram of remaining lifetimes of client certificates.
    pub fn certificate_life(&self) -> Histogram {
        self.life.histogram()
    }

    /// Returns the authenticator of other issuers' tokens.
    pub fn jwt(&self) -> Option<&JwtTokens> {
        self.jwt.as_deref()
    }

    /// Returns the verifier of ServiceAccount tokens.
    pub fn accounts(&self) -> Option<&AccountTokens> {
        self.accounts.as_deref()
    }

    /// Returns the audiences that mean this server.
    pub(crate) fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Returns the token authenticators, for TokenReview.
    pub(crate) fn token_authenticators(&self) -> &[Arc<dyn Authenticator>] {
        &self.tokens
    }

    async fn by_token(&self, credentials: &Credentials) -> Result<Option<User>, AuthnError> {
        // An empty token is no credential, as in upstream.
        if credentials.bearer.as_deref().is_none_or(str::is_empty) {
            return Ok(None);
        }
        for tokens in &self.tokens {
            if let Some(user) = tokens.authenticate(credentials).await? {
                return Ok(Some(user));
            }
        }
        Err(AuthnError("invalid bearer token".into()))
    }
}

/// Adds the group of authenticated users.
pub fn with_authenticated_group(mut user: User) -> User {
    // A front proxy may already pass either group.
    let known = |g: &String| g == AUTHENTICATED || g == "system:unauthenticated";
    // A front proxy may forward an anonymous request, which must not gain the rights of
    // authenticated users.
    if user.name != User::ANONYMOUS && !user.groups.iter().any(known) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    user
}

#[async_trait::async_trait]
impl Authenticator for Authn {
    async fn authenticate(&self, credentials: &Credentials) -> Result<Option<User>, AuthnError> {
        // An invalid certificate does not end the chain: a valid token may still authenticate the
        // request, as in upstream's union.
        let mut certificate_error = None;
        for authenticator in &self.certificates {
            match authenticator.authenticate(credentials).await {
                Ok(Some(user)) => return Ok(Some(with_authenticated_group(user))),
                Ok(None) => {}
                Err(e) => certificate_error = Some(e),
            }
        }
        match (self.by_token(credentials).await, certificate_error) {
            (Ok(Some(user)), _) => Ok(Some(with_authenticated_group(user))),
            // Credentials that failed make a 401, never an anonymous request.
            (Ok(None), Some(e)) | (Err(e), _) => Err(e),
            (Ok(None), None) => Ok(None),
        }
    }
}
