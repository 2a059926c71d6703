//! Restores a cluster from a backup.
//!
//! Everything is prepared in a directory of its own. Only then it takes the place of the existing
//! files, which are kept. From the first of them to the last, the settings, a file says that the
//! data directory is a mixture: then neither `up` nor the supervisor starts anything.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::archive::{Backup, SETTINGS, SNAPSHOT, sync_parent};
use super::parts::list_parts;
use crate::checks::find_foreign_file;
use crate::command::run_command;
use crate::control_plane::StoreMember;
use crate::error::{Error, Result};
use crate::files;
use crate::layout::Layout;
use crate::plan::format_member_url;
use crate::random_token::generate_bytes;
use crate::restore_state::{RestoreState, STATE};
use crate::settings::Settings;
use crate::status::cluster_status;
use crate::supervisor_record::lock_cluster;
use crate::up::choose::{absolute_path, choose_bin_dir};

const STORE: &str = "store";
/// Added to the revision, so that clients with caches notice that the past has changed. etcd
/// recommends this number.
const REVISIONS: &str = "1000000000";
/// Keys of the store that name the API servers of the former cluster: the one of each server, which
/// it renews as long as it runs, and the slice that is made of these. Clients would use them as
/// servers of the restored cluster. The API server makes its own again before it is ready.
const FORMER_SERVERS: [&str; 2] = [
    "/registry/masterleases/",
    "/registry/endpointslices/default/kubernetes",
];

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

/// Makes the data directory of a cluster from a backup. Returns the directory with the replaced
/// files.
pub async fn restore_cluster(
    options: &RestoreOptions,
    report_progress: &dyn Fn(&str),
) -> Result<Option<PathBuf>> {
    let data_dir = absolute_path(&options.data_dir)?;
    let layout = Layout::new(&data_dir, rustix::process::geteuid().is_root());
    let state = RestoreState::load(&layout)?;
    // Opened before anything is removed.
    let mut backup = Backup::open(&options.file)?;
    reject_file_within(&layout, &options.file)?;
    // Without settings, what an interrupted restore has put there looks like files of others.
    if state.as_ref().is_none_or(|state| state.kept.is_none()) {
        reject_foreign_files(&data_dir)?;
    }
    reject_running_cluster(&data_dir).await?;
    files::create_dir(&data_dir, 0o755)?;
    let _lock = lock_cluster(&layout)?;
    base_task::blocking(|| {
        let state = state.unwrap_or_default();
        clear_directory(&layout, &state)?;
        let prepared = prepare(&mut backup, options, &layout, report_progress);
        let settings = prepared.inspect_err(|_| {
            // Nothing was replaced, so nothing has to be repeated, unless an earlier restore had
            // begun to.
            if state.kept.is_none() {
                let _ = files::remove_dir(&layout.restore());
            }
        })?;
        report_progress("replacing the files");
        let kept = replace_parts(&settings, &layout, state)?;
        files::remove_dir(&layout.restore())?;
        Ok(kept.is_dir().then_some(kept))
    })
}

/// Makes the directory of the preparation, or removes from it what an earlier restore prepared.
fn clear_directory(layout: &Layout, state: &RestoreState) -> Result<()> {
    let directory = layout.restore();
    files::create_private_dir(&directory)?;
    state.save(layout)?;
    for entry in fs::read_dir(&directory).map_err(Error::io(&directory))? {
        let path = entry.map_err(Error::io(&directory))?.path();
        match path.is_dir() {
            true => files::remove_dir(&path)?,
            false if path.ends_with(STATE) => {}
            false => files::remove_file(&path)?,
        }
    }
    Ok(())
}

