//! Directories whose whole content changes at once (ConfigMap, Secret, downward API and projected
//! volumes).
//!
//! Files live in a hidden directory with a time in its name; `..data` is a symbolic link to it, and
//! each visible entry is a symbolic link through `..data`. Changing the content is one rename of
//! `..data`: readers see all of the old files or all of the new ones.

use crate::error::{Context, Result, VolumeError};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

const DATA: &str = "..data";

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadFile {
    /// Content.
    pub data: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// Owner, if not root.
    pub uid: Option<u32>,
}

/// Files by their path within the volume.
pub type Payload = BTreeMap<String, PayloadFile>;

/// Makes `dir` hold exactly `payload`; `gid`, if given, owns everything. Returns true if something
/// changed.
///
/// # Errors
/// A path outside the volume, or a failed file operation.
pub fn write_payload(dir: &Path, payload: &Payload, gid: Option<u32>) -> Result<bool> {
    // All paths before the first write: an error must leave the old content.
    payload.keys().try_for_each(|path| check_path(path))?;
    if up_to_date(dir, payload) {
        return Ok(false);
    }
    let version = version_name();
    let fresh = dir.join(&version);
    // Not create_dir_all: the name is new, and an existing directory would mean two writers.
    fs::create_dir(&fresh).at("create", &fresh)?;
    set_mode(&fresh, 0o755)?;
    for (path, file) in payload {
        write_file(&fresh, path, file, gid)?;
    }
    let old = fs::read_link(dir.join(DATA)).ok();
    // Rename replaces a link atomically, while creating one does not; hence the second name.
    let next = dir.join("..data_tmp");
    let _ = fs::remove_file(&next);
    symlink(&version, &next).at("create", &next)?;
    fs::rename(&next, dir.join(DATA)).at("replace", &dir.join(DATA))?;
    // After the swap: a new entry must not lead to a file that does not exist yet.
    link_entries(dir, payload)?;
    if let Some(old) = old.filter(|old| old.components().count() == 1) {
        // Best effort: old files are no longer visible.
        let _ = fs::remove_dir_all(dir.join(old));
    }
    Ok(true)
}

fn version_name() -> String {
    static SERIAL: AtomicU64 = AtomicU64::new(0);
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    // The clock may stand still between two writes, or be set back.
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    format!("..{}.{:09}_{serial}", now.as_secs(), now.subsec_nanos())
}

fn check_path(path: &str) -> Result<()> {
    let inside = !path.is_empty()
        && Path::new(path)
            .components()
            .all(|c| matches!(c, Component::Normal(_)));
    if inside && !path.starts_with("..") {
        return Ok(());
    }
    Err(VolumeError::Refused(format!(
        "invalid path {path:?}: it must stay within the volume and not start with '..'"
    )))
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).at("set mode of", path)
}

fn write_file(root: &Path, path: &str, file: &PayloadFile, gid: Option<u32>) -> Result<()> {
    let full = root.join(path);
    let mut parent = root.to_owned();
    for component in Path::new(path)
        .parent()
        .into_iter()
        .flat_map(Path::components)
    {
        parent.push(component);
        if !parent.exists() {
            fs::create_dir(&parent).at("create", &parent)?;
            set_mode(&parent, 0o755)?;
        }
    }
    let mut handle = fs::File::create(&full).at("create", &full)?;
    handle.write_all(&file.data).at("write", &full)?;
    if file.uid.is_some() || gid.is_some() {
        std::os::unix::fs::chown(&full, file.uid, gid).at("set owner of", &full)?;
    }
    set_mode(&full, file.mode)
}

/// Returns the first components of all paths: the names that are visible in the volume.
fn list_entries(payload: &Payload) -> BTreeSet<PathBuf> {
    payload
        .keys()
        .filter_map(|path| Path::new(path).components().next())
        .map(|c| PathBuf::from(c.as_os_str()))
        .collect()
}

