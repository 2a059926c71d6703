//! Requests a certificate from the cluster, and waits until it is signed.

use std::net::IpAddr;
use std::time::Duration;

use api_meta::text::escape_controls;
use client::{Client, ListParams, WatchEvent};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest as Csr, CertificateSigningRequestSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData as _, SanType};
use sha2::{Digest, Sha256};

use super::check::{check_certificate, check_request};
use super::error::CertificateError;
use super::store::PairStore;

const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";
/// The group of all nodes.
pub(super) const NODES_GROUP: &str = "system:nodes";
/// Time after which the log names a request that nothing has decided.
const SLOW_APPROVAL_WARNING_AFTER: Duration = Duration::from_secs(30);
const RETRY: Duration = Duration::from_secs(2);
/// Short: a token that expires or is deleted ends no watch, and is noticed by the next one.
const WATCH_SECONDS: u32 = 15;

/// The desired certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Desired {
    /// Name of the node.
    pub(super) node: String,
    /// Addresses of the server; None for a client certificate.
    pub(super) addresses: Option<Vec<IpAddr>>,
}

impl Desired {
    fn signer(&self) -> &'static str {
        match self.addresses {
            None => CLIENT_SIGNER,
            Some(_) => SERVING_SIGNER,
        }
    }

    fn usages(&self) -> Vec<String> {
        let purpose = match self.addresses {
            None => "client auth",
            Some(_) => "server auth",
        };
        // Enough for ECDSA; "key encipherment" is for RSA.
        ["digital signature", purpose].map(str::to_owned).into()
    }

    /// Returns the user name of the node.
    pub(super) fn user(&self) -> String {
        format!("system:node:{}", self.node)
    }

    /// Returns the request in PEM.
    fn to_pem(&self, key: &KeyPair) -> Result<String, CertificateError> {
        let mut params = CertificateParams::default();
        if let Some(addresses) = &self.addresses {
            let name = self.node.clone().try_into()?;
            params.subject_alt_names.push(SanType::DnsName(name));
            let addresses = addresses.iter().map(|address| SanType::IpAddress(*address));
            params.subject_alt_names.extend(addresses);
        }
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationName, NODES_GROUP);
        params
            .distinguished_name
            .push(DnType::CommonName, self.user());
        Ok(params.serialize_request(key)?.pem()?)
    }

    /// Returns the object to create. Its name is the same for the same key and subject: a restarted
    /// kubelet finds the request that it made before.
    pub(super) fn to_object(&self, key: &KeyPair) -> Result<Csr, CertificateError> {
        let mut hash = Sha256::new();
        hash.update(key.subject_public_key_info());
        // Separated by a byte that no part contains.
        hash.update(format!("\0{}\0{:?}", self.node, self.addresses));
        let digest = hash.finalize();
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let prefix = match self.addresses {
            None => "node-csr",
            Some(_) => "node-serving-csr",
        };
        Ok(Csr {
            metadata: ObjectMeta {
                name: Some(format!("{prefix}-{digest}")),
                ..ObjectMeta::default()
            },
            spec: CertificateSigningRequestSpec {
                request: ByteString(self.to_pem(key)?.into_bytes()),
                signer_name: self.signer().to_owned(),
                usages: Some(self.usages()),
                ..CertificateSigningRequestSpec::default()
            },
            ..Csr::default()
        })
    }
}

/// Requests a certificate for a new key, and makes the two the current pair. Waits without a limit:
/// approval may be manual.
///
/// # Errors
/// The request was rejected, denied, failed or deleted, or the pair can't be written.
pub(super) async fn obtain_pair(
    client: &Client,
    desired: &Desired,
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
    desired: &Desired,
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

fn request_state(csr: &Csr) -> RequestState {
    let status = csr.status.clone().unwrap_or_default();
    let refused = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| matches!(condition.type_.as_str(), "Denied" | "Failed"));
    if let Some(condition) = refused {
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
    let Some(state) = list.items.first().map(request_state) else {
        return Ok(None);
    };
    if state != RequestState::Pending {
        return Ok(Some(state));
    }
    let version = list.metadata.resource_version.unwrap_or_default();
    let mut watch = api.watch(&which, &version, WATCH_SECONDS).await?;
    while let Some(event) = watch.next().await {
        match event? {
            WatchEvent::Added(csr) | WatchEvent::Modified(csr) => match request_state(&csr) {
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
    use api_meta::certificate_request::CertificateRequest;
    use serde_json::{Value, json};

    fn client_certificate(node: &str) -> Desired {
        Desired {
            node: node.to_owned(),
            addresses: None,
        }
    }

    fn serving_certificate() -> Desired {
        Desired {
            node: "n1".to_owned(),
            addresses: Some(vec!["192.0.2.2".parse().unwrap()]),
        }
    }

    /// The rules are those of the signers, which the API server enforces.
    #[test]
    fn requests_obey_the_rules_of_their_signers() {
        let key = KeyPair::generate().unwrap();
        for desired in [client_certificate("n1"), serving_certificate()] {
            let object = desired.to_object(&key).unwrap();
            let request = CertificateRequest::from_pem(&object.spec.request.0).unwrap();
            request.verify_signature().unwrap();
            let usages = object.spec.usages.unwrap();
            let usages: Vec<_> = usages.iter().map(String::as_str).collect();
            match desired.addresses {
                None => request.check_kubelet_client(&usages).unwrap(),
                Some(_) => request.check_kubelet_serving(&usages).unwrap(),
            }
        }
    }

    #[test]
    fn request_is_named_by_its_key_and_subject() {
        let (one, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let name = |desired: &Desired, key| desired.to_object(key).unwrap().metadata.name;
        let desired = client_certificate("n1");
        assert_eq!(name(&desired, &one), name(&desired, &one));
        assert_ne!(name(&desired, &one), name(&desired, &other));
        assert_ne!(name(&desired, &one), name(&client_certificate("n2"), &one));
        assert_ne!(name(&desired, &one), name(&serving_certificate(), &one));
    }

    #[test]
    fn request_is_pending_until_it_has_a_certificate_or_is_refused() {
        let pending = || RequestState::Pending;
        let refused = |text: &str| RequestState::NotGranted(text.to_owned());
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
                refused("Denied: m"),
            ),
            (
                json!({"certificate": "UEVN", "conditions": condition("Failed")}),
                refused("Failed: m"),
            ),
        ];
        for (status, expected) in cases {
            let csr = json!({"metadata": {"name": "c"}, "status": status.clone(),
                "spec": {"request": "", "signerName": "s"}});
            let csr: Csr = serde_json::from_value(csr).unwrap();
            assert_eq!(request_state(&csr), expected, "{status}");
        }
    }
}
