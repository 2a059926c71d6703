//! The only reader of PKCS#10 certificate requests (RFC 2986) in the workspace.
//!
//! Admission, validation and the signer decide by the same [`CertificateRequest`]. A second parser
//! could disagree with this one about which PEM block or which attribute counts, and a request
//! other than the approved one would be signed. For the same reason everything ambiguous is an
//! error: a second PEM block, bytes after the DER, two extension requests, string types that other
//! parsers decode differently. As upstream, headers of the block and text around it are ignored.

mod signers;

pub use signers::check_client_usages;

use crate::pem::read_blocks;
use std::net::IpAddr;
use x509_parser::asn1_rs::{Class, Tag};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::error::X509Error;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME};
use x509_parser::prelude::{FromDer, X509Name};

const LABEL: &str = "CERTIFICATE REQUEST";
/// The start of a block of any type.
const BEGIN: &[u8] = b"-----BEGIN";

/// Reasons for rejecting a certificate request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The text has no PEM block, or one of another type.
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    BlockType,
    /// There are several PEM blocks, or the start of another one.
    #[error("must contain exactly one PEM block")]
    SeveralBlocks,
    /// The block is not a PKCS#10 request.
    #[error("the PEM block does not contain a valid certificate request")]
    Malformed,
    /// Bytes follow the request inside the block.
    #[error("trailing data after the certificate request")]
    TrailingData,
    /// An attribute of the subject is not a string that all parsers decode alike.
    #[error("the subject contains a value that is not a UTF-8, printable, IA5 or numeric string")]
    SubjectValue,
    /// There is more than one extension request or subjectAltName extension.
    #[error("requested extensions must be given once")]
    DuplicateExtensions,
    /// The subjectAltName extension is malformed.
    #[error("the subjectAltName extension is malformed")]
    SubjectAltName,
    /// The signature does not match the key of the request.
    #[error("the signature does not match the public key")]
    Signature,
    /// The signature's algorithm is unknown, so it can't be verified.
    #[error("the signature's algorithm is not supported")]
    SignatureAlgorithm,
    /// The signer does not sign such requests. The text names the violated rule.
    #[error("{0}")]
    Rule(&'static str),
}

/// A certificate request that was parsed completely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRequest {
    /// The common name; the last one if there are several, as in Go's `crypto/x509`.
    pub common_name: String,
    /// All organisations in order, including those that share a relative distinguished name.
    pub organizations: Vec<String>,
    /// All subject attributes in order: dotted object identifier and value.
    pub subject: Vec<(String, String)>,
    /// DNS names among the subject alternative names.
    pub dns_names: Vec<String>,
    /// E-mail addresses among the subject alternative names.
    pub email_addresses: Vec<String>,
    /// IP addresses among the subject alternative names.
    pub ip_addresses: Vec<IpAddr>,
    /// URIs among the subject alternative names.
    pub uris: Vec<String>,
    /// The number of subject alternative names of any other type.
    pub other_names: usize,
    /// DER of the subject's `Name`.
    pub subject_der: Vec<u8>,
    /// DER of the `SubjectPublicKeyInfo`.
    pub public_key_der: Vec<u8>,
    der: Vec<u8>,
}

impl CertificateRequest {
    /// Parses a request from PEM.
    ///
    /// # Errors
    /// The text does not have exactly one block, or the block is not one request.
    pub fn from_pem(pem: &[u8]) -> Result<Self, RequestError> {
        Self::from_der(decode_block(pem)?)
    }

    /// Parses a request from DER.
    ///
    /// # Errors
    /// The bytes are not exactly one request, or it is ambiguous.
    pub fn from_der(der: Vec<u8>) -> Result<Self, RequestError> {
        let (rest, parsed) =
            X509CertificationRequest::from_der(&der).map_err(|_| RequestError::Malformed)?;
        // A signer that parses the bytes differently could sign what follows.
        if !rest.is_empty() {
            return Err(RequestError::TrailingData);
        }
        let info = &parsed.certification_request_info;
        let mut request = CertificateRequest {
            common_name: String::new(),
            organizations: Vec::new(),
            subject: Vec::new(),
            dns_names: Vec::new(),
            email_addresses: Vec::new(),
            ip_addresses: Vec::new(),
            uris: Vec::new(),
            other_names: 0,
            subject_der: info.subject.as_raw().to_vec(),
            public_key_der: info.subject_pki.raw.to_vec(),
            der: Vec::new(),
        };
        request.read_subject(&info.subject)?;
        request.read_extensions(&parsed)?;
        // The original bytes: the signer must read those that were approved, not another encoding
        // of them.
        request.der = der;
        Ok(request)
    }

