//! The token subresource of ServiceAccounts: turns a TokenRequest into a signed token.

use super::ServiceAccounts;
use super::claims::{Claims, Reference};
use super::keys::{SigningKey, signing_key};
use super::verify::follow_objects;
use crate::options_error::OptionsError;
use api_meta::status::Cause;
use api_meta::{ApiError, Meta, time};
use apiserver_request::{GroupResource, Objects, annotate_audit};
use base_tls::Followed;
use jsonwebtoken::{Header, encode};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;

const GROUP: &str = "authentication.k8s.io";
const DEFAULT_SECONDS: i64 = 3600;
// A kubelet renews a token at 80 % of its life; a shorter one would expire when a renewal is
// retried.
const SHORTEST: i64 = 600;
const LONGEST: i64 = 1 << 32;
/// The lifetime that mounted tokens request, and the extended one.
const MOUNTED_SECONDS: i64 = 3607;
// Old clients read the token file once. A year covers the life of their pods, and `warn_after`
// shows which ones they are.
const EXTENDED_SECONDS: i64 = 365 * 24 * 3600;

/// Signs ServiceAccount tokens.
pub struct TokenIssuer {
    issuer: String,
    audiences: Vec<String>,
    key: Followed<SigningKey>,
    extend: bool,
    longest: Option<i64>,
    objects: Arc<dyn Objects>,
}

impl TokenIssuer {
    /// Loads the signing key; returns None if none is configured.
    pub fn new(
        options: &ServiceAccounts,
        objects: Arc<dyn Objects>,
    ) -> Result<Option<Self>, OptionsError> {
        let Some(path) = &options.signing_key_file else {
            return Ok(None);
        };
        Ok(Some(TokenIssuer {
            // Only the first issuer signs. The others stay accepted while an issuer is replaced.
            issuer: options.issuers.first().cloned().unwrap_or_default(),
            audiences: options.api_audiences(),
            key: follow_objects(vec![path.clone()], read_key)?,
            extend: options.extend_expiration,
            longest: options.max_expiration_seconds,
            objects,
        }))
    }

    /// Handles a TokenRequest for the stored `account`: returns the request with its defaults and
    /// the token in `status`.
    pub async fn issue(&self, account: &Value, mut request: Value) -> Result<Value, ApiError> {
        let seconds = request["spec"]["expirationSeconds"]
            .as_i64()
            .unwrap_or(DEFAULT_SECONDS);
        check_seconds(seconds)?;
        // Shortened instead of rejected: clients learn the real expiration from the response.
        let seconds = self.limit_lifetime(seconds);
        if request["spec"]["audiences"]
            .as_array()
            .is_none_or(Vec::is_empty)
        {
            request["spec"]["audiences"] = json!(self.audiences);
        }
        request["spec"]["expirationSeconds"] = seconds.into();
        let now = jiff::Timestamp::now();
        let mut claims = self.build_claims(account, &request["spec"], now.as_second(), seconds);
        self.bind_object(account, &request["spec"]["boundObjectRef"], &mut claims)
            .await?;
        let token = self.sign_claims(&claims)?;
        annotate_audit("authentication.kubernetes.io/issued-credential-id", || {
            format!("JTI={}", claims.id)
        });
        let expires = now
            .checked_add(jiff::SignedDuration::from_secs(seconds))
            .unwrap_or(now);
        request["apiVersion"] = "authentication.k8s.io/v1".into();
        request["kind"] = "TokenRequest".into();
        request["metadata"] = json!({"name": account.name(), "namespace": account.namespace()});
        request["metadata"]["creationTimestamp"] = time::format(now).into();
        request["status"] = json!({"token": token, "expirationTimestamp": time::format(expires)});
        Ok(request)
    }

    fn build_claims(&self, account: &Value, spec: &Value, now: i64, seconds: i64) -> Claims {
        let audiences = spec["audiences"].as_array().into_iter().flatten();
        let audiences: Vec<String> = audiences
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        // Exactly the request that a kubelet makes for a mounted token; other lifetimes are meant
        // as they are.
        let mounted = self.extend
            && seconds == MOUNTED_SECONDS
            && spec["boundObjectRef"]["kind"] == "Pod"
            && audiences == self.audiences;
        let lifetime = if mounted {
            self.limit_lifetime(EXTENDED_SECONDS)
        } else {
            seconds
        };
        Claims {
            issuer: self.issuer.clone(),
            audiences,
            expires: Some(now + lifetime),
            not_before: Some(now),
            issued: now,
            id: uuid::Uuid::new_v4().to_string(),
            namespace: account.namespace().to_owned(),
            account: Reference {
                name: account.name().to_owned(),
                uid: account.uid().to_owned(),
            },
            warn_after: mounted.then_some(now + seconds),
            ..Claims::default()
        }
    }

