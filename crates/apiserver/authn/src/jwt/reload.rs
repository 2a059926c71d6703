//! The issuers in use: those of the flags, or those of a file that is followed.

use super::authenticator::{ALGORITHMS, IssuerSet, parse_algorithms};
use super::config::{AuthenticationConfiguration, JwtConfig};
use super::environment::IssuerEnvironment;
use super::file::{LoadedConfiguration, load_content};
use super::metrics::JwtMetrics;
use super::validate::validate_configuration;
use crate::anonymous::Anonymous;
use crate::options_error::OptionsError;
use apiserver_config::ConfigFile;
use apiserver_request::{Authenticator, AuthnError, Credentials, User};
use base_tls::{Followed, TlsError};
use parking_lot::Mutex;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Authenticates tokens of other issuers.
pub struct JwtTokens {
    issuers: CurrentIssuers,
    metrics: Arc<JwtMetrics>,
}

enum CurrentIssuers {
    Fixed(Box<IssuerSet>),
    Followed(Followed<Arc<IssuerSet>>),
}

impl JwtTokens {
    /// Creates the authenticator of the issuer of the flags `--oidc-*`.
    ///
    /// # Errors
    /// A setting that can't be used.
    pub fn from_flags(
        jwt: JwtConfig,
        algorithms: &[String],
        disallowed: &[String],
        environment: IssuerEnvironment,
    ) -> Result<Self, OptionsError> {
        let algorithms = parse_algorithms(algorithms)?;
        let config = AuthenticationConfiguration {
            jwt: vec![jwt],
            ..AuthenticationConfiguration::default()
        };
        let rules = validate_configuration(&config, disallowed).map_err(|errors| {
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            OptionsError::Conflict(format!("--oidc-*: {}", texts.join(", ")))
        })?;
        let environment = Arc::new(environment);
        let set = IssuerSet::new(rules, algorithms, &environment, None);
        Ok(JwtTokens {
            issuers: CurrentIssuers::Fixed(Box::new(set)),
            metrics: environment.metrics.clone(),
        })
    }

    /// Creates the authenticator of a configuration file, which was loaded before. Changes of the
    /// file are used at the next token, at the latest `interval` after the change. A change that
    /// can't be used is logged, and the former issuers stay in use.
    ///
    /// # Errors
    /// The file can't be used.
    pub fn from_file(
        path: &Path,
        loaded: LoadedConfiguration,
        disallowed: Vec<String>,
        environment: IssuerEnvironment,
        interval: Duration,
    ) -> Result<Self, OptionsError> {
        let metrics = environment.metrics.clone();
        let reload = Reload::new(path, loaded, disallowed, environment);
        let followed = Followed::load(vec![path.to_owned()], move |_| {
            // A request causes it, and compiling the rules of many issuers takes its time.
            base_task::blocking(|| reload.reload())
        })?;
        Ok(JwtTokens {
            issuers: CurrentIssuers::Followed(followed.check_every(interval)),
            metrics,
        })
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> &JwtMetrics {
        &self.metrics
    }

    async fn by_token(&self, token: &str) -> Result<Option<User>, AuthnError> {
        match &self.issuers {
            CurrentIssuers::Fixed(set) => set.authenticate(token).await,
            CurrentIssuers::Followed(followed) => followed.current().authenticate(token).await,
        }
    }
}

impl fmt::Debug for JwtTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JwtTokens")
    }
}

#[async_trait::async_trait]
impl Authenticator for JwtTokens {
    async fn authenticate(&self, credentials: &Credentials) -> Result<Option<User>, AuthnError> {
        match &credentials.bearer {
            Some(token) => self.by_token(token).await,
            None => Ok(None),
        }
    }
}

/// Loads the issuers after changes of the file.
struct Reload {
    path: PathBuf,
    disallowed: Vec<String>,
    environment: Arc<IssuerEnvironment>,
    last: Mutex<Last>,
}

/// The file, and the issuers in use.
struct Last {
    file: ConfigFile,
    anonymous: Option<Anonymous>,
    issuers: Arc<IssuerSet>,
}

impl Reload {
    fn new(
        path: &Path,
        loaded: LoadedConfiguration,
        disallowed: Vec<String>,
        environment: IssuerEnvironment,
    ) -> Self {
        let environment = Arc::new(environment);
        let set = IssuerSet::new(loaded.issuers, ALGORITHMS.to_vec(), &environment, None);
        let config = environment.metrics.config().clone();
        Reload {
            path: path.to_owned(),
            disallowed,
            last: Mutex::new(Last {
                file: ConfigFile::new(path.into(), loaded.content, "authentication", config),
                anonymous: loaded.anonymous,
                issuers: Arc::new(set),
            }),
            environment,
        }
    }

    /// Returns the issuers of the file, or the former ones if its content can't be used.
    ///
    /// # Errors
    /// The file can't be read. It has to be read again at the next check, even if it has not
    /// changed again: a removed issuer would stay trusted.
    fn reload(&self) -> Result<Arc<IssuerSet>, TlsError> {
        let last = &mut *self.last.lock();
        let anonymous = &last.anonymous;
        let load = |content: &[u8]| {
            let loaded = load_content(content.to_vec(), &self.disallowed)?;
            if loaded.anonymous != *anonymous {
                return Err(
                    "anonymous: Forbidden: changed from initial configuration file".to_owned(),
                );
            }
            Ok(loaded)
        };
        let loaded = last.file.load_changed(load);
        let loaded = loaded.map_err(|source| TlsError::Read {
            path: self.path.clone(),
            source,
        })?;
        if let Some(loaded) = loaded {
            let (former, algorithms) = (Some(&*last.issuers), ALGORITHMS.to_vec());
            let set = IssuerSet::new(loaded.issuers, algorithms, &self.environment, former);
            self.environment.metrics.forget_other_issuers(set.urls());
            last.issuers = Arc::new(set);
        }
        Ok(last.issuers.clone())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::environment::{FetchError, KeyFetcher};
    use super::*;
    use base_task::{CancellationToken, Tasks};
    use bytes::Bytes;

    struct NoFetcher;

    #[async_trait::async_trait]
    impl KeyFetcher for NoFetcher {
        async fn fetch(&self, _: &str, _: &str) -> Result<Bytes, FetchError> {
            Err(FetchError::Discovery("is missing"))
        }
    }

    /// An error is what makes the next check read a file again that looks the same.
    #[test]
    fn file_that_can_not_be_read_is_an_error_and_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let content = |claim: &str| {
            let config = serde_json::json!({"apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "AuthenticationConfiguration", "jwt": [{
                    "issuer": {"url": "https://issuer.example.com", "audiences": ["a"]},
                    "claimMappings": {"username": {"claim": claim, "prefix": ""}}}]});
            config.to_string().into_bytes()
        };
        let loaded = load_content(content("sub"), &[]).unwrap();
        let environment = IssuerEnvironment {
            fetcher: Arc::new(NoFetcher),
            tasks: Tasks::new(CancellationToken::new()),
            metrics: Arc::new(JwtMetrics::new("server")),
        };
        let reload = Reload::new(&path, loaded, Vec::new(), environment);
        let first = reload.last.lock().issuers.clone();
        for _ in 0..2 {
            assert!(matches!(reload.reload(), Err(TlsError::Read { .. })));
        }
        std::fs::write(&path, content("name")).unwrap();
        assert!(!Arc::ptr_eq(&reload.reload().unwrap(), &first));
    }
}