/// Unpacks the backup and makes the store's directory. Returns the settings for this machine.
fn prepare(
    backup: &mut Backup,
    options: &RestoreOptions,
    layout: &Layout,
    report_progress: &dyn Fn(&str),
) -> Result<Settings> {
    let prepared = layout.restore();
    report_progress("unpacking");
    let description = backup.unpack(&prepared)?;
    let mut settings = load_settings(&prepared)?;
    settings.data_dir = layout.data().to_owned();
    if let Some(shared) = &mut settings.control_plane {
        // The restored store has one member; the other machines join it again.
        shared.joined = None;
        shared.member = StoreMember::Unknown;
    }
    settings.bin_dir = choose_bin_dir(options.bin_dir.as_deref(), None, "kvstore")?;
    reject_foreign_disks(&settings)?;
    report_progress(&format!(
        "restoring the objects of {}",
        description.created.strftime("%Y-%m-%d %H:%M:%S UTC")
    ));
    make_store(&settings, &prepared)?;
    Ok(settings)
}

/// Rejects a backup in the directory that is cleared.
fn reject_file_within(layout: &Layout, file: &Path) -> Result<()> {
    let prepared = layout.restore().canonicalize();
    let file = file.canonicalize();
    if let (Ok(prepared), Ok(file)) = (prepared, file)
        && file.starts_with(prepared)
    {
        return Err(Error::Refused(format!(
            "{} is removed by a restore; move it elsewhere",
            file.display()
        )));
    }
    Ok(())
}

fn reject_foreign_files(data_dir: &Path) -> Result<()> {
    match find_foreign_file(data_dir)? {
        Some(name) => Err(Error::Refused(format!(
            "{} is no cluster's data directory: {name:?} is in it; give an empty or a new one with --data-dir",
            data_dir.display()
        ))),
        None => Ok(()),
    }
}

async fn reject_running_cluster(data_dir: &Path) -> Result<()> {
    let shown = data_dir.display();
    let settings = match Settings::load(data_dir) {
        // The usual remedy of this error is a restore, which this command already is.
        Err(Error::Settings { path, .. }) => {
            return Err(Error::Refused(format!(
                "{} is damaged; move {shown} elsewhere, and run the command again",
                path.display()
            )));
        }
        settings => settings?,
    };
    let Some(settings) = settings else {
        return Ok(());
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
            "the cluster in {shown} runs; stop it with `ironclad down`"
        )));
    }
    Ok(())
}

/// Rejects parts that can't be renamed: other file systems, and links, whose targets would stay
/// behind.
fn reject_foreign_disks(settings: &Settings) -> Result<()> {
    let device = |path: &Path| path.symlink_metadata().map(|metadata| metadata.dev()).ok();
    let own = device(&settings.data_dir);
    for part in [PathBuf::from(STORE)]
        .into_iter()
        .chain(list_parts(settings))
    {
        let path = settings.data_dir.join(part);
        if device(&path).is_some_and(|other| Some(other) != own || path.is_symlink()) {
            return Err(Error::Refused(format!(
                "{} is a link, or on a file system of its own, and can't be replaced; remove that, or restore by hand (docs/operations/backup-and-restore.md)",
                path.display()
            )));
        }
    }
    Ok(())
}

fn load_settings(directory: &Path) -> Result<Settings> {
    let reject = |why: &str| Error::Refused(format!("the backup's {SETTINGS} {why}"));
    let settings = Settings::load(directory)?.ok_or_else(|| reject("is missing"))?;
    match settings.membership {
        Some(_) => Err(reject("is that of a machine without the cluster's objects")),
        None => Ok(settings),
    }
}

/// Makes the store's directory from the snapshot.
fn make_store(settings: &Settings, prepared: &Path) -> Result<()> {
    let words = list_store_arguments(settings, prepared, &generate_cluster_token()?)?;
    let program = text_of(settings.bin_dir.join("kvstore"))?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    run_command(&program, &words).map(drop)
}

/// Returns a random text that distinguishes the restored store from that of the backup: its IDs are
/// derived from it. With the same IDs, machines of the former cluster that boot later would have a
/// quorum and write into it.
fn generate_cluster_token() -> Result<String> {
    let digits = files::to_hex(&generate_bytes::<16>()?);
    Ok(format!("restored-{digits}"))
}

fn text_of(path: PathBuf) -> Result<String> {
    let not_utf8 = || Error::Refused(format!("{} is not UTF-8", path.display()));
    path.to_str().map(str::to_owned).ok_or_else(not_utf8)
}