fn link_entries(dir: &Path, payload: &Payload) -> Result<()> {
    let visible = list_entries(payload);
    for name in &visible {
        let link = dir.join(name);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new(DATA).join(name), &link).at("create", &link)?;
        }
    }
    for entry in fs::read_dir(dir).at("read", dir)?.flatten() {
        let name = PathBuf::from(entry.file_name());
        let hidden = entry.file_name().to_string_lossy().starts_with("..");
        if !hidden && !visible.contains(&name) {
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

fn up_to_date(dir: &Path, payload: &Payload) -> bool {
    let Ok(data) = fs::canonicalize(dir.join(DATA)) else {
        return false;
    };
    let mut found = BTreeMap::new();
    if read_files(&data, &data, &mut found).is_err() || found.len() != payload.len() {
        return false;
    }
    payload.iter().all(|(path, file)| {
        found
            .get(path)
            .is_some_and(|(data, mode)| data == &file.data && *mode == file.mode)
    })
}

fn read_files(
    root: &Path,
    dir: &Path,
    found: &mut BTreeMap<String, (Vec<u8>, u32)>,
) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            read_files(root, &entry.path(), found)?;
            continue;
        }
        let path = entry.path();
        let name = path
            .strip_prefix(root)
            .unwrap_or(&path)
            .to_string_lossy()
            .into_owned();
        found.insert(
            name,
            (
                fs::read(&path)?,
                entry.metadata()?.permissions().mode() & 0o7777,
            ),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn payload(files: &[(&str, &str)]) -> Payload {
        let file = |data: &str| PayloadFile {
            data: data.into(),
            mode: 0o644,
            uid: None,
        };
        files
            .iter()
            .map(|(path, data)| ((*path).to_owned(), file(data)))
            .collect()
    }

    #[test]
    fn payload_is_replaced_at_once_and_old_files_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        assert!(write_payload(root, &payload(&[("a", "1"), ("sub/b", "2")]), None).unwrap());
        assert!(
            !write_payload(root, &payload(&[("a", "1"), ("sub/b", "2")]), None).unwrap(),
            "nothing changed"
        );
        assert_eq!(fs::read_to_string(root.join("sub/b")).unwrap(), "2");
        assert!(write_payload(root, &payload(&[("c", "3")]), None).unwrap());
        let mut names: Vec<String> = fs::read_dir(root)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names.retain(|n| !n.starts_with("..1") && !n.starts_with("..2"));
        assert_eq!(names, ["..data", "c"]);
        assert_eq!(fs::read_to_string(root.join("c")).unwrap(), "3");
    }

    #[test]
    fn payload_paths_outside_the_volume_are_rejected() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["../x", "/x", "a/../../x", "..data", ""] {
            assert!(
                write_payload(dir.path(), &payload(&[(path, "")]), None).is_err(),
                "{path}"
            );
        }
    }

    #[test]
    fn payload_file_has_its_mode_and_a_changed_mode_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = payload(&[("key", "secret")]);
        for mode in [0o644, 0o400] {
            files.get_mut("key").unwrap().mode = mode;
            assert!(write_payload(dir.path(), &files, None).unwrap());
            let written = fs::metadata(dir.path().join("key")).unwrap();
            assert_eq!(written.permissions().mode() & 0o7777, mode);
        }
    }

    /// A kubelet that was killed between its two steps leaves the temporary link.
    #[test]
    fn payload_is_written_after_a_crash_that_left_a_temporary_link() {
        let dir = tempfile::tempdir().unwrap();
        symlink("..1_of_a_crash", dir.path().join("..data_tmp")).unwrap();
        assert!(write_payload(dir.path(), &payload(&[("a", "1")]), None).unwrap());
        assert_eq!(fs::read_to_string(dir.path().join("a")).unwrap(), "1");
    }

    /// Readers open the files of one version, before and after the swap.
    #[test]
    fn payload_changes_all_files_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        write_payload(root, &payload(&[("a", "0"), ("b", "0")]), None).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for n in 1..200 {
                    let text = n.to_string();
                    write_payload(root, &payload(&[("a", &text), ("b", &text)]), None).unwrap();
                }
            });
            while !writer.is_finished() {
                // Pinned by the link's target, as a reader with an open directory is.
                let Ok(version) = fs::canonicalize(root.join("..data")) else {
                    continue;
                };
                let read = |name: &str| fs::read_to_string(version.join(name));
                if let (Ok(a), Ok(b)) = (read("a"), read("b")) {
                    assert_eq!(a, b);
                }
            }
        });
    }
}
