//! The issuers in use: those of the flags, or those of a file that is followed.

use super::authenticator::{ALGORITHMS, IssuerSet, parse_algorithms};
use super::config::{AuthenticationConfiguration, JwtConfig};
use super::environment::IssuerEnvironment;
use super::file::{LoadedConfiguration, load_content};
use super::metrics::JwtMetrics;
use super::validate::validate_configuration;
use crate::options_error::OptionsError;
use apiserver_request::{Authenticator, AuthnError, Credentials, User};
use base_tls::{Followed, TlsError, read_file};
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
        metrics.record_config(&loaded.content);
        let reload = Reload::new(loaded, disallowed, environment);
        let followed = Followed::load(vec![path.to_owned()], move |paths| {
            let path = paths.first().map(PathBuf::as_path);
            // A request causes it, and compiling the rules of many issuers takes its time.
            base_task::blocking(|| reload.reload(path.unwrap_or(Path::new(""))))
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
    disallowed: Vec<String>,
    environment: Arc<IssuerEnvironment>,
    last: Mutex<Last>,
}

/// The last content, whether usable or not, and the issuers in use.
struct Last {
    content: Vec<u8>,
    anonymous: Option<crate::anonymous::Anonymous>,
    issuers: Arc<IssuerSet>,
}

impl Reload {
    fn new(
        loaded: LoadedConfiguration,
        disallowed: Vec<String>,
        environment: IssuerEnvironment,
    ) -> Self {
        let environment = Arc::new(environment);
        let set = IssuerSet::new(loaded.issuers, ALGORITHMS.to_vec(), &environment, None);
        Reload {
            disallowed,
            environment,
            last: Mutex::new(Last {
                content: loaded.content,
                anonymous: loaded.anonymous,
                issuers: Arc::new(set),
            }),
        }
    }

    /// Returns the issuers of the file, or the former ones if it can't be used.
    ///
    /// # Errors
    /// The file can't be read, which the next check tries again.
    fn reload(&self, path: &Path) -> Result<Arc<IssuerSet>, TlsError> {
        let metrics = &self.environment.metrics;
        let content = read_file(path).inspect_err(|_| metrics.record_reload(false))?;
        let mut last = self.last.lock();
        if content == last.content {
            return Ok(last.issuers.clone());
        }
        // Recorded even if it can't be used: the same content is not tried again.
        last.content.clone_from(&content);
        let loaded = load_content(content, &self.disallowed).and_then(|loaded| {
            let is_same = loaded.anonymous == last.anonymous;
            is_same.then_some(loaded).ok_or_else(|| {
                "anonymous: Forbidden: changed from initial configuration file".to_owned()
            })
        });
        match loaded {
            Ok(loaded) => {
                let former = Some(&*last.issuers);
                let algorithms = ALGORITHMS.to_vec();
                let set = IssuerSet::new(loaded.issuers, algorithms, &self.environment, former);
                metrics.forget_other_issuers(set.urls());
                metrics.record_config(&loaded.content);
                metrics.record_reload(true);
                last.issuers = Arc::new(set);
                tracing::info!("reloaded the authentication configuration");
            }
            Err(why) => {
                metrics.record_reload(false);
                tracing::error!(
                    %why,
                    "the changed authentication configuration can't be used; the former one stays in use"
                );
            }
        }
        Ok(last.issuers.clone())
    }
}
