//! The certificates of a cluster on this machine, for `ironclad certs`.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use operator_pki::{Renewal, list_leaf_names, summarize_certificate};
use serde::Serialize;

use crate::cluster_files::{certificate_names, write_credentials};
use crate::command_lock::lock_existing;
use crate::error::{Error, Result};
use crate::kubelet_renewal::list_kubelet_files;
use crate::layout::Layout;
use crate::settings::Settings;
use crate::upgrade_state::reject_unfinished_upgrade;

/// Days before the expiration from which on there are warnings. Renewals come long before.
const WARN_BEFORE_DAYS: i64 = 30;
const DAY: i64 = 24 * 60 * 60;

/// The process that renews a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Renewer {
    /// The supervisor of the cluster.
    Supervisor,
    /// The kubelet of a machine that joined.
    Kubelet,
}

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
    /// Expiration.
    pub expires: Timestamp,
    /// The process that renews it; None for certificates of CAs, and for those that no component
    /// uses.
    pub renewed_by: Option<Renewer>,
    /// True for the certificate of a CA.
    pub is_ca: bool,
}

impl CertificateFile {
    /// Returns the days until the expiration; negative after it.
    #[must_use]
    pub fn days_left(&self, now: Timestamp) -> i64 {
        // Rounded down: 0 on the last day, and negative as soon as it has expired.
        (self.expires.as_second() - now.as_second()).div_euclid(DAY)
    }

    /// Returns a warning if the expiration is near.
    #[must_use]
    pub fn warning(&self, now: Timestamp) -> Option<String> {
        let days = self.days_left(now);
        if days >= WARN_BEFORE_DAYS {
            return None;
        }
        let remedy = match (self.renewed_by, self.is_ca) {
            (Some(Renewer::Supervisor), _) => {
                "the supervisor should have renewed it; see its log, or run `ironclad certs renew`"
            }
            (Some(Renewer::Kubelet), _) => {
                "the kubelet should have renewed it; see its log and run `ironclad certs renew`, or `ironclad join` with a token if it has expired"
            }
            (None, true) => {
                "certificates of CAs are not renewed; see docs/operations/certificates.md"
            }
            (None, false) => "no component uses it; remove it if you don't either",
        };
        let expires = match days {
            ..0 => "has expired".to_owned(),
            0 => "expires today".to_owned(),
            1 => "expires tomorrow".to_owned(),
            days => format!("expires in {days} days"),
        };
        Some(format!("the certificate {} {expires}; {remedy}", self.name))
    }
}

/// Returns the certificates of the cluster in `data_dir`, or of this machine if it joined another
/// one, soonest expiration first.
///
/// # Errors
/// A file can't be read, or has no certificate.
pub fn list_certificates(data_dir: &Path) -> Result<Vec<CertificateFile>> {
    let settings = Settings::load_existing(data_dir)?;
    let directory = Layout::for_settings(&settings).pki();
    let used: HashSet<String> = match settings.membership {
        // The supervisor renews nothing on such a machine: its kubelet requests its certificates.
        Some(_) => HashSet::new(),
        None => list_leaf_names(&certificate_names(&settings))
            .into_iter()
            .collect(),
    };
    let mut paths = Vec::new();
    find_files(&directory, &mut paths)?;
    let mut all = paths
        .iter()
        .map(|path| read_certificate(&directory, path, &used))
        .collect::<Result<Vec<_>>>()?;
    all.sort_by(|a, b| (a.expires, &a.name).cmp(&(b.expires, &b.name)));
    Ok(all)
}

fn read_certificate(
    directory: &Path,
    path: &Path,
    used: &HashSet<String>,
) -> Result<CertificateFile> {
    let damaged = || {
        Error::Refused(format!(
            "{} has no certificate; remove it, and `ironclad up` makes it again if it is needed",
            path.display()
        ))
    };
    let content = fs::read(path).map_err(Error::io(path))?;
    let found = summarize_certificate(&content).ok_or_else(damaged)?;
    let name = path
        .strip_prefix(directory)
        .unwrap_or(path)
        .display()
        .to_string();
    let renewed_by = match name.strip_suffix(".crt") {
        Some(leaf) => used.contains(leaf).then_some(Renewer::Supervisor),
        // Of the files that are found, only the kubelet's have another ending.
        None => Some(Renewer::Kubelet),
    };
    Ok(CertificateFile {
        name,
        subject: found.subject,
        issuer: found.issuer,
        expires: Timestamp::from_second(found.expiration).map_err(|_| damaged())?,
        renewed_by,
        is_ca: found.is_ca,
    })
}

