//! Restores a cluster from a backup.
//!
//! Everything is prepared in a folder of its own. Only then it takes the place of the existing files, which
//! are kept. The settings come last, and the folder of the preparation is removed after them: `up` refuses
//! to start as long as it exists.

use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::archive::{SETTINGS, SNAPSHOT, unpack};
use crate::checks::find_foreign_file;
use crate::command::run_command;
use crate::error::{Error, Result};
use crate::files;
use crate::layout::Layout;
use crate::settings::Settings;
use crate::status::cluster_status;
use crate::up::choose::{absolute_path, choose_bin_dir};

const STORE: &str = "store";
/// Added to the revision, so that clients with caches notice that the past has changed. etcd recommends this
/// number.
const REVISIONS: &str = "1000000000";

/// Options of `restore_cluster`.
#[derive(Debug, Clone)]
pub struct RestoreOptions {
    /// Data directory.
    pub data_dir: PathBuf,
    /// The backup.
    pub file: PathBuf,
    /// Directory of the binaries; None for that of this program.
    pub bin_dir: Option<PathBuf>,
}

/// Returns what a backup has of the data directory, besides the settings.
pub(super) fn list_parts(settings: &Settings) -> Vec<PathBuf> {
    let further = (2..=settings.node_count).map(|number| format!("nodes/{number}/manifests"));
    // The markers say that rights were granted: without them `up` would grant what an administrator may
    // have taken away.
    let parts = [
        "pki",
        "manifests",
        "config/bootstrap-rights-granted",
        "config/join-rights-granted",
    ];
    let parts = parts.map(str::to_owned).into_iter().chain(further);
    parts.map(PathBuf::from).collect()
}

/// Makes the data directory of a cluster from a backup. Returns the folder with what was in its place.
pub async fn restore_cluster(
    options: &RestoreOptions,
    report_progress: &dyn Fn(&str),
) -> Result<Option<PathBuf>> {
    let data_dir = absolute_path(&options.data_dir)?;
    let prepared = Layout::new(&data_dir, false).restore();
    refuse_wrong_folder(&data_dir, &prepared).await?;
    let was_interrupted = prepared.is_dir();
    base_task::blocking(|| {
        files::remove_dir(&prepared)?;
        files::create_dir(&data_dir, 0o755)?;
        files::create_private_dir(&prepared)?;
        let settings =
            prepare(options, &data_dir, &prepared, report_progress).inspect_err(|_| {
                // Nothing was changed, so nothing has to be repeated, unless an earlier restore was.
                if !was_interrupted {
                    let _ = files::remove_dir(&prepared);
                }
            })?;
        report_progress("replacing the files");
        let kept = replace_parts(&settings, &prepared)?;
        files::remove_dir(&prepared)?;
        Ok(kept)
    })
}

/// Unpacks the backup and makes the store's directory. Returns the settings for this machine.
fn prepare(
    options: &RestoreOptions,
    data_dir: &Path,
    prepared: &Path,
    report_progress: &dyn Fn(&str),
) -> Result<Settings> {
    report_progress("unpacking");
    let description = unpack(&options.file, prepared)?;
    let mut settings = load_settings(prepared)?;
    settings.data_dir = data_dir.to_owned();
    settings.bin_dir = choose_bin_dir(options.bin_dir.as_deref(), None, "kvstore")?;
    report_progress(&format!(
        "restoring the objects of {}",
        description.created.strftime("%Y-%m-%d %H:%M:%S UTC")
    ));
    make_store(&settings, prepared)?;
    Ok(settings)
}

async fn refuse_wrong_folder(data_dir: &Path, prepared: &Path) -> Result<()> {
    let folder = data_dir.display();
    let Some(settings) = Settings::load(data_dir)? else {
        return match find_foreign_file(data_dir)? {
            Some(name) if !prepared.is_dir() => Err(Error::Refused(format!(
                "{folder} is no cluster's folder: {name:?} is in it; give an empty or a new one with --data-dir"
            ))),
            _ => Ok(()),
        };
    };
    if let Some(membership) = settings.membership {
        return Err(Error::Refused(format!(
            "this machine joined the cluster at {}; `ironclad reset` removes what belongs to it",
            membership.server
        )));
    }
    let status = cluster_status(data_dir).await?;
    if status.supervised || status.components.iter().any(|component| component.running) {
        return Err(Error::Refused(format!(
            "the cluster in {folder} runs; stop it with `ironclad down`"
        )));
    }
    Ok(())
}

fn load_settings(folder: &Path) -> Result<Settings> {
    let refuse = |why: &str| Error::Refused(format!("the backup's {SETTINGS} {why}"));
    let settings = Settings::load(folder)?.ok_or_else(|| refuse("is missing"))?;
    match settings.membership {
        Some(_) => Err(refuse("is that of a machine without the cluster's objects")),
        None => Ok(settings),
    }
}

/// Makes the store's directory from the snapshot.
fn make_store(settings: &Settings, prepared: &Path) -> Result<()> {
    let program = settings.bin_dir.join("kvstore");
    let peer = format!("https://127.0.0.1:{}", settings.ports.store_peer);
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let (program, snapshot, target) = (
        text(program),
        text(prepared.join(SNAPSHOT)),
        text(prepared.join(STORE)),
    );
    let name = format!("--name={}", settings.node_name);
    let members = format!("--initial-cluster={}={peer}", settings.node_name);
    let url = format!("--initial-advertise-peer-urls={peer}");
    let words = [
        "snapshot",
        "restore",
        &snapshot,
        "--data-dir",
        &target,
        &name,
        &members,
        &url,
        "--bump-revision",
        REVISIONS,
        "--mark-compacted",
    ];
    run_command(&program, &words).map(drop)
}

/// Puts the prepared files in the place of the present ones. Returns the folder with those.
fn replace_parts(settings: &Settings, prepared: &Path) -> Result<Option<PathBuf>> {
    let data_dir = &settings.data_dir;
    let time = Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
    let kept = data_dir.join(format!("before-restore-{time}"));
    let mut parts = vec![PathBuf::from(STORE)];
    parts.extend(list_parts(settings));
    let present = data_dir.join(SETTINGS);
    if present.is_file() {
        files::create_private_dir(&kept)?;
        let copy = kept.join(SETTINGS);
        fs::copy(&present, &copy).map_err(Error::io(&copy))?;
    }
    for part in parts {
        let (new, target) = (prepared.join(&part), data_dir.join(&part));
        if target.symlink_metadata().is_ok() {
            files::create_private_dir(&kept)?;
            move_file(&target, &kept.join(&part))?;
        }
        if new.exists() {
            move_file(&new, &target)?;
        }
    }
    settings.save()?;
    let folder = fs::File::open(data_dir).and_then(|folder| folder.sync_all());
    folder.map_err(Error::io(data_dir))?;
    Ok(kept.is_dir().then_some(kept))
}

fn move_file(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        files::create_dir(folder, 0o755)?;
    }
    fs::rename(from, to).map_err(Error::io(to))
}
