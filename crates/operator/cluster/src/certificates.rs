//! The certificates of a cluster on this machine, for `ironclad certs`.

use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use operator_pki::{Renewal, summarize_certificate};
use serde::Serialize;

use crate::cluster_files::{write_files, write_plan};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::settings::Settings;
use crate::systemd;

/// Rest of the validity in which a certificate is warned about. The software renews those that it can
/// long before.
const WARN_BEFORE_DAYS: i64 = 30;
const DAY: i64 = 24 * 60 * 60;

/// A certificate in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateFile {
    /// Path below the directory of certificates.
    pub name: String,
    /// Common name of the subject.
    pub subject: String,
    /// Common name of the CA that signed it.
    pub issuer: String,
    /// End of its validity.
    pub expires: Timestamp,
    /// The software renews it before its end: the supervisor, or the kubelet of a machine that joined.
    pub is_renewed: bool,
}

impl CertificateFile {
    /// Returns the days until the end; negative after it.
    #[must_use]
    pub fn days_left(&self, now: Timestamp) -> i64 {
        (self.expires.as_second() - now.as_second()).div_euclid(DAY)
    }

    /// Returns a warning if the end is near.
    #[must_use]
    pub fn warning(&self, now: Timestamp) -> Option<String> {
        let days = self.days_left(now);
        if days >= WARN_BEFORE_DAYS {
            return None;
        }
        let remedy = match self.is_renewed {
            true => {
                "it should have been renewed; see the log of the supervisor, or run `ironclad certs renew`"
            }
            false => "it is not renewed by the software; see docs/operations/certificates.md",
        };
        let end = match days {
            ..0 => "has expired".to_owned(),
            days => format!("expires in {days} days"),
        };
        Some(format!("the certificate {} {end}; {remedy}", self.name))
    }
}

/// Returns the certificates of the cluster in `data_dir`, or of this machine if it joined another one,
/// in the order of their ends.
pub fn list_certificates(data_dir: &Path) -> Result<Vec<CertificateFile>> {
    let settings = load_settings(data_dir)?;
    let folder = Layout::for_settings(&settings).pki();
    let mut paths = Vec::new();
    find_files(&folder, &mut paths)?;
    let mut all: Vec<CertificateFile> = paths
        .iter()
        .filter_map(|path| {
            let summary = summarize_certificate(&fs::read(path).ok()?)?;
            Some(CertificateFile {
                name: path.strip_prefix(&folder).ok()?.display().to_string(),
                subject: summary.subject,
                issuer: summary.issuer,
                expires: Timestamp::from_second(summary.end).ok()?,
                is_renewed: !summary.is_authority,
            })
        })
        .collect();
    all.sort_by(|a, b| (a.expires, &a.name).cmp(&(b.expires, &b.name)));
    Ok(all)
}

/// Issues all certificates but those of the CAs again. Returns their names, and whether a supervisor
/// restarts what uses them.
pub fn renew_certificates(data_dir: &Path) -> Result<(Vec<String>, bool)> {
    let settings = load_settings(data_dir)?;
    if let Some(membership) = &settings.membership {
        return Err(Error::Refused(format!(
            "this machine joined the cluster at {}; its kubelet requests a new certificate by itself",
            membership.server
        )));
    }
    let layout = Layout::for_settings(&settings);
    let written = write_files(&settings, &layout, Renewal::All)?;
    write_plan(&settings, &layout)?;
    Ok((written, systemd::notify_supervisor(&layout)?))
}

/// Logs a warning for each certificate whose end is near.
pub(crate) fn log_warnings(settings: &Settings) {
    let now = Timestamp::now();
    for certificate in list_certificates(&settings.data_dir).unwrap_or_default() {
        if let Some(warning) = certificate.warning(now) {
            tracing::warn!("{warning}");
        }
    }
}

fn load_settings(data_dir: &Path) -> Result<Settings> {
    Settings::load(data_dir)?.ok_or_else(|| {
        Error::Refused(format!(
            "{} holds no cluster; name its folder with --data-dir",
            data_dir.display()
        ))
    })
}

/// Adds the files below a folder that may be certificates.
fn find_files(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(Error::io(folder))? {
        let path = entry.map_err(Error::io(folder))?.path();
        if path.is_dir() {
            find_files(&path, found)?;
        } else if path.extension().is_some_and(|end| end == "crt")
            // The dated files beside it are the kubelet's earlier ones.
            || path.file_name().is_some_and(|name| name.to_string_lossy().ends_with("-current.pem"))
        {
            found.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn end_that_is_near_is_warned_about_with_the_remedy() {
        let now = Timestamp::now();
        let warning = |days: i64, is_renewed| {
            let certificate = CertificateFile {
                name: "x.crt".to_owned(),
                subject: String::new(),
                issuer: String::new(),
                expires: Timestamp::from_second(now.as_second() + days * DAY).unwrap(),
                is_renewed,
            };
            certificate.warning(now)
        };
        assert_eq!((warning(30, true), warning(4000, false)), (None, None));
        let text = warning(29, true).unwrap();
        assert!(
            text.contains("x.crt expires in 29 days") && text.contains("certs renew"),
            "{text}"
        );
        let text = warning(-1, false).unwrap();
        assert!(
            text.contains("has expired") && text.contains("not renewed"),
            "{text}"
        );
    }
}