/// Returns the arguments with which the store makes its directory.
fn list_store_arguments(
    settings: &Settings,
    prepared: &Path,
    cluster_token: &str,
) -> Result<Vec<String>> {
    let peer = match settings.control_plane {
        Some(_) => format_member_url(settings.node_address, settings.ports.store_peer),
        None => format!("https://127.0.0.1:{}", settings.ports.store_peer),
    };
    let mut arguments = vec![
        "snapshot".to_owned(),
        "restore".to_owned(),
        text_of(prepared.join(SNAPSHOT))?,
        "--data-dir".to_owned(),
        text_of(prepared.join(STORE))?,
        format!("--name={}", settings.node_name),
        format!("--initial-cluster={}={peer}", settings.node_name),
        format!("--initial-cluster-token={cluster_token}"),
        format!("--initial-advertise-peer-urls={peer}"),
        "--bump-revision".to_owned(),
        REVISIONS.to_owned(),
        // Watches with a revision of the lost history fail as compacted, and informers list again.
        "--mark-compacted".to_owned(),
    ];
    arguments.extend(FORMER_SERVERS.map(|key| format!("--omit={key}")));
    Ok(arguments)
}

/// Returns the paths of all files that a restore replaces. The lists of API servers and the state
/// of an upgrade are none of a backup: those of the former cluster must not outlive it.
fn list_replaced_parts(settings: &Settings, layout: &Layout) -> Vec<PathBuf> {
    let mut parts = vec![PathBuf::from(STORE)];
    parts.extend(list_parts(settings));
    let former = [
        layout.api_servers(),
        layout.named_servers(),
        layout.upgrade(),
    ];
    for path in former {
        parts.extend(path.strip_prefix(layout.data()).map(Path::to_owned));
    }
    parts
}

/// Puts the prepared files in the place of the existing ones. Returns the directory that keeps
/// those.
fn replace_parts(settings: &Settings, layout: &Layout, mut state: RestoreState) -> Result<PathBuf> {
    let (data_dir, prepared) = (&settings.data_dir, layout.restore());
    // A repeated restore keeps the directory of the first attempt, which has the only former files.
    let kept = state.kept.get_or_insert_with(|| {
        let time = Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
        data_dir.join(format!("before-restore-{time}"))
    });
    let kept = kept.clone();
    state.save(layout)?;
    let (present, copy) = (data_dir.join(SETTINGS), kept.join(SETTINGS));
    // Copied and not moved: without settings the directory would look like one of other programs.
    if present.is_file() && !copy.exists() {
        files::create_private_dir(&kept)?;
        fs::copy(&present, &copy).map_err(Error::io(&copy))?;
    }
    for part in list_replaced_parts(settings, layout) {
        let (new, target, old) = (prepared.join(&part), data_dir.join(&part), kept.join(&part));
        match (target.exists(), old.exists()) {
            (true, false) => {
                files::create_private_dir(&kept)?;
                move_file(&target, &old)?;
            }
            // An interrupted restore has put it there.
            (true, true) if target.is_dir() => files::remove_dir(&target)?,
            (true, true) => files::remove_file(&target)?,
            (false, _) => {}
        }
        if new.exists() {
            move_file(&new, &target)?;
        }
    }
    settings.save()?;
    sync_parent(&present).map_err(Error::io(data_dir))?;
    Ok(kept)
}

