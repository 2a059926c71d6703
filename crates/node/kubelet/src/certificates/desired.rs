//! The certificate that a kubelet requests, and the object of its request.

use std::net::IpAddr;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest as Csr, CertificateSigningRequestSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData as _, SanType};
use sha2::{Digest, Sha256};

use super::error::CertificateError;

const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";
/// The group of all nodes.
pub(super) const NODES_GROUP: &str = "system:nodes";

/// The desired certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DesiredCertificate {
    /// Name of the node.
    pub(super) node: String,
    /// Addresses of the server; None for a client certificate.
    pub(super) addresses: Option<Vec<IpAddr>>,
}

impl DesiredCertificate {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use api_meta::CertificateRequest;

    fn client_certificate(node: &str) -> DesiredCertificate {
        DesiredCertificate {
            node: node.to_owned(),
            addresses: None,
        }
    }

    fn serving_certificate() -> DesiredCertificate {
        DesiredCertificate {
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
        let name =
            |desired: &DesiredCertificate, key| desired.to_object(key).unwrap().metadata.name;
        let desired = client_certificate("n1");
        assert_eq!(name(&desired, &one), name(&desired, &one));
        assert_ne!(name(&desired, &one), name(&desired, &other));
        assert_ne!(name(&desired, &one), name(&client_certificate("n2"), &one));
        assert_ne!(name(&desired, &one), name(&serving_certificate(), &one));
    }
}
