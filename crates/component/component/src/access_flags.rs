//! Flags of delegated authentication and authorization.

use std::path::PathBuf;
use std::time::Duration;

use base_duration::parse_unsigned;
use clap::Args;
use client::{Client, Config};

use crate::delegated::{AnswerLifetimes, DelegatedAccess};

/// Flags of the access to a component's own server.
#[derive(Clone, Debug, Args)]
pub struct AccessFlags {
    /// Kubeconfig for TokenReviews of metrics readers; default is --kubeconfig
    #[arg(long, value_name = "FILE")]
    pub authentication_kubeconfig: Option<PathBuf>,
    /// Kubeconfig for SubjectAccessReviews of metrics readers; default is --kubeconfig
    #[arg(long, value_name = "FILE")]
    pub authorization_kubeconfig: Option<PathBuf>,
    /// Time for which the user of a token is cached
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_unsigned)]
    pub authentication_token_webhook_cache_ttl: Duration,
    /// Time for which a permission is cached
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_unsigned)]
    pub authorization_webhook_cache_authorized_ttl: Duration,
    /// Time for which a denial is cached
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_unsigned)]
    pub authorization_webhook_cache_unauthorized_ttl: Duration,
    /// Paths that need no authorization; a trailing '*' matches any rest
    #[arg(
        long,
        value_name = "PATHS",
        value_delimiter = ',',
        default_value = "/healthz,/readyz,/livez"
    )]
    pub authorization_always_allow_paths: Vec<String>,
}

impl AccessFlags {
    /// Returns the access check. Without a kubeconfig of their own, reviews go through `own`, the
    /// component's client.
    ///
    /// # Errors
    /// A kubeconfig can't be used.
    pub fn build_access(&self, own: &Client, user_agent: &str) -> client::Result<DelegatedAccess> {
        // Installers give a kubeconfig of its own for reviews, usually the same file.
        let connect = |kubeconfig: &Option<PathBuf>| match kubeconfig {
            Some(path) => {
                let config = Config::from_kubeconfig_or_in_cluster(Some(path))?;
                Ok(Client::new(config.user_agent(user_agent)))
            }
            None => client::Result::Ok(own.clone()),
        };
        let lifetimes = AnswerLifetimes {
            tokens: self.authentication_token_webhook_cache_ttl,
            authorized: self.authorization_webhook_cache_authorized_ttl,
            unauthorized: self.authorization_webhook_cache_unauthorized_ttl,
        };
        let authentication = connect(&self.authentication_kubeconfig)?;
        let authorization = connect(&self.authorization_kubeconfig)?;
        Ok(DelegatedAccess::new(
            authentication,
            authorization,
            lifetimes,
        ))
    }
}
