//! Verifies bearer tokens: signature, issuer, times, audience, bindings.

use super::claims::Claims;
use super::keys::{VerifyingKey, signing_key, verifying_keys};
use super::legacy::{self, LegacyUses, TokenMetrics};
use super::{ServiceAccounts, bindings, claims};
use crate::options_error::OptionsError;
use crate::secret;
use apiserver_config::ConfigFileError;
use apiserver_request::{
    Authenticator, AuthnError, Credentials, Objects, User, Warnings, annotate_audit,
};
use base_tls::{Followed, TlsError};
use jsonwebtoken::{Validation, decode, decode_header};
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

// Another API server may have issued the token by a clock that is ahead.
const LEEWAY: i64 = 60;
// Every mounted token is used often, and a signature costs far more than a lookup; the bound limits
// the memory.
const REMEMBERED: usize = 4096;
const LONGEST: usize = 64 * 1024;

/// Verifies ServiceAccount tokens.
pub struct AccountTokens {
    keys: Followed<Keys>,
    issuers: Vec<String>,
    audiences: Vec<String>,
    jwks_uri: String,
    objects: Arc<dyn Objects>,
    metrics: TokenMetrics,
    legacy_uses: LegacyUses,
}

/// The keys as loaded from their files. A reload starts with an empty cache of verified tokens,
/// because a key may have been removed.
pub(super) struct Keys {
    // Together with the results: replaced key files also forget the signatures of the old keys.
    pub all: Vec<VerifyingKey>,
    /// Claims of tokens with a verified signature, by digest. Times and bindings are checked at
    /// each use.
    signed: Mutex<HashMap<[u8; 32], Arc<Claims>>>,
}

impl Keys {
    fn read_verifying(paths: &[PathBuf]) -> Result<Self, OptionsError> {
        let mut all = Vec::new();
        for path in paths {
            all.extend(verifying_keys(path)?);
        }
        Ok(Keys {
            all,
            signed: Mutex::default(),
        })
    }

    fn read_signing(paths: &[PathBuf]) -> Result<Self, OptionsError> {
        let all = paths
            .iter()
            .map(|path| signing_key(path).map(|key| key.public))
            .collect::<Result<_, _>>()?;
        Ok(Keys {
            all,
            signed: Mutex::default(),
        })
    }

    fn verify_payload(&self, token: &str) -> Option<Value> {
        let header = decode_header(token).ok()?;
        let mut fitting: Vec<&VerifyingKey> = self
            .all
            .iter()
            // The header alone must not choose the algorithm, or a public key could be used as a
            // shared secret.
            .filter(|k| k.algorithm == header.alg)
            .collect();
        // A token without a known key id is tried with every key of its algorithm.
        if let Some(kid) = &header.kid
            && fitting.iter().any(|k| k.kid == *kid)
        {
            fitting.retain(|k| k.kid == *kid);
        }
        fitting.into_iter().find_map(|key| {
            let mut rules = Validation::new(key.algorithm);
            // jsonwebtoken verifies the signature only. Times and audiences follow Kubernetes'
            // rules below.
            rules.required_spec_claims = HashSet::new();
            (rules.validate_exp, rules.validate_nbf, rules.validate_aud) = (false, false, false);
            decode::<Value>(token, &key.key, &rules)
                .ok()
                .map(|data| data.claims)
        })
    }
}

impl AccountTokens {
    /// Loads the keys.
    pub fn new(options: &ServiceAccounts, objects: Arc<dyn Objects>) -> Result<Self, OptionsError> {
        let keys = match (options.key_files.as_slice(), &options.signing_key_file) {
            // Without key files the signing key verifies its own tokens.
            ([], Some(path)) => follow_objects(vec![path.clone()], Keys::read_signing)?,
            (paths, _) => follow_objects(paths.to_vec(), Keys::read_verifying)?,
        };
        // An empty issuer would match tokens that name none.
        if options.issuers.iter().all(String::is_empty) {
            return Err(OptionsError::Conflict(
                "--service-account-issuer is a required flag".into(),
            ));
        }
        Ok(AccountTokens {
            keys,
            issuers: options.issuers.clone(),
            audiences: options.api_audiences(),
            jwks_uri: options.jwks_uri.clone(),
            objects,
            metrics: TokenMetrics::default(),
            legacy_uses: LegacyUses::default(),
        })
    }

    /// Returns the user of a token for one of `audiences` (none: this server's), with the matching
    /// audiences. `None` if it is not a ServiceAccount token.
    pub async fn verify(
        &self,
        token: &str,
        audiences: &[String],
        warnings: &Warnings,
    ) -> Result<Option<(User, Vec<String>)>, String> {
        let Some(claims) = self.verified_claims(token)? else {
            return Ok(None);
        };
        let now = jiff::Timestamp::now();
        check_times(&claims, now.as_second())?;
        if claims.is_legacy() {
            self.metrics.count_legacy();
        }
        let wanted = if audiences.is_empty() {
            &self.audiences
        } else {
            audiences
        };
        // Legacy tokens name no audience and are valid for this server.
        let held = if claims.is_legacy() {
            &self.audiences
        } else {
            &claims.audiences
        };
        let fitting: Vec<String> = wanted
            .iter()
            // The response names the audiences that both sides accept, as a TokenReview must.
            .filter(|a| held.contains(a))
            .cloned()
            .collect();
        if fitting.is_empty() {
            return Err(format!(
                "token audiences {held:?} is invalid for the target audiences {wanted:?}"
            ));
        }
        let bound = bindings::check_bindings(&claims, token, &self.objects).await?;
        let user = claims.to_user();
        self.record_age(&claims, &user.name, now.as_second());
        if let (true, Some(secret)) = (claims.is_legacy(), &bound.secret) {
            let recorders = (&self.metrics, &self.legacy_uses);
            let parts = (&*claims, &*bound.account, &**secret);
            legacy::record_use(recorders, parts, warnings, now)?;
        }
        Ok(Some((user, fitting)))
    }

