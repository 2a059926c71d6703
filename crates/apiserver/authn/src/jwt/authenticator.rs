//! Authenticates the tokens of configured issuers.

use super::environment::IssuerEnvironment;
use super::keys::{KeyCache, KnownKeys};
use super::mapping::map_claims;
use super::rules::IssuerRules;
use crate::options_error::OptionsError;
use apiserver_request::{AuthnError, User};
use base_jwt::{PublicKey, UnverifiedToken};
use jsonwebtoken::Algorithm;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// Algorithms of a configuration file: upstream's, without ES512, which ring does not have.
pub const ALGORITHMS: [Algorithm; 8] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];
/// Tokens of this issuer may name it without a scheme (OpenID Connect Core 1.0, section 15.6.2).
const GOOGLE: (&str, &str) = ("accounts.google.com", "https://accounts.google.com");

/// Returns the algorithms with these names.
///
/// # Errors
/// A name that is unknown or not allowed.
pub fn parse_algorithms(names: &[String]) -> Result<Vec<Algorithm>, OptionsError> {
    let parse = |name: &String| {
        let found = name.parse().ok();
        found
            .filter(|algorithm| ALGORITHMS.contains(algorithm))
            .ok_or_else(|| {
                let why = format!("--oidc-signing-algs: {name:?} is not supported");
                OptionsError::Conflict(why)
            })
    };
    names.iter().map(parse).collect()
}

/// An issuer with its keys.
struct JwtIssuer {
    rules: IssuerRules,
    keys: Arc<KeyCache>,
}

/// The issuers of a configuration.
pub struct IssuerSet {
    by_url: HashMap<String, JwtIssuer>,
    algorithms: Vec<Algorithm>,
    environment: Arc<IssuerEnvironment>,
}

impl IssuerSet {
    /// Creates issuers without keys. Keys of issuers that `former` has too remain.
    pub fn new(
        rules: Vec<IssuerRules>,
        algorithms: Vec<Algorithm>,
        environment: &Arc<IssuerEnvironment>,
        former: Option<&IssuerSet>,
    ) -> Self {
        let find_keys = |rules: &IssuerRules| {
            let former = former?.by_url.get(&rules.issuer.url)?;
            (*former.keys.issuer() == rules.issuer).then(|| former.keys.clone())
        };
        let create = |rules: IssuerRules| {
            let keys = find_keys(&rules)
                .unwrap_or_else(|| KeyCache::new(rules.issuer.clone(), environment.clone()));
            (rules.issuer.url.clone(), JwtIssuer { rules, keys })
        };
        IssuerSet {
            by_url: rules.into_iter().map(create).collect(),
            algorithms,
            environment: environment.clone(),
        }
    }

    /// Returns the URLs of the issuers.
    pub fn urls(&self) -> impl Iterator<Item = &str> {
        self.by_url.keys().map(String::as_str)
    }

    /// Returns the user of a token; `None` if it is of no configured issuer.
    ///
    /// # Errors
    /// The token is refused, or the issuer's keys could not be fetched.
    pub async fn authenticate(&self, token: &str) -> Result<Option<User>, AuthnError> {
        let Some(token) = UnverifiedToken::parse(token) else {
            return Ok(None);
        };
        let named = token.issuer().unwrap_or_default();
        let url = if named == GOOGLE.0 { GOOGLE.1 } else { named };
        let Some(issuer) = self.by_url.get(url) else {
            return Ok(None);
        };
        let begun = Instant::now();
        let done = self.verify(issuer, &token).await;
        let metrics = &self.environment.metrics;
        metrics.record_latency(url, done.is_ok(), begun.elapsed());
        done.map(Some)
            .map_err(|why| AuthnError(format!("oidc: issuer {url:?}: {why}")))
    }

    /// Returns the claims of a token that one of the keys has signed.
    fn verify_signature(
        &self,
        token: &UnverifiedToken<'_>,
        keys: Option<&Vec<PublicKey>>,
    ) -> Result<Map<String, Value>, String> {
        let keys = keys.ok_or_else(|| "authenticator not initialized".to_owned())?;
        // Each of the keys takes up to a millisecond.
        base_task::blocking(|| token.verify(keys, &self.algorithms).cloned())
            .map_err(|error| error.to_string())
    }

    async fn verify(
        &self,
        issuer: &JwtIssuer,
        token: &UnverifiedToken<'_>,
    ) -> Result<User, String> {
        let (fetches, keys) = issuer.keys.current();
        let mut verified = self.verify_signature(token, keys.as_deref());
        if verified.is_err() && token.has_accepted_header(&self.algorithms) {
            // The keys may be unknown or rotated.
            let fetched = issuer.keys.refresh(fetches).await;
            if !is_same(&keys, &fetched) {
                verified = self.verify_signature(token, fetched.as_deref());
            }
        }
        let claims = verified?;
        let now = jiff::Timestamp::now().as_second();
        // Expressions take up to 0.1 s each.
        base_task::blocking(|| map_claims(&issuer.rules, &claims, now))
            .map_err(|error| error.to_string())
    }
}

fn is_same(former: &KnownKeys, latter: &KnownKeys) -> bool {
    match (former, latter) {
        (Some(former), Some(latter)) => Arc::ptr_eq(former, latter),
        (former, latter) => former.is_none() && latter.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_asymmetric_algorithms_are_accepted() {
        for (name, is_valid) in [
            ("RS256", true),
            ("PS512", true),
            ("ES384", true),
            ("ES512", false),
            ("EdDSA", false),
            ("HS256", false),
            ("none", false),
            ("", false),
        ] {
            let parsed = parse_algorithms(&[name.to_owned()]);
            assert_eq!(parsed.is_ok(), is_valid, "{name}");
        }
    }
}