/// Renews leaf certificates: those with these names, or all if none is named, and those that are
/// due. Returns the names of the written ones. Running components follow their files.
///
/// # Errors
/// No component uses a certificate of a given name, or the files can't be written.
pub fn renew_certificates(data_dir: &Path, names: &[String]) -> Result<Vec<String>> {
    let _lock = lock_existing(data_dir)?;
    let settings = Settings::load_existing(data_dir)?;
    if let Some(membership) = &settings.membership {
        return Err(Error::Refused(format!(
            "this machine joined the cluster at {}; its kubelet requests a new certificate by itself",
            membership.server
        )));
    }
    let layout = Layout::for_settings(&settings);
    reject_unfinished_upgrade(&layout)?;
    let names: Vec<String> = names
        .iter()
        .map(|name| leaf_name(name).to_owned())
        .collect();
    let known = list_leaf_names(&certificate_names(&settings));
    if let Some(name) = names.iter().find(|name| !known.contains(name)) {
        return Err(Error::Refused(format!(
            "{name} is not a certificate that is renewed; those are: {}",
            known.join(", ")
        )));
    }
    let renewal = match names.is_empty() {
        true => Renewal::All,
        false => Renewal::Named(&names),
    };
    write_credentials(&settings, &layout, renewal)
}

/// Returns the name of a certificate without the ending with which `certs list` shows it.
fn leaf_name(name: &str) -> &str {
    name.strip_suffix(".crt").unwrap_or(name)
}

/// Logs a warning for each certificate whose expiration is near.
pub(crate) fn log_warnings(settings: &Settings) {
    let now = Timestamp::now();
    match list_certificates(&settings.data_dir) {
        Err(error) => tracing::warn!(%error, "certificates can't be listed"),
        Ok(all) => {
            for warning in all
                .iter()
                .filter_map(|certificate| certificate.warning(now))
            {
                tracing::warn!("{warning}");
            }
        }
    }
}

/// Adds the files with certificates below a directory.
fn find_files(directory: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory).map_err(Error::io(directory))? {
        let path = entry.map_err(Error::io(directory))?.path();
        if path.is_dir() {
            find_files(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "crt")
            || list_kubelet_files().any(|name| path.ends_with(name))
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
    fn expiration_that_is_near_is_warned_about_with_the_remedy() {
        let now = Timestamp::now();
        let warning = |days: i64, renewed_by, is_ca| {
            let certificate = CertificateFile {
                name: "x.crt".to_owned(),
                subject: String::new(),
                issuer: String::new(),
                expires: Timestamp::from_second(now.as_second() + days * DAY).unwrap(),
                renewed_by,
                is_ca,
            };
            certificate.warning(now)
        };
        let supervisor = Some(Renewer::Supervisor);
        assert_eq!(warning(30, supervisor, false), None);
        assert_eq!(warning(4000, None, true), None);
        for (found, texts) in [
            (
                warning(29, supervisor, false),
                ["x.crt expires in 29 days", "certs renew"],
            ),
            (
                warning(0, Some(Renewer::Kubelet), false),
                ["expires today", "ironclad join"],
            ),
            (
                warning(1, supervisor, false),
                ["expires tomorrow", "certs renew"],
            ),
            (
                warning(-1, None, true),
                ["has expired", "CAs are not renewed"],
            ),
            (
                warning(-1, None, false),
                ["has expired", "no component uses it"],
            ),
        ] {
            let found = found.unwrap();
            assert!(texts.iter().all(|text| found.contains(text)), "{found}");
        }
    }

    #[test]
    fn certificates_of_former_nodes_are_used_by_no_component() {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = Settings::example();
        settings.data_dir = dir.path().to_owned();
        settings.save().unwrap();
        let layout = Layout::for_settings(&settings);
        write_credentials(&settings, &layout, Renewal::Due).unwrap();
        let old = layout.pki().join("kubelet-former.crt");
        fs::copy(layout.pki().join("dns.crt"), &old).unwrap();
        let all = list_certificates(dir.path()).unwrap();
        let unused: Vec<_> = all
            .iter()
            .filter(|found| found.renewed_by.is_none())
            .collect();
        let mut names: Vec<_> = unused.iter().map(|found| found.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "ca.crt",
                "etcd/ca.crt",
                "front-proxy-ca.crt",
                "kubelet-former.crt"
            ]
        );
        fs::write(&old, "").unwrap();
        let error = list_certificates(dir.path()).unwrap_err().to_string();
        assert!(
            error.contains("kubelet-former.crt has no certificate"),
            "{error}"
        );
    }
    #[test]
    fn named_certificates_are_renewed_and_unknown_names_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = Settings::example();
        settings.data_dir = dir.path().to_owned();
        settings.save().unwrap();
        let layout = Layout::for_settings(&settings);
        let renew = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
            renew_certificates(dir.path(), &names)
        };
        assert!(renew(&[]).unwrap().len() > 10, "all, and the keys");
        let read = |name: &str| fs::read(layout.pki().join(name)).unwrap();
        let before = (
            read("scheduler.crt"),
            read("etcd/peer.crt"),
            read("dns.crt"),
        );
        let renewed = renew(&["scheduler.crt", "etcd/peer"]).unwrap();
        assert_eq!(renewed, ["etcd/peer", "scheduler"]);
        assert_ne!(read("scheduler.crt"), before.0);
        assert_ne!(read("etcd/peer.crt"), before.1);
        assert_eq!(read("dns.crt"), before.2);
        for name in ["ca", "etcd/ca.crt", "sa", "kubelet-former", "../scheduler"] {
            let refused = renew(&[name]).unwrap_err().to_string();
            assert!(
                refused.contains("is not a certificate that is renewed"),
                "{refused}"
            );
        }
    }
}
