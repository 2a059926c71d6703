//! The CA, and the rules for requests that it signs.
//!
//! Subject and public key are copied from the request into the certificate byte for byte: the
//! approved subject is signed as it is, with all values in their order. The library can't express
//! every subject, so it creates a certificate with placeholders, which are replaced before the CA
//! signs.

use std::sync::Arc;
use std::time::Duration;

use api_meta::certificate_request::{CertificateRequest, RequestError, check_client_usages};
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest as Csr;
use rcgen::{CertificateParams, IsCa, Issuer, KeyPair, SanType, SerialNumber, SigningKey};
use x509_parser::error::{PEMError, X509Error};

use super::{CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY, usages};

/// Seconds by which notBefore lies in the past, because clocks of machines differ.
const BACKDATE: i64 = 5 * 60;
/// Up to this lifetime a certificate gets its full lifetime; a longer one is shortened by the
/// backdate.
const SHORT: i64 = 8 * 3600;
/// Minimum lifetime of a certificate in seconds.
const SHORTEST: i64 = 10 * 60;
/// Positions of fields in a TBSCertificate (RFC 5280, 4.1).
const ISSUER: usize = 3;
const SUBJECT: usize = 5;
const PUBLIC_KEY: usize = 6;

/// The reason why a request is not signed.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// The CA's certificate is not valid PEM.
    #[error("the signing CA's certificate is not PEM: {0}")]
    Pem(#[from] PEMError),
    /// The CA's certificate can't be parsed.
    #[error("the signing CA's certificate can't be read: {0}")]
    Certificate(#[source] X509Error),
    /// The CA's certificate and key can't be used.
    #[error("the signing CA can't be used: {0}")]
    Ca(#[source] rcgen::Error),
    /// The certificate can't be created.
    #[error("the request can't be signed: {0}")]
    Sign(#[source] rcgen::Error),
    /// The certificate can't be encoded.
    #[error("the certificate can't be encoded: {0}")]
    Encode(#[from] yasna::ASN1Error),
    /// The request breaks a rule of its signer.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// An unknown usage.
    #[error("unrecognized usage value: {0:?}")]
    Usage(String),
    /// The request breaks a rule of its signer.
    #[error("{0}")]
    Refused(&'static str),
}

/// A CA certificate with its key.
#[derive(Clone)]
pub struct Ca {
    issuer: Arc<Issuer<'static, KeyPair>>,
    /// The `Name` of the CA in DER.
    name: Arc<[u8]>,
    /// Expiration of the CA's certificate, in seconds since the epoch.
    end: i64,
    longest: Duration,
}

impl std::fmt::Debug for Ca {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ca")
    }
}

impl Ca {
    /// Loads certificate and key, both PEM. Certificates get at most the lifetime `longest`.
    ///
    /// # Errors
    /// Certificate or key can't be used.
    pub fn from_pem(certificate: &str, key: &str, longest: Duration) -> Result<Self, CaError> {
        let key = KeyPair::from_pem(key).map_err(CaError::Ca)?;
        let (_, block) =
            x509_parser::pem::parse_x509_pem(certificate.as_bytes()).map_err(|error| {
                if let x509_parser::nom::Err::Error(error) = error {
                    error
                } else {
                    PEMError::InvalidHeader
                }
            })?;
        let parsed = block.parse_x509().map_err(|error| match error {
            x509_parser::nom::Err::Error(error) | x509_parser::nom::Err::Failure(error) => {
                CaError::Certificate(error)
            }
            x509_parser::nom::Err::Incomplete(_) => {
                CaError::Certificate(X509Error::InvalidCertificate)
            }
        })?;
        let name = parsed.subject().as_raw().into();
        let end = parsed.validity().not_after.timestamp();
        let issuer = Issuer::from_ca_cert_der(&block.contents.as_slice().into(), key)
            .map_err(CaError::Ca)?;
        Ok(Self {
            issuer: Arc::new(issuer),
            name,
            end,
            longest,
        })
    }

    /// Signs a request for the given usages.
    ///
    /// # Errors
    /// The request's signature does not match its key, a usage is unknown, or the CA has expired.
    pub fn sign(
        &self,
        request: &CertificateRequest,
        names: &[&str],
        wanted: Option<Duration>,
        now: Timestamp,
    ) -> Result<String, CaError> {
        request.verify_signature()?;
        let life = self.life(wanted, now.as_second())?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::ExplicitNoCa;
        (params.not_before, params.not_after) = life;
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(SerialNumber::from_slice(uuid::Uuid::new_v4().as_bytes()));
        params.subject_alt_names = alternative_names(request)?;
        (params.key_usages, params.extended_key_usages) = usages::parse(names)?;
        let template = params
            .signed_by(self.issuer.key(), &self.issuer)
            .map_err(CaError::Sign)?;
        let der = self.fill_in(template.der(), request)?;
        Ok(to_pem(der))
    }

    /// Returns notBefore and notAfter; notAfter never exceeds the CA's.
    fn life(
        &self,
        wanted: Option<Duration>,
        now: i64,
    ) -> Result<(time::OffsetDateTime, time::OffsetDateTime), CaError> {
        let seconds = |life: Duration| i64::try_from(life.as_secs()).unwrap_or(i64::MAX / 2);
        let longest = seconds(self.longest);
        let life = wanted.map_or(longest, |wanted| seconds(wanted).max(SHORTEST).min(longest));
        let backdate = if life < SHORT { 0 } else { BACKDATE };
        if now >= self.end {
            return Err(CaError::Refused("the signer has expired"));
        }
        let at = |second: i64| {
            time::OffsetDateTime::from_unix_timestamp(second)
                .map_err(|_| CaError::Refused("the time is out of range"))
        };
        Ok((
            at(now - BACKDATE)?,
            at(now.saturating_add(life - backdate).min(self.end))?,
        ))
    }

    /// Replaces the placeholders by the CA's name and the request's subject and key, and signs.
    fn fill_in(&self, template: &[u8], request: &CertificateRequest) -> Result<Vec<u8>, CaError> {
        let (mut fields, algorithm) = yasna::parse_der(template, |reader| {
            reader.read_sequence(|reader| {
                let fields = reader
                    .next()
                    .collect_sequence_of(|field| field.read_der())?;
                let algorithm = reader.next().read_der()?;
                reader.next().read_bitvec_bytes()?;
                Ok((fields, algorithm))
            })
        })?;
        let replaced = [
            (ISSUER, &self.name[..]),
            (SUBJECT, &request.subject_der[..]),
            (PUBLIC_KEY, &request.public_key_der[..]),
        ];
        for (position, der) in replaced {
            let field = fields
                .get_mut(position)
                .ok_or(CaError::Refused("the certificate has too few fields"))?;
            *field = der.to_vec();
        }
        let content = yasna::construct_der(|writer| {
            writer.write_sequence(|writer| {
                fields
                    .iter()
                    .for_each(|field| writer.next().write_der(field))
            });
        });
        let signature = self.issuer.key().sign(&content).map_err(CaError::Sign)?;
        Ok(yasna::construct_der(|writer| {
            writer.write_sequence(|writer| {
                writer.next().write_der(&content);
                writer.next().write_der(&algorithm);
                writer
                    .next()
                    .write_bitvec_bytes(&signature, signature.len() * 8);
            });
        }))
    }
}

/// Returns the subject alternative names of the types that Kubernetes signs; omits others, as
/// upstream does.
fn alternative_names(request: &CertificateRequest) -> Result<Vec<SanType>, CaError> {
    let mut names = Vec::new();
    for name in &request.dns_names {
        names.push(SanType::DnsName(
            name.as_str().try_into().map_err(CaError::Sign)?,
        ));
    }
    for address in &request.email_addresses {
        names.push(SanType::Rfc822Name(
            address.as_str().try_into().map_err(CaError::Sign)?,
        ));
    }
    names.extend(
        request
            .ip_addresses
            .iter()
            .map(|address| SanType::IpAddress(*address)),
    );
    for uri in &request.uris {
        names.push(SanType::URI(
            uri.as_str().try_into().map_err(CaError::Sign)?,
        ));
    }
    Ok(names)
}

fn to_pem(der: Vec<u8>) -> String {
    let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new("CERTIFICATE", der), config)
}

/// Checks a request against the rules of its signer.
///
/// # Errors
/// The violated rule.
pub fn judge(csr: &Csr, request: &CertificateRequest) -> Result<(), CaError> {
    let usages: Vec<_> = csr
        .spec
        .usages
        .iter()
        .flatten()
        .map(String::as_str)
        .collect();
    match csr.spec.signer_name.as_str() {
        CLIENT => check_client_usages(&usages)?,
        KUBELET_CLIENT => request.check_kubelet_client(&usages)?,
        KUBELET_SERVING => {
            request.check_kubelet_serving(&usages)?;
            if csr.spec.username.as_deref() != Some(&request.common_name) {
                return Err(CaError::Refused("the subject is not the one who asks"));
            }
        }
        LEGACY => {}
        _ => return Err(CaError::Refused("the signer is not known")),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
