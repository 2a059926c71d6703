//! TLS versions and cipher suites of a server, named like in upstream's flags.

use crate::pem::TlsError;
use rustls::{SupportedCipherSuite, SupportedProtocolVersion, version};

/// Weak suites that Go knows and rustls does not implement. A list may contain them, because not
/// offering them is secure.
const NEVER_OFFERED: [&str; 16] = [
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
];

static ONLY_TLS13: &[&SupportedProtocolVersion] = &[&version::TLS13];

/// Versions and suites of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    pub(crate) versions: &'static [&'static SupportedProtocolVersion],
    pub(crate) suites: Vec<SupportedCipherSuite>,
}

impl Default for Offer {
    fn default() -> Self {
        Offer {
            versions: rustls::DEFAULT_VERSIONS,
            suites: crate::crypto_provider().cipher_suites.clone(),
        }
    }
}

impl Offer {
    /// Parses `--tls-min-version` and `--tls-cipher-suites`; empty values mean the defaults. The
    /// suites of TLS 1.3 are always offered, as in Go.
    ///
    /// # Errors
    /// A version below 1.2, an unknown version or an unknown suite.
    pub fn from_names(min_version: &str, suites: &[String]) -> Result<Self, TlsError> {
        let versions: &'static [&'static SupportedProtocolVersion] = match min_version {
            "" | "VersionTLS12" => rustls::DEFAULT_VERSIONS,
            "VersionTLS13" => ONLY_TLS13,
            other => {
                return Err(TlsError::Refused(format!(
                    "{other:?} is not VersionTLS12 or VersionTLS13"
                )));
            }
        };
        let mut offer = Offer {
            versions,
            ..Offer::default()
        };
        // An empty value of a flag is a list with one empty name.
        let suites: Vec<&String> = suites.iter().filter(|name| !name.is_empty()).collect();
        if !suites.is_empty() {
            // Before filtering, so that a misspelled name is an error and not a server that offers
            // less.
            let unknown = suites.iter().find(|name| !is_known(&offer, name));
            if let Some(name) = unknown {
                return Err(TlsError::Refused(format!("{name:?} is not a cipher suite")));
            }
            offer.suites.retain(|suite| {
                // Go does not let TLS 1.3 suites be chosen; lists written for Go name only those of
                // TLS 1.2.
                suite.tls13().is_some() || suites.iter().any(|name| is_named(*suite, name))
            });
        }
        Ok(offer)
    }

    /// Offers these versions in place of those named.
    #[must_use]
    pub fn with_versions(self, versions: &'static [&'static SupportedProtocolVersion]) -> Self {
        Offer { versions, ..self }
    }
}

fn is_known(offer: &Offer, name: &str) -> bool {
    NEVER_OFFERED.contains(&name) || offer.suites.iter().any(|suite| is_named(*suite, name))
}

/// Compares a suite with a name in Go. Suites of TLS 1.3 have another prefix there, and those of
/// ChaCha20 also a short form without the hash.
fn is_named(suite: SupportedCipherSuite, name: &str) -> bool {
    let own = suite
        .suite()
        .as_str()
        .unwrap_or_default()
        .replacen("TLS13_", "TLS_", 1);
    own == name
        || own
            .strip_suffix("_SHA256")
            .is_some_and(|short| short == name && name.ends_with("POLY1305"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn names(suites: &[&str]) -> Vec<String> {
        suites.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn listed_suites_and_those_of_tls_1_3_are_offered() {
        let listed = [
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
            "TLS_RSA_WITH_AES_128_CBC_SHA",
        ];
        let offer = Offer::from_names("VersionTLS12", &names(&listed)).unwrap();
        let (new, old) = offer
            .suites
            .iter()
            .partition::<Vec<&SupportedCipherSuite>, _>(|suite| suite.tls13().is_some());
        assert_eq!((new.len(), old.len()), (3, 2), "{offer:?}");
        for unlisted in [&[][..], &[""]] {
            assert_eq!(
                Offer::from_names("", &names(unlisted)).unwrap(),
                Offer::default()
            );
        }
    }

    #[test]
    fn minimum_version_1_3_is_offered_alone_and_unknown_names_are_errors() {
        assert_eq!(
            Offer::from_names("VersionTLS13", &[]).unwrap().versions,
            [&version::TLS13]
        );
        for (version, suite) in [
            ("VersionTLS10", ""),
            ("1.3", ""),
            ("", "TLS_ECDHE_RSA_WITH_AES_128_GCM"),
        ] {
            let suites = if suite.is_empty() {
                Vec::new()
            } else {
                names(&[suite])
            };
            assert!(
                Offer::from_names(version, &suites).is_err(),
                "{version} {suite}"
            );
        }
    }
}