    /// Returns the parsed DER: the bytes from which to sign.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Verifies that the request was signed with the private key of its public key.
    ///
    /// # Errors
    /// [`RequestError::Signature`] if it was not, [`RequestError::SignatureAlgorithm`] if the
    /// algorithm is unknown.
    pub fn verify_signature(&self) -> Result<(), RequestError> {
        let (_, parsed) =
            X509CertificationRequest::from_der(&self.der).map_err(|_| RequestError::Malformed)?;
        // Without this proof a request could name the public key of another actor.
        parsed.verify_signature().map_err(|error| match error {
            X509Error::SignatureUnsupportedAlgorithm => RequestError::SignatureAlgorithm,
            _ => RequestError::Signature,
        })
    }

    fn read_subject(&mut self, name: &X509Name<'_>) -> Result<(), RequestError> {
        for attribute in name.iter_attributes() {
            let value = attribute.attr_value();
            // Other string types (BMPString, T61String) are decoded differently by Go and by
            // OpenSSL, so one request could have two subjects.
            let known = matches!(
                value.tag(),
                Tag::Utf8String | Tag::PrintableString | Tag::Ia5String
            ) || value.tag() == Tag::NumericString;
            if value.class() != Class::Universal || !known {
                return Err(RequestError::SubjectValue);
            }
            // All four admitted types are subsets of UTF-8.
            let text = std::str::from_utf8(value.data).map_err(|_| RequestError::SubjectValue)?;
            if *attribute.attr_type() == OID_X509_COMMON_NAME {
                // Later ones overwrite earlier ones, as in Go. The approver and the signer must see
                // the same name.
                text.clone_into(&mut self.common_name);
            } else if *attribute.attr_type() == OID_X509_ORGANIZATION_NAME {
                self.organizations.push(text.to_owned());
            }
            self.subject
                .push((attribute.attr_type().to_id_string(), text.to_owned()));
        }
        Ok(())
    }

    fn read_extensions(
        &mut self,
        parsed: &X509CertificationRequest<'_>,
    ) -> Result<(), RequestError> {
        let mut requests = parsed
            .certification_request_info
            .iter_attributes()
            .filter_map(|attribute| match attribute.parsed_attribute() {
                ParsedCriAttribute::ExtensionRequest(request) => Some(request),
                _ => None,
            });
        let Some(request) = requests.next() else {
            return Ok(());
        };
        // Parsers disagree about which of several requests counts.
        if requests.next().is_some() {
            return Err(RequestError::DuplicateExtensions);
        }
        for (i, extension) in request.extensions.iter().enumerate() {
            // The same holds for an extension that occurs twice.
            if request
                .extensions
                .iter()
                .take(i)
                .any(|other| other.oid == extension.oid)
            {
                return Err(RequestError::DuplicateExtensions);
            }
            match extension.parsed_extension() {
                ParsedExtension::SubjectAlternativeName(names) => {
                    names
                        .general_names
                        .iter()
                        .try_for_each(|name| self.read_name(name))?;
                }
                // The library of a signer might read an extension that this parser cannot.
                ParsedExtension::ParseError { .. } => return Err(RequestError::Malformed),
                _ => {}
            }
        }
        Ok(())
    }

    fn read_name(&mut self, name: &GeneralName<'_>) -> Result<(), RequestError> {
        match name {
            GeneralName::DNSName(name) => self.dns_names.push((*name).to_owned()),
            GeneralName::RFC822Name(name) => self.email_addresses.push((*name).to_owned()),
            GeneralName::URI(name) => self.uris.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => self.ip_addresses.push(read_address(bytes)?),
            GeneralName::Invalid(..) => return Err(RequestError::SubjectAltName),
            // Counted and not read: the built-in signers reject requests with any.
            _ => self.other_names += 1,
        }
        Ok(())
    }
}

fn read_address(bytes: &[u8]) -> Result<IpAddr, RequestError> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    // Other lengths are invalid: an address with a mask only occurs in name constraints.
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .map_err(|_| RequestError::SubjectAltName)
}

/// Decodes the only block of `pem`.
fn decode_block(pem: &[u8]) -> Result<Vec<u8>, RequestError> {
    let block = read_blocks(pem)
        .next()
        .filter(|block| block.label == LABEL)
        .ok_or(RequestError::BlockType)?;
    // Parsers disagree about a start that is not at the beginning of a line, and approvers may look
    // at another block than the signer.
    let starts = pem.windows(BEGIN.len()).filter(|part| *part == BEGIN);
    match starts.count() {
        1 => Ok(block.contents),
        _ => Err(RequestError::SeveralBlocks),
    }
}

#[cfg(test)]
mod tests;
