//! Errors of the signer.

use api_meta::certificate_request::RequestError;
use x509_parser::error::{PEMError, X509Error};

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
    /// The CA's certificate has another key.
    #[error("the signing CA's key is not that of its certificate")]
    Pair,
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
    Rejected(&'static str),
}
