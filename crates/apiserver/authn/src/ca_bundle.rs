//! Combination of CA bundles.

use crate::pem_block::encode_block;
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use std::path::Path;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Time for which an expired certificate is kept, as upstream: clocks differ.
const SLACK_SECONDS: i64 = 300;

/// Returns the certificates of several bundles in PEM form: each one once and in the given order,
/// without those that had expired 5 minutes before `now`. Other blocks and text are dropped.
#[must_use]
pub fn combine_ca_bundles(bundles: &[&str], now: Timestamp) -> String {
    let mut all: Vec<CertificateDer<'_>> = Vec::new();
    for bundle in bundles {
        // The path is for an error only: a bundle without certificates adds none.
        let parsed = base_tls::parse_certificates(bundle.as_bytes(), Path::new("a CA bundle"));
        for certificate in parsed.into_iter().flatten() {
            if is_valid_at(&certificate, now) && !all.contains(&certificate) {
                all.push(certificate);
            }
        }
    }
    all.iter()
        .map(|certificate| encode_block("CERTIFICATE", certificate))
        .collect()
}

fn is_valid_at(der: &CertificateDer<'_>, now: Timestamp) -> bool {
    X509Certificate::from_der(der).is_ok_and(|(_, certificate)| {
        let end = certificate.validity().not_after.timestamp();
        end > now.as_second() - SLACK_SECONDS
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    fn pem(year: i32) -> String {
        let mut params = CertificateParams::default();
        params.not_after = date_time_ymd(year, 1, 1);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        certificate.pem().replace("\r\n", "\n")
    }

    #[test]
    fn certificates_are_combined_once_and_without_expired_ones() {
        let (old, new, expired) = (pem(2040), pem(2050), pem(2030));
        let now = |time: &str| time.parse::<Timestamp>().unwrap();
        let (before, after) = (now("2030-01-01T00:04:59Z"), now("2030-01-01T00:05:00Z"));
        let both = format!("{old}{new}");
        let noisy = format!("# old\n{old}-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n");
        for (case, bundles, at, expect) in [
            ("none", vec![], after, String::new()),
            ("empty", vec!["", "no PEM"], after, String::new()),
            ("same", vec![&old, &old], after, old.clone()),
            ("rotation", vec![&old, &new], after, both.clone()),
            (
                "order of the first",
                vec![&both, &new, &old],
                after,
                both.clone(),
            ),
            ("other blocks", vec![&noisy, &new], after, both.clone()),
            ("expired", vec![&expired, &new], after, new.clone()),
            (
                "slack",
                vec![&expired, &new],
                before,
                format!("{expired}{new}"),
            ),
        ] {
            assert_eq!(combine_ca_bundles(&bundles, at), expect, "{case}");
        }
    }
}
