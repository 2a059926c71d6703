//! `ironclad certs renew` on a machine that joined as a worker. Its kubelet requests the
//! certificates from the cluster, because the machine has no key of a CA: this program writes
//! a request file for each certificate, and waits until the kubelet removes it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::command_lock::lock_existing;
use crate::error::{Error, Result};
use crate::files;
use crate::layout::Layout;
use crate::settings::Settings;

/// Time for a renewal. The kubelet looks for requests every 5 s, and the controller manager signs
/// within a second.
const RENEWAL_SECONDS: u64 = 60;
const PAUSE: Duration = Duration::from_millis(200);
/// The names of the kubelet's files, without what follows in each.
const KUBELET_CERTIFICATES: [&str; 2] = ["kubelet-client", "kubelet-server"];
const CURRENT: &str = "-current.pem";

/// Returns the names of the files with the current certificates of a joined machine's kubelet.
pub(crate) fn list_kubelet_files() -> impl Iterator<Item = String> {
    KUBELET_CERTIFICATES
        .into_iter()
        .map(|name| format!("{name}{CURRENT}"))
}

/// Renews the certificates of the kubelet, or those with these names. Returns the names of the
/// renewed ones; None on a machine that did not join as a worker.
///
/// # Errors
/// A name is not that of a certificate of the kubelet, or the kubelet renews none within a minute.
pub(crate) async fn renew_kubelet_certificates(
    data_dir: &Path,
    names: &[String],
) -> Result<Option<Vec<String>>> {
    let _lock = base_task::blocking(|| lock_existing(data_dir))?;
    let settings = base_task::blocking(|| Settings::load_existing(data_dir))?;
    if settings.membership.is_none() {
        return Ok(None);
    }
    let layout = Layout::for_settings(&settings);
    let chosen = choose_certificates(names)?;
    let requests: Vec<_> = chosen
        .iter()
        .map(|name| request_path(&layout, name))
        .collect();
    for request in &requests {
        base_task::blocking(|| files::write_private(request, b""))?;
    }
    wait_until_removed(&requests, &layout).await?;
    let files = chosen.iter().map(|name| format!("{name}{CURRENT}"));
    Ok(Some(files.collect()))
}

/// Returns the path of the file that makes a certificate due, by the convention of the kubelet.
fn request_path(layout: &Layout, name: &str) -> PathBuf {
    layout.pki().join(format!("{name}-due"))
}

/// Returns the certificates with these names, as `certs list` shows them; all if there are none.
fn choose_certificates(names: &[String]) -> Result<Vec<&'static str>> {
    if names.is_empty() {
        return Ok(KUBELET_CERTIFICATES.into());
    }
    let find = |name: &String| {
        let file = name.strip_suffix(".pem").unwrap_or(name);
        let short = file.strip_suffix("-current").unwrap_or(file);
        let found = KUBELET_CERTIFICATES.into_iter().find(|own| *own == short);
        found.ok_or_else(|| {
            Error::Refused(format!(
                "{name} is not a certificate that is renewed on this machine, which joined the cluster; those are: {}",
                list_kubelet_files().collect::<Vec<_>>().join(", ")
            ))
        })
    };
    names.iter().map(find).collect()
}

async fn wait_until_removed(requests: &[PathBuf], layout: &Layout) -> Result<()> {
    let removed = async {
        for request in requests {
            while tokio::fs::try_exists(request).await.unwrap_or(true) {
                tokio::time::sleep(PAUSE).await;
            }
        }
    };
    let limit = Duration::from_secs(RENEWAL_SECONDS);
    tokio::time::timeout(limit, removed)
        .await
        .map_err(|_| Error::Late {
            what: "the renewal of the kubelet's certificates, which it tries again".to_owned(),
            seconds: RENEWAL_SECONDS,
            log: layout.log("kubelet"),
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn joined_machine(dir: &Path) -> Layout {
        let settings = Settings {
            data_dir: dir.into(),
            ..Settings::example_joined()
        };
        settings.save().unwrap();
        let layout = Layout::for_settings(&settings);
        files::create_dir(&layout.pki(), 0o711).unwrap();
        layout
    }

    async fn renew(dir: &Path, names: &[&str]) -> Result<Option<Vec<String>>> {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        renew_kubelet_certificates(dir, &names).await
    }

    #[tokio::test]
    async fn renewal_ends_when_the_kubelet_has_removed_the_requests() {
        let dir = tempfile::tempdir().unwrap();
        let layout = joined_machine(dir.path());
        for (names, expected) in [
            (
                &[][..],
                &["kubelet-client-current.pem", "kubelet-server-current.pem"][..],
            ),
            (
                &["kubelet-server-current.pem"],
                &["kubelet-server-current.pem"],
            ),
            (&["kubelet-client"], &["kubelet-client-current.pem"]),
        ] {
            let kubelet = async {
                for file in expected {
                    let name = file.strip_suffix(CURRENT).unwrap();
                    let request = request_path(&layout, name);
                    while !request.exists() {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    files::remove_file(&request).unwrap();
                }
            };
            let (renewed, ()) = tokio::join!(renew(dir.path(), names), kubelet);
            assert_eq!(renewed.unwrap().unwrap(), expected);
        }
    }

    #[tokio::test]
    async fn other_names_are_refused_and_other_machines_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        joined_machine(dir.path());
        let refused = renew(dir.path(), &["scheduler"]).await.unwrap_err();
        assert!(
            refused.to_string().contains("kubelet-client-current.pem"),
            "{refused}"
        );
        let settings = Settings {
            data_dir: dir.path().into(),
            ..Settings::example()
        };
        settings.save().unwrap();
        assert_eq!(renew(dir.path(), &[]).await.unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn kubelet_that_does_not_run_is_named() {
        let dir = tempfile::tempdir().unwrap();
        joined_machine(dir.path());
        let late = renew(dir.path(), &[]).await.unwrap_err().to_string();
        assert!(late.contains("kubelet.log"), "{late}");
    }
}
