//! The CA: creates certificates.
//!
//! Subject and public key are copied from the request into the certificate byte for byte: the
//! approved subject is signed as it is, with all values in their order. The library can't express
//! every subject, so it creates a certificate with placeholders, which are replaced before the CA
//! signs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api_meta::certificate_request::CertificateRequest;
use base_tls::{Followed, TlsError};
use jiff::Timestamp;
use rcgen::{
    CertificateParams, IsCa, Issuer, KeyPair, PublicKeyData, SanType, SerialNumber, SigningKey,
};
use x509_parser::error::{PEMError, X509Error};

use crate::error::CaError;
use crate::usages;

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
    /// Loads the pair of these files, now and after each change of them.
    ///
    /// # Errors
    /// A file can't be read, or certificate and key can't be used together. After the first load,
    /// such files leave the former CA in use.
    pub fn follow_files(
        certificate: &Path,
        key: &Path,
        longest: Duration,
    ) -> Result<Followed<Self>, TlsError> {
        let paths = vec![certificate.to_owned(), key.to_owned()];
        Followed::load(paths, move |paths| Self::read_files(paths, longest))
    }

    fn read_files(paths: &[PathBuf], longest: Duration) -> Result<Self, TlsError> {
        let [certificate, key] = paths else {
            return Err(TlsError::Refused("two files expected".to_owned()));
        };
        let read = |path: &Path| {
            let text = String::from_utf8(base_tls::read_file(path)?);
            text.map_err(|_| TlsError::Refused(format!("{} is not PEM", path.display())))
        };
        Self::from_pem(&read(certificate)?, &read(key)?, longest).map_err(|error| {
            let (certificate, key) = (certificate.display(), key.display());
            TlsError::Refused(format!("{certificate} and {key}: {error}"))
        })
    }

    /// Loads certificate and key, both PEM. Of several certificates the first one signs.
    /// Certificates get at most the lifetime `longest`.
    ///
    /// # Errors
    /// Certificate or key can't be used, or they are not a pair.
    pub fn from_pem(certificate: &str, key: &str, longest: Duration) -> Result<Self, CaError> {
        let key = base_tls::load_signing_key(key).map_err(CaError::Ca)?;
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
        // The files are not replaced in one step: with the key of another CA, no client could
        // verify what is signed here.
        if parsed.public_key().raw != key.subject_public_key_info() {
            return Err(CaError::Pair);
        }
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
        requested: Option<Duration>,
        now: Timestamp,
    ) -> Result<String, CaError> {
        // Proof of possession: without it, a certificate could be issued for another party's public
        // key.
        request.verify_signature()?;
        let life = self.validity(requested, now.as_second())?;
        let mut params = CertificateParams::default();
        // Stated explicitly, so that no client takes the certificate for a CA of an old kind
        // without constraints.
        params.is_ca = IsCa::ExplicitNoCa;
        (params.not_before, params.not_after) = life;
        params.use_authority_key_identifier_extension = true;
        // Random, as upstream: serial numbers need no state and can't be predicted.
        params.serial_number = Some(SerialNumber::from_slice(uuid::Uuid::new_v4().as_bytes()));
        params.subject_alt_names = alternative_names(request)?;
        (params.key_usages, params.extended_key_usages) = usages::parse_usages(names)?;
        let template = params
            .signed_by(self.issuer.key(), &self.issuer)
            .map_err(CaError::Sign)?;
        let der = self.replace_placeholders(template.der(), request)?;
        Ok(to_pem(der))
    }

    /// Returns notBefore and notAfter; notAfter never exceeds the CA's.
    fn validity(
        &self,
        requested: Option<Duration>,
        now: i64,
    ) -> Result<(time::OffsetDateTime, time::OffsetDateTime), CaError> {
        let seconds = |life: Duration| i64::try_from(life.as_secs()).unwrap_or(i64::MAX / 2);
        let longest = seconds(self.longest);
        let life = requested.map_or(longest, |requested| {
            seconds(requested).max(SHORTEST).min(longest)
        });
        // Short certificates keep their full lifetime: five minutes of ten would be half of it.
        let backdate = if life < SHORT { 0 } else { BACKDATE };
        if now >= self.end {
            return Err(CaError::Rejected("the signer has expired"));
        }
        let at = |second: i64| {
            time::OffsetDateTime::from_unix_timestamp(second)
                .map_err(|_| CaError::Rejected("the time is out of range"))
        };
        Ok((
            at(now - BACKDATE)?,
            // A certificate that outlives its CA is rejected by clients as soon as the CA expires.
            at(now.saturating_add(life - backdate).min(self.end))?,
        ))
    }

    /// Replaces the placeholders by the CA's name and the request's subject and key, and signs.
    fn replace_placeholders(
        &self,
        template: &[u8],
        request: &CertificateRequest,
    ) -> Result<Vec<u8>, CaError> {
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
            // Byte for byte, because some verifiers compare the encoded names when they build a
            // chain.
            (ISSUER, &self.name[..]),
            (SUBJECT, &request.subject_der[..]),
            (PUBLIC_KEY, &request.public_key_der[..]),
        ];
        for (position, der) in replaced {
            let field = fields
                .get_mut(position)
                .ok_or(CaError::Rejected("the certificate has too few fields"))?;
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

#[cfg(test)]
mod tests;
