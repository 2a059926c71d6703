//! Leaf certificates: checks the existing one against the desired subject, and renews it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair,
    KeyUsagePurpose, SanType,
};
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::{FromDer, GeneralName, ParsedExtension, X509Certificate, X509Name};

use crate::files::{read_optional, write_private, write_public};
use crate::key_pair::{belongs_to_key, pem_to_der};
use crate::{Authority, Error};

// One year, as kubeadm's `CertificateValidityPeriod`.
const LIFETIME: Duration = Duration::days(365);
/// A certificate is renewed if less than this is left.
// Longer than the 30 days at which `ironclad certs` begins to warn: a warning means that renewals
// fail.
const RENEW_BEFORE: Duration = Duration::days(90);

/// The usage of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// Client authentication.
    Client,
    /// Server authentication.
    Server,
    /// Both: members of the store connect to each other.
    Both,
}

/// The desired subject of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// User or host name.
    pub common_name: String,
    /// Group, for clients.
    pub organization: Option<String>,
    /// DNS names of a server.
    pub dns: Vec<String>,
    /// IP addresses of a server.
    pub addresses: Vec<IpAddr>,
    /// Usage.
    pub usage: Usage,
}

impl Subject {
    /// Returns the subject of a client `common_name` in the group `organization`.
    #[must_use]
    pub fn client(common_name: &str, organization: Option<&str>) -> Self {
        Self {
            common_name: common_name.to_owned(),
            organization: organization.map(str::to_owned),
            dns: Vec::new(),
            addresses: Vec::new(),
            usage: Usage::Client,
        }
    }

    /// Returns the subject of a server with these names.
    #[must_use]
    pub fn server(common_name: &str, mut dns: Vec<String>, mut addresses: Vec<IpAddr>) -> Self {
        dns.sort();
        dns.dedup();
        addresses.sort();
        addresses.dedup();
        Self {
            common_name: common_name.to_owned(),
            organization: None,
            dns,
            addresses,
            usage: Usage::Server,
        }
    }
}

/// Writes `NAME.crt` and `NAME.key` in `folder` unless they match `subject`; returns true if they
/// were written.
///
/// # Errors
/// A file can't be read or written, or the CA can't sign.
pub fn ensure_certificate(
    authority: &Authority,
    folder: &Path,
    name: &str,
    subject: &Subject,
) -> Result<bool, Error> {
    let [crt, key] = pair_paths(folder, name);
    if let (Some(present), Some(key)) = (read_optional(&crt)?, read_optional(&key)?)
        && is_valid_for(&present, authority, subject)
        && belongs_to_key(&present, &key)
    {
        return Ok(false);
    }
    write_certificate(authority, folder, name, subject)?;
    Ok(true)
}

fn pair_paths(folder: &Path, name: &str) -> [PathBuf; 2] {
    ["crt", "key"].map(|ending| folder.join(format!("{name}.{ending}")))
}

/// Writes a new `NAME.crt` and `NAME.key` in `folder`.
pub(crate) fn write_certificate(
    authority: &Authority,
    folder: &Path,
    name: &str,
    subject: &Subject,
) -> Result<(), Error> {
    let [crt, key] = pair_paths(folder, name);
    issue_certificate(authority, &crt, &key, subject)
}

fn issue_certificate(
    authority: &Authority,
    crt: &Path,
    key: &Path,
    subject: &Subject,
) -> Result<(), Error> {
    let bad = |cause| Error::Certificate {
        path: crt.to_owned(),
        cause,
    };
    let pair = KeyPair::generate().map_err(bad)?;
    let mut params = CertificateParams::new(subject.dns.clone()).map_err(bad)?;
    params
        .subject_alt_names
        .extend(subject.addresses.iter().map(|a| SanType::IpAddress(*a)));
    // rcgen's default has a common name of rcgen itself.
    params.distinguished_name = DistinguishedName::new();
    // The API server takes organizations as groups and the common name as the user (upstream:
    // `x509.CommonNameUserConversion`).
    if let Some(group) = &subject.organization {
        params
            .distinguished_name
            .push(DnType::OrganizationName, group);
    }
    params
        .distinguished_name
        .push(DnType::CommonName, &subject.common_name);
    // Enough for ECDSA; key encipherment is for RSA.
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = match subject.usage {
        Usage::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
        Usage::Server => vec![ExtendedKeyUsagePurpose::ServerAuth],
        Usage::Both => vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ],
    };
    // Identifies the CA that signed it: after a change of the CA all certificates are issued again.
    params.use_authority_key_identifier_extension = true;
    let now = OffsetDateTime::now_utc();
    // A machine that joins may be ahead of the others by 4 minutes (`join/clock.rs` of the
    // operator), so this must be longer.
    params.not_before = now - Duration::minutes(5);
    params.not_after = now + LIFETIME;
    let certificate = params.signed_by(&pair, authority.issuer()).map_err(bad)?;
    // Key and certificate do not match until both are written. A process that reads them in between
    // fails its start and is restarted.
    write_private(key, pair.serialize_pem().as_bytes())?;
    write_public(crt, certificate.pem().as_bytes())
}

