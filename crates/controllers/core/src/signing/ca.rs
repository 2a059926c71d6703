//! The CA that signs, and what it refuses to sign.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest as Csr;
use rcgen::{
    CertificateSigningRequestParams, DnType, DnValue, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SerialNumber,
};

use super::{KUBELET_CLIENT, KUBELET_SERVING};

/// Why a request is not signed.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// The CA's files can't be used.
    #[error("the signing CA can't be used: {0}")]
    Ca(#[source] rcgen::Error),
    /// The request can't be read or signed.
    #[error("the request can't be signed: {0}")]
    Request(#[source] rcgen::Error),
    /// The request is not what its signer signs.
    #[error("{0}")]
    Refused(&'static str),
}

/// A CA certificate with its key.
#[derive(Clone)]
pub struct Ca {
    issuer: Arc<Issuer<'static, KeyPair>>,
    longest: Duration,
}

impl std::fmt::Debug for Ca {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ca")
    }
}

impl Ca {
    /// Reads certificate and key, both PEM. Certificates live no longer than `longest`.
    ///
    /// # Errors
    /// Either can't be used.
    pub fn from_pem(certificate: &str, key: &str, longest: Duration) -> Result<Self, CaError> {
        let key = KeyPair::from_pem(key).map_err(CaError::Ca)?;
        let issuer = Issuer::from_ca_cert_pem(certificate, key).map_err(CaError::Ca)?;
        Ok(Self { issuer: Arc::new(issuer), longest })
    }

    /// Signs a request in PEM for the usages asked for.
    ///
    /// # Errors
    /// The request can't be read.
    pub fn sign(
        &self,
        request: &[u8],
        usages: &[String],
        wanted: Option<Duration>,
        now: Timestamp,
    ) -> Result<String, CaError> {
        let text = std::str::from_utf8(request).map_err(|_| CaError::Refused("the request is not PEM"))?;
        let mut csr = CertificateSigningRequestParams::from_pem(text).map_err(CaError::Request)?;
        let life =
            wanted.unwrap_or(self.longest).clamp(Duration::from_secs(600), self.longest.max(Duration::from_secs(600)));
        let second = now.as_second();
        let life = i64::try_from(life.as_secs()).unwrap_or(i64::MAX / 2);
        let at = |s: i64| {
            time::OffsetDateTime::from_unix_timestamp(s).map_err(|_| CaError::Refused("the time is out of range"))
        };
        csr.params.not_before = at(second - 300)?;
        csr.params.not_after = at(second.saturating_add(life))?;
        csr.params.is_ca = IsCa::NoCa;
        csr.params.serial_number = Some(SerialNumber::from_slice(uuid::Uuid::new_v4().as_bytes()));
        csr.params.key_usages = usages.iter().filter_map(|u| key_usage(u)).collect();
        csr.params.extended_key_usages = usages.iter().filter_map(|u| extended(u)).collect();
        csr.signed_by(&self.issuer).map(|c| c.pem()).map_err(CaError::Request)
    }
}

fn key_usage(name: &str) -> Option<KeyUsagePurpose> {
    Some(match name {
        "digital signature" | "signing" => KeyUsagePurpose::DigitalSignature,
        "key encipherment" => KeyUsagePurpose::KeyEncipherment,
        "key agreement" => KeyUsagePurpose::KeyAgreement,
        "content commitment" => KeyUsagePurpose::ContentCommitment,
        "data encipherment" => KeyUsagePurpose::DataEncipherment,
        _ => return None,
    })
}

fn extended(name: &str) -> Option<ExtendedKeyUsagePurpose> {
    Some(match name {
        "client auth" => ExtendedKeyUsagePurpose::ClientAuth,
        "server auth" => ExtendedKeyUsagePurpose::ServerAuth,
        _ => return None,
    })
}

/// Common name and organisations of a request.
fn subject(request: &[u8]) -> Option<(String, String)> {
    let text = std::str::from_utf8(request).ok()?;
    let csr = CertificateSigningRequestParams::from_pem(text).ok()?;
    let read = |kind: &DnType| match csr.params.distinguished_name.get(kind) {
        Some(DnValue::Utf8String(text)) => text.clone(),
        Some(DnValue::PrintableString(text)) => text.to_string(),
        _ => String::new(),
    };
    Some((read(&DnType::CommonName), read(&DnType::OrganizationName)))
}

/// The kubelet's name if the request is a kubelet's.
pub fn kubelet_of(request: &[u8]) -> Option<String> {
    let (name, organisation) = subject(request)?;
    (organisation == "system:nodes" && name.starts_with("system:node:")).then_some(name)
}

/// Whether the request is what its signer signs.
pub fn judge(csr: &Csr) -> Result<(), CaError> {
    let usages: Vec<_> = csr.spec.usages.iter().flatten().map(String::as_str).collect();
    let only = |allowed: &[&str]| usages.iter().all(|u| allowed.contains(u));
    let (needed, other) = match csr.spec.signer_name.as_str() {
        KUBELET_CLIENT => ("client auth", "server auth"),
        KUBELET_SERVING => ("server auth", "client auth"),
        _ => return Ok(()),
    };
    if !usages.contains(&needed) || usages.contains(&other) || !only(&["digital signature", "key encipherment", needed])
    {
        return Err(CaError::Refused("the usages are not those of the signer"));
    }
    let Some(name) = kubelet_of(&csr.spec.request.0) else {
        return Err(CaError::Refused("the subject is not a kubelet's"));
    };
    let serving = csr.spec.signer_name == KUBELET_SERVING;
    if serving && csr.spec.username.as_deref() != Some(&name) {
        return Err(CaError::Refused("the subject is not the one who asks"));
    }
    Ok(())
}
