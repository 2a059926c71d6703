//! Maps the usages of the certificates API to X.509.

use rcgen::{ExtendedKeyUsagePurpose as Extended, KeyUsagePurpose as Usage};

use crate::error::CaError;

/// Sorts usages into key usages and extended ones, without duplicates. "cert sign" and "crl sign"
/// are omitted: they are for CAs, and no certificate signed here is a CA.
///
/// # Errors
/// A usage that the API does not define.
pub fn parse_usages(names: &[&str]) -> Result<(Vec<Usage>, Vec<Extended>), CaError> {
    let (mut usages, mut extended) = (Vec::new(), Vec::new());
    for name in names {
        if let Some(usage) = find_key_usage(name) {
            push_new(&mut usages, usage);
        } else if let Some(usage) = find_extended_usage(name) {
            push_new(&mut extended, usage);
        } else if !matches!(*name, "cert sign" | "crl sign") {
            return Err(CaError::Usage((*name).to_owned()));
        }
    }
    Ok((usages, extended))
}

fn push_new<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

fn find_key_usage(name: &str) -> Option<Usage> {
    Some(match name {
        "digital signature" | "signing" => Usage::DigitalSignature,
        "content commitment" => Usage::ContentCommitment,
        "key encipherment" => Usage::KeyEncipherment,
        "key agreement" => Usage::KeyAgreement,
        "data encipherment" => Usage::DataEncipherment,
        "encipher only" => Usage::EncipherOnly,
        "decipher only" => Usage::DecipherOnly,
        _ => return None,
    })
}

fn find_extended_usage(name: &str) -> Option<Extended> {
    Some(match name {
        "any" => Extended::Any,
        "server auth" => Extended::ServerAuth,
        "client auth" => Extended::ClientAuth,
        "code signing" => Extended::CodeSigning,
        "email protection" | "s/mime" => Extended::EmailProtection,
        "ipsec end system" => Extended::Other(vec![1, 3, 6, 1, 5, 5, 7, 3, 5]),
        "ipsec tunnel" => Extended::Other(vec![1, 3, 6, 1, 5, 5, 7, 3, 6]),
        "ipsec user" => Extended::Other(vec![1, 3, 6, 1, 5, 5, 7, 3, 7]),
        "timestamping" => Extended::TimeStamping,
        "ocsp signing" => Extended::OcspSigning,
        "microsoft sgc" => Extended::Other(vec![1, 3, 6, 1, 4, 1, 311, 10, 3, 3]),
        "netscape sgc" => Extended::Other(vec![2, 16, 840, 1, 113_730, 4, 1]),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    #[test]
    fn usages_are_sorted_into_key_usages_and_extended_ones_once() {
        let names = [
            "digital signature",
            "signing",
            "client auth",
            "client auth",
            "server auth",
        ];
        let (usages, extended) = parse_usages(&names).unwrap();
        assert_eq!(usages, [Usage::DigitalSignature]);
        assert_eq!(extended, [Extended::ClientAuth, Extended::ServerAuth]);
    }

    #[test]
    fn usages_of_certificate_authorities_are_omitted() {
        let (usages, extended) = parse_usages(&["cert sign", "crl sign"]).unwrap();
        assert!(usages.is_empty() && extended.is_empty());
    }

    #[test]
    fn unknown_usage_is_rejected() {
        let error = parse_usages(&["client auth", "flying"]).unwrap_err();
        assert_eq!(error.to_string(), "unrecognized usage value: \"flying\"");
    }
}