fn is_valid_for(present: &str, authority: &Authority, subject: &Subject) -> bool {
    let Some(der) = pem_to_der(present) else {
        return false;
    };
    let Some(authority_der) = authority_der(authority) else {
        return false;
    };
    let Ok((_, certificate)) = X509Certificate::from_der(&der) else {
        return false;
    };
    let Ok((_, signer)) = X509Certificate::from_der(&authority_der) else {
        return false;
    };
    // An expired certificate has a negative rest and is renewed like one that is about to expire.
    let left =
        certificate.validity().not_after.timestamp() - OffsetDateTime::now_utc().unix_timestamp();
    left > RENEW_BEFORE.whole_seconds()
        && authority_key(&certificate).is_some_and(|key| Some(key) == subject_key(&signer))
        // Compared as a whole: a name that was removed must vanish from the certificate, too.
        && certificate_names(&certificate) == desired_names(subject)
}

/// Names and expiration of a certificate, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateSummary {
    /// The common name of the subject.
    pub subject: String,
    /// The common name of the CA that signed it.
    pub issuer: String,
    /// The expiration, in seconds since the epoch.
    pub expiration: i64,
    /// True for the certificate of a CA.
    pub is_ca: bool,
}

/// Returns a summary of the first certificate in a PEM text; None if there is none.
#[must_use]
pub fn summarize_certificate(pem: &[u8]) -> Option<CertificateSummary> {
    // A kubelet's file has its key, too, in any order.
    let blocks = x509_parser::pem::Pem::iter_from_buffer(pem).flatten();
    let block = blocks
        .into_iter()
        .find(|block| block.label == "CERTIFICATE")?;
    let certificate = block.parse_x509().ok()?;
    let common_name = |name: &X509Name<'_>| {
        let found = name.iter_common_name().find_map(|n| n.as_str().ok());
        found.unwrap_or_default().to_owned()
    };
    Some(CertificateSummary {
        subject: common_name(certificate.subject()),
        issuer: common_name(certificate.issuer()),
        expiration: certificate.validity().not_after.timestamp(),
        is_ca: certificate.is_ca(),
    })
}

/// Returns the DNS names and addresses of the first certificate in a PEM text, sorted.
#[must_use]
pub fn list_certificate_hosts(pem: &[u8]) -> Vec<String> {
    let Ok((_, block)) = x509_parser::pem::parse_x509_pem(pem) else {
        return Vec::new();
    };
    let names = block.parse_x509().map(|found| certificate_names(&found));
    let names = names.unwrap_or_default();
    let host = |name: &String| {
        let host = name.strip_prefix("dns ").or(name.strip_prefix("ip "));
        host.map(str::to_owned)
    };
    names.iter().filter_map(host).collect()
}

fn authority_der(authority: &Authority) -> Option<Vec<u8>> {
    pem_to_der(authority.certificate())
}

fn authority_key<'a>(certificate: &'a X509Certificate<'_>) -> Option<&'a [u8]> {
    certificate
        .extensions()
        .iter()
        .find_map(|e| match e.parsed_extension() {
            ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.as_ref().map(|k| k.0),
            _ => None,
        })
}

fn subject_key<'a>(certificate: &'a X509Certificate<'_>) -> Option<&'a [u8]> {
    certificate
        .extensions()
        .iter()
        .find_map(|e| match e.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0),
            _ => None,
        })
}

/// Returns everything in a certificate about its subject, as one comparable list.
fn certificate_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let mut all = Vec::new();
    let subject = certificate.subject();
    all.extend(
        subject
            .iter_common_name()
            .filter_map(|n| n.as_str().ok())
            .map(|n| format!("cn {n}")),
    );
    all.extend(
        subject
            .iter_organization()
            .filter_map(|n| n.as_str().ok())
            .map(|n| format!("o {n}")),
    );
    if let Ok(Some(san)) = certificate.subject_alternative_name() {
        for name in &san.value.general_names {
            match name {
                GeneralName::DNSName(dns) => all.push(format!("dns {dns}")),
                GeneralName::IPAddress(bytes) => {
                    all.extend(parse_address(bytes).map(|a| format!("ip {a}")))
                }
                // A certificate that an administrator brought may have more, such as URIs, and is
                // kept.
                _ => {}
            }
        }
    }
    all.sort();
    all
}

fn parse_address(bytes: &[u8]) -> Option<IpAddr> {
    // RFC 5280, section 4.2.1.6: 4 octets are an IPv4 address, 16 an IPv6 address.
    <[u8; 4]>::try_from(bytes)
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

fn desired_names(subject: &Subject) -> Vec<String> {
    let mut all = vec![format!("cn {}", subject.common_name)];
    all.extend(subject.organization.iter().map(|o| format!("o {o}")));
    all.extend(subject.dns.iter().map(|d| format!("dns {d}")));
    all.extend(subject.addresses.iter().map(|a| format!("ip {a}")));
    all.sort();
    all
}