    /// Applies the operator's limit, also to extended lifetimes.
    fn limit_lifetime(&self, seconds: i64) -> i64 {
        self.longest.map_or(seconds, |longest| seconds.min(longest))
    }

    async fn bind_object(
        &self,
        account: &Value,
        reference: &Value,
        claims: &mut Claims,
    ) -> Result<(), ApiError> {
        // A token without a bound object is valid until it expires or its account is deleted.
        if !reference.is_object() {
            return Ok(());
        }
        let text = |f: &str| reference[f].as_str().unwrap_or_default();
        let (kind, name) = (text("kind"), text("name"));
        let (resource, namespace) = locate_bound_object(account, kind)?;
        // Read from the store: the cache may still have an object that was deleted and created
        // again.
        let found = self
            .objects
            .read_live(&GroupResource::new("", resource), namespace, name)
            .await?;
        let found = found.ok_or_else(|| ApiError::not_found("", resource, name))?;
        // The client refers to an earlier object of this name.
        if !text("uid").is_empty() && text("uid") != found.uid() {
            let why = format!(
                "the UID in the bound object reference ({}) does not match the UID in record. The object might have been deleted and then recreated",
                text("uid")
            );
            return Err(ApiError::conflict("", resource, name, &why));
        }
        let bound = Some(Reference {
            name: name.to_owned(),
            uid: found.uid().to_owned(),
        });
        match kind {
            "Secret" => claims.secret = bound,
            "Node" => claims.node = bound,
            _ => {
                check_pod_account(account, &found)?;
                claims.pod = bound;
                // A token of a pod names the node for audit. The cached Node may be missing, so the
                // uid may be empty.
                claims.node = self.node_of(&found);
            }
        }
        Ok(())
    }

    fn node_of(&self, pod: &Value) -> Option<Reference> {
        let name = pod["spec"]["nodeName"].as_str().filter(|n| !n.is_empty())?;
        let node = self
            .objects
            .cached_object(&GroupResource::new("", "nodes"), "", name);
        Some(Reference {
            name: name.to_owned(),
            uid: node.map(|n| n.uid().to_owned()).unwrap_or_default(),
        })
    }

    fn sign_claims(&self, claims: &Claims) -> Result<String, ApiError> {
        // The key file may have been replaced since the last token, without a restart.
        let key = self.key.current();
        let mut header = Header::new(key.public.algorithm);
        // Upstream's tokens have no typ.
        header.typ = None;
        header.kid = Some(key.public.kid.clone());
        encode(&header, &claims.to_payload(), &key.key)
            .map_err(|_| ApiError::internal("failed to generate token"))
    }
}

/// Returns the resource and the namespace of the bound object of this kind.
fn locate_bound_object<'a>(
    account: &'a Value,
    kind: &str,
) -> Result<(&'static str, &'a str), ApiError> {
    match kind {
        "Pod" => Ok(("pods", account.namespace())),
        // Only in the account's namespace: a token must not depend on objects that its users
        // cannot see.
        "Secret" => Ok(("secrets", account.namespace())),
        "Node" => Ok(("nodes", "")),
        _ => Err(ApiError::bad_request(format!(
            "cannot bind token for serviceaccount {:?} to an unknown object of kind {kind:?}",
            account.name()
        ))),
    }
}

/// Checks that a pod runs as the account. Otherwise an account could issue tokens that name another
/// account's pod.
fn check_pod_account(account: &Value, pod: &Value) -> Result<(), ApiError> {
    let own = pod["spec"]["serviceAccountName"]
        .as_str()
        .unwrap_or_default();
    if own == account.name() {
        return Ok(());
    }
    Err(ApiError::bad_request(format!(
        "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
        account.name()
    )))
}

fn read_key(paths: &[PathBuf]) -> Result<SigningKey, OptionsError> {
    match paths {
        [path] => Ok(signing_key(path)?),
        _ => Err(OptionsError::Conflict(
            "one signing key file expected".into(),
        )),
    }
}

fn check_seconds(seconds: i64) -> Result<(), ApiError> {
    let why = if seconds < SHORTEST {
        "may not specify a duration less than 10 minutes"
    } else if seconds > LONGEST {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        return Ok(());
    };
    let cause = Cause {
        reason: "FieldValueInvalid".into(),
        message: format!("Invalid value: {seconds}: {why}"),
        field: "spec.expirationSeconds".into(),
    };
    Err(ApiError::invalid(GROUP, "TokenRequest", "", vec![cause]))
}
