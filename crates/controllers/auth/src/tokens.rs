//! Token Secrets: filled in for the ServiceAccount they name, deleted with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use base_tls::{Followed, TlsError};
use client::{Error, ListParams};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use serde_json::json;

use controllers_runtime::{Action, Cache, Drive, Executor, Meta, Queue, Setup, wake, watch_files};

pub(crate) const TYPE: &str = "kubernetes.io/service-account-token";
pub(crate) const NAME: &str = "kubernetes.io/service-account.name";
const UID: &str = "kubernetes.io/service-account.uid";
const ISSUER: &str = "kubernetes/serviceaccount";
const CONTROLLER: &str = "serviceaccount-token-controller";

/// The key that signs tokens.
#[derive(Clone)]
pub struct TokenKey {
    algorithm: Algorithm,
    key: EncodingKey,
}

impl std::fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenKey")
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

impl TokenKey {
    /// Loads the key of a file, now and after each change of it.
    ///
    /// # Errors
    /// The file can't be read, or has no RSA or P-256 private key. After the first load, such a
    /// file leaves the former key in use.
    pub fn follow_file(path: &Path) -> Result<Arc<Followed<Self>>, TlsError> {
        Followed::load(vec![path.to_owned()], Self::read_file).map(Arc::new)
    }

    fn read_file(paths: &[PathBuf]) -> Result<Self, TlsError> {
        let [path] = paths else {
            return Err(TlsError::Refused("one file expected".to_owned()));
        };
        Self::from_pem(&base_tls::read_file(path)?).map_err(|error| {
            let path = path.display();
            TlsError::Refused(format!("{path} holds no RSA or P-256 private key: {error}"))
        })
    }

    /// Loads an RSA or P-256 private key in PEM.
    ///
    /// # Errors
    /// The text is neither, or the key can't sign.
    pub fn from_pem(pem: &[u8]) -> Result<Self, jsonwebtoken::errors::Error> {
        let (algorithm, key) = match EncodingKey::from_rsa_pem(pem) {
            Ok(key) => (Algorithm::RS256, key),
            Err(_) => (Algorithm::ES256, EncodingKey::from_ec_pem(pem)?),
        };
        base_jwt::check_signing_key(&key, algorithm)?;
        Ok(Self { algorithm, key })
    }

    fn sign(&self, account: &ServiceAccount, secret: &Secret) -> Option<String> {
        // No `exp`: such a token is valid until its Secret or its account is deleted.
        let claims = json!({
            "iss": ISSUER,
            "sub": format!("system:serviceaccount:{}:{}", account.namespace(), account.name()),
            "kubernetes.io/serviceaccount/namespace": account.namespace(),
            "kubernetes.io/serviceaccount/secret.name": secret.name(),
            "kubernetes.io/serviceaccount/service-account.name": account.name(),
            "kubernetes.io/serviceaccount/service-account.uid": account.uid(),
        });
        jsonwebtoken::encode(&Header::new(self.algorithm), &claims, &self.key).ok()
    }
}

/// Returns the actions for one token Secret.
pub fn reconcile_secret(
    secret: &Secret,
    account: Option<&ServiceAccount>,
    key: &TokenKey,
    ca: Option<&str>,
) -> Vec<Action> {
    if secret.is_deleting() {
        return Vec::new();
    }
    // Tokens of a deleted account must not survive in a Secret that an account of the same name
    // would use.
    let Some(account) = account.filter(|a| is_for(secret, a)) else {
        return vec![Action::delete(secret)];
    };
    let mut fresh = secret.clone();
    let notes = fresh.metadata.annotations.get_or_insert_default();
    notes.insert(UID.to_owned(), account.uid().to_owned());
    let data = fresh.data.get_or_insert_default();
    // A token is signed once: a new one in every reconcile would change the Secret forever.
    if data.get("token").is_none_or(|t| t.0.is_empty()) {
        let Some(token) = key.sign(account, secret) else {
            return Vec::new();
        };
        data.insert("token".to_owned(), ByteString(token.into_bytes()));
    }
    data.insert(
        "namespace".to_owned(),
        ByteString(account.namespace().as_bytes().to_vec()),
    );
    if let Some(ca) = ca {
        data.insert("ca.crt".to_owned(), ByteString(ca.as_bytes().to_vec()));
    }
    if fresh == *secret {
        Vec::new()
    } else {
        vec![Action::update(&fresh)]
    }
}

