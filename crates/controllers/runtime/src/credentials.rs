//! Identities of controllers: the process's own, or one service account each.
//!
//! With service accounts every controller has only the permissions of its bootstrap role. Tokens
//! are requested before the first write and again before they expire; all accounts share one
//! connection, which has no client certificate.

use std::time::{Duration, Instant};

use client::{Client, Config, Error, Source};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::sync::Mutex;

const NAMESPACE: &str = "kube-system";
// In seconds; upstream's controllers request an hour, too.
const LIFETIME: i64 = 3600;

/// The source of identities.
#[derive(Clone, Debug)]
pub struct Accounts {
    root: Client,
    anonymous: Option<Client>,
}

impl Accounts {
    /// Creates a source: with `separate` each controller gets its own service account, else the
    /// process's identity.
    pub fn new(root: Client, separate: bool) -> Self {
        let anonymous = separate.then(|| {
            let config = Config {
                // A client certificate is authenticated before a bearer token, so it would hide the
                // controller's own identity.
                identity: None,
                token: None,
                ..root.config().clone()
            };
            Client::new(config)
        });
        Self { root, anonymous }
    }

    /// Returns the identity of one controller.
    pub fn for_controller(&self, name: &str) -> Account {
        Account {
            name: name.to_owned(),
            accounts: self.clone(),
            held: Mutex::new(None),
        }
    }
}

/// One controller's identity.
#[derive(Debug)]
pub struct Account {
    name: String,
    accounts: Accounts,
    held: Mutex<Option<(Client, Instant)>>,
}

impl Account {
    /// Returns a client with this identity.
    pub async fn client(&self) -> Result<Client, Error> {
        // Without separate accounts every controller writes with the rights of the process.
        let Some(anonymous) = &self.accounts.anonymous else {
            return Ok(self.accounts.root.clone());
        };
        // Held across the request: parallel workers of one controller must not request a token
        // each.
        let mut held = self.held.lock().await;
        if let Some((client, until)) = held.as_ref()
            && Instant::now() < *until
        {
            return Ok(client.clone());
        }
        let token = self.fetch_token().await?;
        let client = anonymous.with_token(Source::Inline(token.into_bytes()));
        *held = Some((
            client.clone(),
            // Renewed at four fifths of its lifetime, so that no request is sent with a token that
            // expires on the way.
            Instant::now() + Duration::from_secs(LIFETIME.unsigned_abs() * 4 / 5),
        ));
        Ok(client)
    }

    /// Drops a token that was rejected.
    pub async fn forget_token(&self) {
        *self.held.lock().await = None;
    }

    async fn fetch_token(&self) -> Result<String, Error> {
        match self.request_token().await {
            // The service account is created on first use, as upstream: nothing else creates
            // accounts of controllers.
            Err(error) if error.is_not_found() => {
                self.create_account().await?;
                self.request_token().await
            }
            other => other,
        }
    }

    async fn request_token(&self) -> Result<String, Error> {
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                expiration_seconds: Some(LIFETIME),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let api = self.accounts.root.namespaced::<ServiceAccount>(NAMESPACE);
        let response: TokenRequest = api
            .subresource_create(&self.name, "token", &request)
            .await?;
        Ok(response.status.and_then(|s| s.token).unwrap_or_default())
    }

    async fn create_account(&self) -> Result<(), Error> {
        let account = ServiceAccount {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(NAMESPACE.to_owned()),
                ..ObjectMeta::default()
            },
            ..ServiceAccount::default()
        };
        match self
            .accounts
            .root
            .namespaced(NAMESPACE)
            .create(&account)
            .await
        {
            // The manager that led before may have created it between the two requests.
            Err(error) if !error.is_already_exists() => Err(error),
            _ => Ok(()),
        }
    }
}
