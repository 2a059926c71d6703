//! Requests a certificate from the cluster, and waits until it is signed.

use std::time::Duration;

use base_cli::escape_controls;
use client::{Client, ListParams, WatchEvent};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest as Csr;
use rcgen::KeyPair;

use super::check::{check_certificate, check_request};
use super::desired::DesiredCertificate;
use super::error::CertificateError;
use super::store::PairStore;

/// Time after which the log names a request that is neither signed nor denied.
const SLOW_APPROVAL_WARNING_AFTER: Duration = Duration::from_secs(30);
const RETRY: Duration = Duration::from_secs(2);
/// 15 s, because a watch does not end when its token expires or is deleted; the next one is
/// rejected.
const WATCH_SECONDS: u32 = 15;

/// Requests a certificate for a new key, and makes the two the current pair. Waits without a limit:
/// approval may be manual.
///
/// # Errors
/// The request was rejected, denied, failed or deleted, or the pair can't be written.
pub(super) async fn obtain_pair(
    client: &Client,
    desired: &DesiredCertificate,
    store: &PairStore,
) -> Result<(), CertificateError> {
    let key = store.pending_key()?;
    match request_certificate(client, desired, &key).await {
        Ok(issued) => {
            store.save(&issued, &key.serialize_pem(), Timestamp::now())?;
            store.remove_pending_key()
        }
        // The name of the request follows from the key: with the same key, the next attempt would
        // find the same request.
        Err(error @ CertificateError::Unusable { .. }) => {
            store.remove_pending_key()?;
            Err(error)
        }
        Err(error) => Err(error),
    }
}

/// Requests a certificate for `key`; returns it in PEM once it is signed.
async fn request_certificate(
    client: &Client,
    desired: &DesiredCertificate,
    key: &KeyPair,
) -> Result<String, CertificateError> {
    let object = desired.to_object(key)?;
    let name = object.metadata.name.clone().unwrap_or_default();
    let unusable = |reason| CertificateError::Unusable {
        name: name.clone(),
        reason,
    };
    create_request(client, &object, &name).await?;
    let mut waiting = std::pin::pin!(wait_for_certificate(client, &name));
    let issued = match tokio::time::timeout(SLOW_APPROVAL_WARNING_AFTER, &mut waiting).await {
        Ok(done) => done?,
        Err(_) => {
            tracing::warn!(
                request = name,
                "the certificate request is not signed yet; see `kubectl get csr`, and approve it with `kubectl \
                 certificate approve`"
            );
            waiting.await?
        }
    };
    check_certificate(&issued, key, desired, Timestamp::now()).map_err(unusable)?;
    Ok(issued)
}

/// Creates a request, or checks the one that an earlier start created.
async fn create_request(client: &Client, object: &Csr, name: &str) -> Result<(), CertificateError> {
    let rejected = |what| move |source| CertificateError::Api { what, source };
    let api = client.api::<Csr>();
    match api.create(object).await {
        Ok(_) => {
            tracing::info!(request = name, "certificate requested");
            return Ok(());
        }
        Err(error) if error.is_already_exists() => {}
        Err(error) => return Err(rejected("requesting a certificate")(error)),
    }
    let found = api.get(name).await;
    let found = found.map_err(rejected("reading a certificate request"))?;
    check_request(&found, object).map_err(|reason| CertificateError::Unusable {
        name: name.to_owned(),
        reason,
    })?;
    tracing::info!(
        request = name,
        "waiting for the certificate requested before"
    );
    Ok(())
}

/// State of a request.
#[derive(Debug, PartialEq, Eq)]
enum RequestState {
    Pending,
    Issued(String),
    NotGranted(String),
}

fn read_state(csr: &Csr) -> RequestState {
    let status = csr.status.clone().unwrap_or_default();
    let rejected = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| matches!(condition.type_.as_str(), "Denied" | "Failed"));
    if let Some(condition) = rejected {
        let message = escape_controls(condition.message.as_deref().unwrap_or_default());
        return RequestState::NotGranted(format!("{}: {message}", condition.type_));
    }
    let certificate = status.certificate.map(|certificate| certificate.0);
    match certificate.and_then(|bytes| String::from_utf8(bytes).ok()) {
        Some(pem) if !pem.is_empty() => RequestState::Issued(pem),
        _ => RequestState::Pending,
    }
}

async fn wait_for_certificate(client: &Client, name: &str) -> Result<String, CertificateError> {
    let mut is_first_failure = true;
    loop {
        match follow_request(client, name).await {
            Ok(Some(RequestState::Issued(pem))) => return Ok(pem),
            Ok(Some(RequestState::NotGranted(reason))) => {
                return Err(CertificateError::NotGranted {
                    name: name.to_owned(),
                    reason,
                });
            }
            Ok(Some(RequestState::Pending)) => {}
            Ok(None) => return Err(CertificateError::Deleted(name.to_owned())),
            // The API server may be restarted meanwhile.
            Err(error) if is_transient(&error) => {
                if std::mem::take(&mut is_first_failure) {
                    tracing::warn!(%error, request = name, "watching the certificate request again");
                } else {
                    tracing::debug!(%error, request = name, "watching the certificate request again");
                }
            }
            // The token may have expired or been deleted meanwhile.
            Err(source) => {
                return Err(CertificateError::Api {
                    what: "waiting for a certificate",
                    source,
                });
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Returns whether the same request may succeed later.
fn is_transient(error: &client::Error) -> bool {
    error.is_unavailable() || error.is_expired()
}

/// Follows a request until it is decided or the watch ends; None if it does not exist.
async fn follow_request(client: &Client, name: &str) -> client::Result<Option<RequestState>> {
    let api = client.api::<Csr>();
    let which = ListParams::new().with_fields(format!("metadata.name={name}"));
    let list = api.list(&which).await?;
    let Some(state) = list.items.first().map(read_state) else {
        return Ok(None);
    };
    if state != RequestState::Pending {
        return Ok(Some(state));
    }
    let version = list.metadata.resource_version.unwrap_or_default();
    let mut watch = api.watch(&which, &version, WATCH_SECONDS).await?;
    while let Some(event) = watch.next().await {
        match event? {
            WatchEvent::Added(csr) | WatchEvent::Modified(csr) => match read_state(&csr) {
                RequestState::Pending => {}
                state => return Ok(Some(state)),
            },
            WatchEvent::Deleted(_) => return Ok(None),
            _ => {}
        }
    }
    Ok(Some(RequestState::Pending))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn request_is_pending_until_it_has_a_certificate_or_is_denied() {
        let pending = || RequestState::Pending;
        let rejected = |text: &str| RequestState::NotGranted(text.to_owned());
        let condition = |kind: &str| json!([{"type": kind, "status": "True", "message": "m"}]);
        let cases: [(Value, RequestState); 6] = [
            (json!({}), pending()),
            (json!({"conditions": condition("Approved")}), pending()),
            (json!({"certificate": ""}), pending()),
            (
                json!({"certificate": "UEVN", "conditions": condition("Approved")}),
                RequestState::Issued("PEM".to_owned()),
            ),
            (
                json!({"conditions": condition("Denied")}),
                rejected("Denied: m"),
            ),
            (
                json!({"certificate": "UEVN", "conditions": condition("Failed")}),
                rejected("Failed: m"),
            ),
        ];
        for (status, expected) in cases {
            let csr = json!({"metadata": {"name": "c"}, "status": status.clone(),
                "spec": {"request": "", "signerName": "s"}});
            let csr: Csr = serde_json::from_value(csr).unwrap();
            assert_eq!(read_state(&csr), expected, "{status}");
        }
    }
}