    /// Returns the counters of verified tokens.
    pub fn metrics(&self) -> &TokenMetrics {
        &self.metrics
    }

    /// Returns the Secrets whose tokens were used today for the first time.
    pub fn legacy_uses(&self) -> &LegacyUses {
        &self.legacy_uses
    }

    /// Counts a token, and records in the audit events that it should be replaced.
    fn record_age(&self, claims: &Claims, subject: &str, now: i64) {
        if claims.is_legacy() {
            annotate_audit("authentication.k8s.io/legacy-token", || subject.to_owned());
        }
        let Some(late) = claims.warn_after.map(|at| now - at) else {
            return;
        };
        self.metrics.count_age(late > 0);
        if late > 0 {
            annotate_audit("authentication.k8s.io/stale-token", || {
                format!("subject: {subject}, seconds after warning threshold: {late}")
            });
        }
    }

    fn verified_claims(&self, token: &str) -> Result<Option<Arc<Claims>>, String> {
        // Bounds the work that an unauthenticated client can cause.
        if token.len() > LONGEST || token.split('.').count() != 3 {
            return Ok(None);
        }
        let digest = secret::digest_secret(token.as_bytes());
        let keys = self.keys.current();
        // Only the signature is remembered. Times and bindings are checked again by the caller.
        if let Some(claims) = keys.signed.lock().get(&digest) {
            return Ok(Some(claims.clone()));
        }
        // The unverified issuer only selects the authenticator, as upstream does. The signature is
        // checked next.
        if !self.issuer_known(token) {
            return Ok(None);
        }
        let payload = keys
            .verify_payload(token)
            .ok_or_else(|| "the token's signature is not by a known key".to_owned())?;
        let claims = Claims::from_payload(&payload)
            .ok_or_else(|| "the token's claims are not those of an account".to_owned())?;
        let claims = Arc::new(claims);
        // Two requests may verify the same token at once; the second insert changes nothing.
        let mut signed = keys.signed.lock();
        // Clearing all is enough: entries come back at the next use, and no order has to be kept.
        if signed.len() >= REMEMBERED {
            signed.clear();
        }
        signed.insert(digest, claims.clone());
        Ok(Some(claims))
    }

    fn issuer_known(&self, token: &str) -> bool {
        let payload: Option<Value> = unverified_claims(token);
        let issuer = payload
            .as_ref()
            .and_then(|p| p.get("iss"))
            .and_then(Value::as_str)
            .unwrap_or_default();
        issuer == claims::LEGACY_ISSUER || self.issuers.iter().any(|i| i == issuer)
    }

    pub(super) fn discovery_parts(&self) -> (Arc<Keys>, &str, &str) {
        (
            self.keys.current(),
            self.issuers.first().map(String::as_str).unwrap_or_default(),
            &self.jwks_uri,
        )
    }
}

/// Loads keys now and after each change of their files.
pub(super) fn follow_objects<T: 'static>(
    paths: Vec<PathBuf>,
    read: fn(&[PathBuf]) -> Result<T, OptionsError>,
) -> Result<Followed<T>, OptionsError> {
    Ok(Followed::load(paths, move |paths| {
        read(paths).map_err(|error| match error {
            OptionsError::File(ConfigFileError::Read { path, source }) => {
                TlsError::Read { path, source }
            }
            error => TlsError::Refused(error.to_string()),
        })
    })?)
}

fn unverified_claims(token: &str) -> Option<Value> {
    use base64::Engine;
    let payload = token.split('.').nth(1)?;
    serde_json::from_slice(
        &base64::engine::general_purpose::URL_SAFE_NO_PAD
            .decode(payload)
            .ok()?,
    )
    .ok()
}

fn check_times(claims: &Claims, now: i64) -> Result<(), String> {
    if claims.expires.is_some_and(|at| at + LEEWAY < now)
        // Only tokens of Secrets may live forever; without this rule, a lost claim would make a
        // token permanent.
        || (claims.expires.is_none() && !claims.is_legacy())
    {
        return Err("service account token has expired".into());
    }
    if claims.not_before.is_some_and(|at| now + LEEWAY < at) {
        return Err("service account token is not valid yet".into());
    }
    Ok(())
}

#[async_trait::async_trait]
impl Authenticator for AccountTokens {
    async fn authenticate(&self, credentials: &Credentials) -> Result<Option<User>, AuthnError> {
        let Some(token) = &credentials.bearer else {
            return Ok(None);
        };
        match self.verify(token, &[], &credentials.warnings).await {
            Ok(found) => Ok(found.map(|(user, _)| user)),
            Err(why) => Err(AuthnError(why)),
        }
    }
}
