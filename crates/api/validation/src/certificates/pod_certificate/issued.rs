//! The certificate of a request: it is for the requested key, and its times are those of the
//! status.

use super::spec::{OMITTED, read_bytes};
use crate::certificates::public_key::PodKey;
use crate::field::{Errors, Path};
use crate::signer_name::{LONGEST_LIFE, SHORTEST_LIFE};
use api_meta::certificate_request::CertificateRequest;
use api_meta::pem::read_blocks;
use api_meta::time;
use api_meta::tree::{int, text};
use api_structural::StringFormat;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// Longest chain in bytes, as upstream.
const LONGEST_CHAIN: usize = 100 * 1024;
/// Difference between the clocks of a signer and of the server.
const SKEW: SignedDuration = SignedDuration::from_mins(5);
/// Time between the start of the renewal and either end of the certificate's life.
const MARGIN: SignedDuration = SignedDuration::from_mins(10);

/// Validates the status of an issued request. As upstream, the first problem hides the following
/// ones.
pub(super) fn validate_issued(status: &Value, spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (chain, at) = (
        text(status, "certificateChain"),
        path.child("certificateChain"),
    );
    if chain.len() > LONGEST_CHAIN {
        return errors.too_long(&at, LONGEST_CHAIN);
    }
    let mut blocks = read_blocks(chain.as_bytes());
    let Some(leaf) = blocks.next() else {
        let detail = "issued certificate chain must contain at least one certificate";
        return errors.invalid(&at, OMITTED, detail);
    };
    if leaf.label != LABEL {
        return errors.invalid(&at, OMITTED, OTHER_BLOCKS);
    }
    let Ok(([], leaf)) = X509Certificate::from_der(&leaf.contents) else {
        return errors.invalid(
            &at,
            OMITTED,
            "leaf certificate does not parse as valid X.509",
        );
    };
    let before = errors.len();
    if !validate_names(&leaf, &at, errors) {
        return;
    }
    let key = PodKey::parse(leaf.public_key().raw).ok();
    if key.is_none() || key != read_requested_key(spec) {
        let detail = "leaf certificate was not issued to the requested public key";
        return errors.invalid(&at, OMITTED, detail);
    }
    validate_times(status, spec, &leaf, path, errors);
    if errors.len() > before {
        return;
    }
    for block in blocks {
        if block.label != LABEL {
            return errors.invalid(&at, OMITTED, OTHER_BLOCKS);
        }
        if !matches!(X509Certificate::from_der(&block.contents), Ok(([], _))) {
            let detail = "intermediate certificate does not parse as valid X.509";
            return errors.invalid(&at, OMITTED, detail);
        }
    }
}

const LABEL: &str = "CERTIFICATE";
const OTHER_BLOCKS: &str =
    "issued certificate chain must consist entirely of CERTIFICATE PEM blocks";

/// Returns the key of the spec, which was valid when the request was created.
fn read_requested_key(spec: &Value) -> Option<PodKey> {
    let request = read_bytes(spec, "stubPKCS10Request");
    let der = match request.is_empty() {
        true => read_bytes(spec, "pkixPublicKey"),
        false => CertificateRequest::from_der(request).ok()?.public_key_der,
    };
    PodKey::parse(&der).ok()
}

/// Validates the alternative names; returns false if they can't be read. Go's `crypto/x509` rejects
/// certificates with such names when a TLS connection begins.
fn validate_names(leaf: &X509Certificate<'_>, path: &Path<'_>, errors: &mut Errors) -> bool {
    let Ok(names) = leaf.subject_alternative_name() else {
        errors.invalid(
            path,
            OMITTED,
            "leaf certificate does not parse as valid X.509",
        );
        return false;
    };
    let names = names.map(|extension| extension.value.general_names.as_slice());
    for name in names.unwrap_or_default() {
        match *name {
            GeneralName::DNSName(name) => {
                if name.is_empty() {
                    let detail = "leaf certificate should not contain empty DNSName";
                    errors.invalid(path, name, detail);
                }
                if name.contains("..") {
                    let detail = "leaf certificate's DNSName should not contain '..'";
                    errors.invalid(path, name, detail);
                }
                if name.starts_with('.') || name.ends_with('.') {
                    let detail = "leaf certificate's DNSName should not start or end with '.'";
                    errors.invalid(path, name, detail);
                }
            }
            GeneralName::RFC822Name(address) if !StringFormat::Email.matches(address) => {
                let detail = "leaf certificate should not contain invalid EmailAddress";
                errors.invalid(path, address, detail);
            }
            _ => {}
        }
    }
    true
}

fn validate_times(
    status: &Value,
    spec: &Value,
    leaf: &X509Certificate<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    const CONSISTENT: &str = "must be present and consistent with the issued certificate";
    const REFRESH: &str = "must be present and in the range [notbefore+10min, notafter-10min]";
    let fields = [
        ("notBefore", CONSISTENT),
        ("notAfter", CONSISTENT),
        ("beginRefreshAt", REFRESH),
    ];
    let times = fields.map(|(field, detail)| {
        let time = time::parse(text(status, field));
        if time.is_none() {
            errors.required(&path.child(field), detail);
        }
        time
    });
    let [Some(begin), Some(end), Some(refresh)] = times else {
        return;
    };
    if let Some((field, detail)) = find_wrong_bound(begin, end, leaf) {
        return errors.invalid(&path.child(field), text(status, field), detail);
    }
    if let Some((shown, detail)) = find_wrong_lifetime(spec, leaf) {
        return errors.invalid(&path.child("certificateChain"), shown, detail);
    }
    let detail = if refresh.duration_since(begin) < MARGIN {
        "must be at least 10 minutes after status.notBefore"
    } else if end.duration_since(refresh) < MARGIN {
        "must be at least 10 minutes before status.notAfter"
    } else {
        return;
    };
    errors.invalid(
        &path.child("beginRefreshAt"),
        text(status, "beginRefreshAt"),
        detail,
    );
}

/// Returns the bound of the validity that is not the certificate's, or not that of a new one.
fn find_wrong_bound(
    begin: Timestamp,
    end: Timestamp,
    leaf: &X509Certificate<'_>,
) -> Option<(&'static str, &'static str)> {
    let validity = leaf.validity();
    if begin.as_second() != validity.not_before.timestamp() {
        let detail = "must be set to the NotBefore time encoded in the leaf certificate";
        return Some(("notBefore", detail));
    }
    if begin.duration_since(Timestamp::now()).abs() >= SKEW {
        let detail = "must be set to within 5 minutes of kube-apiserver's current time";
        return Some(("notBefore", detail));
    }
    let detail = "must be set to the NotAfter time encoded in the leaf certificate";
    (end.as_second() != validity.not_after.timestamp()).then_some(("notAfter", detail))
}

/// Returns a lifetime that the request does not allow, in nanoseconds as upstream shows it.
fn find_wrong_lifetime(spec: &Value, leaf: &X509Certificate<'_>) -> Option<(i64, String)> {
    let validity = leaf.validity();
    let (first, last) = (
        validity.not_before.timestamp(),
        validity.not_after.timestamp(),
    );
    let life = last.saturating_sub(first);
    let longest = int(spec, "maxExpirationSeconds").unwrap_or(LONGEST_LIFE);
    let detail = match (life < SHORTEST_LIFE, life > longest) {
        (true, _) => "leaf certificate lifetime must be >= 1 hour".to_owned(),
        (false, true) => {
            format!("leaf certificate lifetime must be <= spec.maxExpirationSeconds ({longest})")
        }
        (false, false) => return None,
    };
    Some((life.saturating_mul(1_000_000_000), detail))
}
