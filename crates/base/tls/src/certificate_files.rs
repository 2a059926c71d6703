//! Expirations of the certificates that a process itself uses, read from their files.

use crate::pem;
use std::path::PathBuf;

/// The files with certificates, by the flags that name them.
#[derive(Debug, Default)]
pub struct CertificateFiles(Vec<(&'static str, PathBuf)>);

impl CertificateFiles {
    /// Returns the files of these flags.
    #[must_use]
    pub fn new(files: Vec<(&'static str, PathBuf)>) -> Self {
        Self(files)
    }

    /// Reads all files. Returns flag, path and expiration, in seconds since 1970. A file that can't
    /// be read or has no certificate is omitted.
    ///
    /// The files are read each time, because a renewal replaces them.
    #[must_use]
    pub fn read_expirations(&self) -> Vec<(&'static str, String, i64)> {
        let read = |(flag, path): &(&'static str, PathBuf)| {
            let pem = pem::read_file(path).ok()?;
            let end = pem::find_first_expiration(&pem)?;
            Some((*flag, path.display().to_string(), end))
        };
        self.0.iter().filter_map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    fn make_pem(year: i32) -> String {
        let mut params = CertificateParams::default();
        params.not_after = date_time_ymd(year, 1, 1);
        params
            .self_signed(&KeyPair::generate().unwrap())
            .unwrap()
            .pem()
    }

    #[test]
    fn expiration_is_that_of_the_first_certificate_of_a_file_to_expire() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.crt");
        let files = CertificateFiles::new(vec![
            ("tls-cert-file", path.clone()),
            ("client-ca-file", dir.path().join("absent.crt")),
        ]);
        assert_eq!(files.read_expirations(), []);
        for (text, expected) in [
            ("no certificate".to_owned(), None),
            (make_pem(2040), Some(2_208_988_800)),
            // Renewed.
            (make_pem(2050), Some(2_524_608_000)),
            (make_pem(2050) + &make_pem(2040), Some(2_208_988_800)),
        ] {
            std::fs::write(&path, text).unwrap();
            let expected = expected.map(|end| ("tls-cert-file", path.display().to_string(), end));
            assert_eq!(files.read_expirations(), Vec::from_iter(expected));
        }
    }
}