struct Tokens {
    secrets: Cache<Secret>,
    accounts: Cache<ServiceAccount>,
    key: Arc<Followed<TokenKey>>,
    ca: Option<Arc<Followed<String>>>,
}

/// Sets up the token controller; it writes with the process's own identity, because the other
/// controllers' identities depend on it. A changed key signs new tokens only; changed CAs are
/// written into all token Secrets.
pub fn add_token_controller(
    setup: &mut Setup,
    key: Arc<Followed<TokenKey>>,
    ca: Option<Arc<Followed<String>>>,
    workers: usize,
) {
    let queue = Queue::new();
    let only = ListParams::default().with_fields(format!("type={TYPE}"));
    let secrets = setup
        .informers
        .for_selected::<Secret>(only)
        .index("account", |s| account_key(s).into_iter().collect());
    let secrets = secrets.on_event(wake::enqueue_object(&queue)).cache();
    let (waiting, known) = (queue.clone(), secrets.clone());
    let accounts = setup
        .informers
        .for_kind::<ServiceAccount>()
        .on_event(move |event| {
            let of: Vec<Arc<Secret>> = known.by_index("account", &event.object().key());
            of.iter().for_each(|s| waiting.add(s.key()));
        });
    let accounts = accounts.cache();
    // Tokens that exist stay valid until the former key is removed from the API servers.
    watch_files(&setup.tasks, CONTROLLER, &key, || {});
    if let Some(ca) = &ca {
        let (all, stale) = (secrets.clone(), queue.clone());
        watch_files(&setup.tasks, CONTROLLER, ca, move || {
            all.list().iter().for_each(|secret| stale.add(secret.key()));
        });
    }
    setup.add_driver_as_process(
        CONTROLLER,
        workers,
        queue,
        Tokens {
            secrets,
            accounts,
            key,
            ca,
        },
    );
}

fn account_key(secret: &Secret) -> Option<String> {
    Some(format!(
        "{}/{}",
        secret.namespace(),
        secret.annotation(NAME)?
    ))
}

#[async_trait]
impl Drive for Tokens {
    async fn reconcile(&self, key: &str, executor: &Executor) -> Result<Vec<Action>, Error> {
        let Some(secret) = self
            .secrets
            .get(key)
            // Another type's annotations have no meaning, and its Secret must never be deleted
            // here.
            .filter(|s| s.type_.as_deref() == Some(TYPE))
        else {
            return Ok(Vec::new());
        };
        let Some(name) = secret.annotation(NAME) else {
            return Ok(Vec::new());
        };
        let cached = self
            .accounts
            .get_by_name(secret.namespace(), name)
            .filter(|a| is_for(&secret, a));
        let account = match cached {
            Some(account) => Some(account),
            // The watches of Secrets and ServiceAccounts are not ordered: one request may have
            // created both.
            None => read_account(executor, secret.namespace(), name).await?,
        };
        // The watches of the files read them.
        let ca = self.ca.as_ref().map(|ca| ca.last_read());
        Ok(reconcile_secret(
            &secret,
            account.as_deref(),
            &self.key.last_read(),
            ca.as_deref().map(String::as_str),
        ))
    }
}

async fn read_account(
    executor: &Executor,
    namespace: &str,
    name: &str,
) -> Result<Option<Arc<ServiceAccount>>, Error> {
    let client = executor.client().await?;
    Ok(client
        .namespaced::<ServiceAccount>(namespace)
        .get_opt(name)
        .await?
        .map(Arc::new))
}

/// Returns whether the Secret belongs to this account and not to a deleted one of the same name.
pub(crate) fn is_for(secret: &Secret, account: &ServiceAccount) -> bool {
    secret
        .annotation(UID)
        .is_none_or(|uid| uid.is_empty() || uid == account.uid())
}

#[cfg(test)]
mod tests;
