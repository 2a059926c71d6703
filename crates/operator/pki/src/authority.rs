//! A certificate authority, stored as `NAME.crt` and `NAME.key`.

use std::path::{Path, PathBuf};

use base_tls::load_signing_key;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use time::{Duration, OffsetDateTime};

use crate::Error;
use crate::files::{read_optional, write_private, write_public};
use crate::key_pair::belongs_to_key;

/// Lifetime of a CA. Replacing one means replacing every certificate it signed.
// Ten years, as kubeadm's `CACertificateValidityPeriod`.
const LIFETIME: Duration = Duration::days(3650);

/// A CA with its key.
pub struct Authority {
    path: PathBuf,
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Loads `NAME.crt` and `NAME.key` in `folder`, or creates them.
    ///
    /// # Errors
    /// A file is missing or can't be used, or the key is not that of the certificate, as between
    /// two writes of a new pair: no client could verify what it signs.
    pub fn ensure(folder: &Path, name: &str, common_name: &str) -> Result<Self, Error> {
        let crt = folder.join(format!("{name}.crt"));
        let key = folder.join(format!("{name}.key"));
        match (read_optional(&crt)?, read_optional(&key)?) {
            (Some(certificate), Some(key_pem)) => {
                let authority = Self::from_pem(&crt, certificate, &key_pem)?;
                // The texts that are used, because the files can be replaced after the reads.
                match belongs_to_key(&authority.certificate, &key_pem) {
                    true => Ok(authority),
                    false => Err(Error::OtherKey(key)),
                }
            }
            (None, None) => Self::create_pair(&crt, &key, common_name),
            // A new key would make every certificate of the CA invalid without a word.
            (Some(_), None) => Err(Error::Half(key)),
            (None, Some(_)) => Err(Error::Half(crt)),
        }
    }

    fn from_pem(crt: &Path, certificate: String, key: &str) -> Result<Self, Error> {
        let bad = |cause| Error::Certificate {
            path: crt.to_owned(),
            cause,
        };
        let pair = load_signing_key(key).map_err(bad)?;
        let issuer = Issuer::from_ca_cert_pem(&certificate, pair).map_err(bad)?;
        Ok(Self {
            path: crt.to_owned(),
            certificate,
            issuer,
        })
    }

    fn create_pair(crt: &Path, key: &Path, common_name: &str) -> Result<Self, Error> {
        let bad = |cause| Error::Certificate {
            path: crt.to_owned(),
            cause,
        };
        let pair = KeyPair::generate().map_err(bad)?;
        let mut params = CertificateParams::new(Vec::new()).map_err(bad)?;
        // rcgen's default has a common name of rcgen itself.
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
        ];
        let now = OffsetDateTime::now_utc();
        // The clocks of other machines may be behind.
        params.not_before = now - Duration::minutes(5);
        params.not_after = now + LIFETIME;
        let certificate = params.self_signed(&pair).map_err(bad)?.pem();
        // The key first: a crash in between leaves a half, which the next run names, and no
        // certificate without its key.
        write_private(key, pair.serialize_pem().as_bytes())?;
        write_public(crt, certificate.as_bytes())?;
        Self::from_pem(crt, certificate, &pair.serialize_pem())
    }

    /// Returns the path of the certificate.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the certificate in PEM.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    pub(crate) fn issuer(&self) -> &Issuer<'static, KeyPair> {
        &self.issuer
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn key_of_another_ca_is_refused_by_each_load() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["former", "next"] {
            Authority::ensure(dir.path(), name, name).unwrap();
        }
        let key = dir.path().join("former.key");
        std::fs::copy(dir.path().join("next.key"), &key).unwrap();
        let loaded = Authority::ensure(dir.path(), "former", "former");
        assert!(matches!(loaded, Err(Error::OtherKey(path)) if path == key));
    }
}