fn move_file(from: &Path, to: &Path) -> Result<()> {
    if let Some(directory) = to.parent() {
        files::create_dir(directory, 0o755)?;
    }
    fs::rename(from, to)
        .and_then(|()| sync_parent(from))
        .and_then(|()| sync_parent(to))
        .map_err(Error::io(to))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Writes a cluster's parts with `text` in each of their files.
    fn write_parts(directory: &Path, text: &str) {
        for part in ["store/x", "pki/ca.key", "manifests/x"] {
            files::write_file(&directory.join(part), text.as_bytes()).unwrap();
        }
    }

    fn read_parts(directory: &Path) -> Vec<String> {
        ["store/x", "pki/ca.key", "manifests/x"]
            .map(|part| fs::read_to_string(directory.join(part)).unwrap_or_default())
            .into()
    }

    fn begin(directory: &Path) -> (Settings, Layout) {
        let mut settings = Settings::example();
        settings.data_dir = directory.to_owned();
        let layout = Layout::new(directory, false);
        write_parts(directory, "old");
        settings.save().unwrap();
        clear_directory(&layout, &RestoreState::default()).unwrap();
        write_parts(&layout.restore(), "new");
        (settings, layout)
    }

    /// The other machines of the former cluster have a quorum without this one.
    #[test]
    fn restored_store_has_other_ids_and_no_servers_of_the_former_cluster() {
        let (one, other) = (generate_cluster_token(), generate_cluster_token());
        let (one, other) = (one.unwrap(), other.unwrap());
        assert_ne!(one, other);
        let settings = Settings::example_shared();
        let words = list_store_arguments(&settings, Path::new("/p"), &one).unwrap();
        let flag = format!("--initial-cluster-token={one}");
        assert!(words.contains(&flag), "{words:?}");
        for key in [
            "/registry/masterleases/",
            "/registry/endpointslices/default/kubernetes",
        ] {
            assert!(words.contains(&format!("--omit={key}")), "{key}: {words:?}");
        }
        let dir = tempfile::tempdir().unwrap();
        let (settings, layout) = begin(dir.path());
        files::write_file(&layout.api_servers(), b"[\"192.0.2.9:6443\"]").unwrap();
        files::write_file(&layout.named_servers(), b"[[\"cp9\", \"192.0.2.9:6443\"]]").unwrap();
        files::write_file(&layout.upgrade(), b"{}").unwrap();
        let kept = replace_parts(&settings, &layout, RestoreState::default()).unwrap();
        assert!(!layout.api_servers().exists() && !layout.upgrade().exists());
        assert!(!layout.named_servers().exists());
        assert!(kept.join("config/api-servers.json").exists());
    }

    #[test]
    fn replaced_files_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (settings, layout) = begin(dir.path());
        fs::remove_dir_all(layout.restore().join("manifests")).unwrap();
        let kept = replace_parts(&settings, &layout, RestoreState::default()).unwrap();
        assert_eq!(read_parts(dir.path()), ["new", "new", ""]);
        assert_eq!(read_parts(&kept), ["old", "old", "old"]);
        assert!(kept.join(SETTINGS).is_file());
    }

    #[test]
    fn interrupted_restore_keeps_the_first_files_and_starts_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (settings, layout) = begin(dir.path());
        crate::restore_state::reject_unfinished_restore(&layout).unwrap();
        // It ends after the first part.
        let kept = dir.path().join("kept");
        let state = RestoreState {
            kept: Some(kept.clone()),
        };
        state.save(&layout).unwrap();
        move_file(&dir.path().join("store"), &kept.join("store")).unwrap();
        move_file(&layout.restore().join("store"), &dir.path().join("store")).unwrap();
        assert_mixed(&layout);
        // The second run has all files again.
        let state = RestoreState::load(&layout).unwrap().unwrap();
        clear_directory(&layout, &state).unwrap();
        assert_mixed(&layout);
        write_parts(&layout.restore(), "new");
        assert_eq!(replace_parts(&settings, &layout, state).unwrap(), kept);
        assert_eq!(read_parts(dir.path()), ["new", "new", "new"]);
        assert_eq!(read_parts(&kept), ["old", "old", "old"]);
    }

    fn assert_mixed(layout: &Layout) {
        let error = crate::restore_state::reject_unfinished_restore(layout).unwrap_err();
        assert!(
            error.to_string().contains("run `ironclad restore` again"),
            "{error}"
        );
    }

    #[test]
    fn directory_of_another_program_is_not_cleared() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        files::write_file(&layout.restore().join("photos"), b"").unwrap();
        let error = RestoreState::load(&layout).unwrap_err().to_string();
        assert!(error.contains("move it elsewhere"), "{error}");
    }

    #[test]
    fn link_in_the_place_of_a_part_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let (settings, _) = begin(dir.path());
        reject_foreign_disks(&settings).unwrap();
        fs::rename(dir.path().join("store"), dir.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", dir.path().join("store")).unwrap();
        assert!(reject_foreign_disks(&settings).is_err());
    }
}
