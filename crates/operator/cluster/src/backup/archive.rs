//! The file of a backup: a tar archive. Its first entry says what it is, its last is the snapshot of
//! the store, whose size is known at its end only.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

const DESCRIPTION: &str = "backup.json";
pub(super) const SETTINGS: &str = "settings.json";
pub(super) const SNAPSHOT: &str = "snapshot.db";
/// Files without which there is no cluster.
const NEEDED: [&str; 5] = [SETTINGS, "pki/ca.crt", "pki/ca.key", "pki/sa.key", SNAPSHOT];
/// The newest format that this release knows.
const FORMAT: u32 = 1;
/// Maximum size of the description.
const MAX_DESCRIPTION: u64 = 1 << 16;

/// The first entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Description {
    pub(super) format: u32,
    /// The release that wrote the backup.
    pub(super) release: String,
    pub(super) created: Timestamp,
}

impl Description {
    pub(super) fn now() -> Self {
        Self {
            format: FORMAT,
            release: env!("CARGO_PKG_VERSION").to_owned(),
            created: Timestamp::now(),
        }
    }
}

/// Writes a backup. The file gets its name when it is complete.
pub(super) struct Writer {
    path: PathBuf,
    partial: PathBuf,
    archive: tar::Builder<File>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Absent if the backup was completed.
        let _ = fs::remove_file(&self.partial);
    }
}

impl Writer {
    /// Creates the file, which only its owner can read.
    pub(super) fn create(path: &Path) -> Result<Self> {
        if path.symlink_metadata().is_ok() {
            return Err(Error::Refused(format!(
                "{} exists; remove it, or give another name",
                path.display()
            )));
        }
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        // Left by an interruption.
        crate::files::remove_file(&partial)?;
        let file = create_private(&partial).map_err(Error::io(&partial))?;
        Ok(Self {
            path: path.to_owned(),
            partial,
            archive: tar::Builder::new(file),
        })
    }

    pub(super) fn add_description(&mut self, description: &Description) -> Result<()> {
        let text = serde_json::to_vec(description).unwrap_or_default();
        let mut header = new_header(0o600);
        header.set_size(text.len() as u64);
        self.archive
            .append_data(&mut header, DESCRIPTION, &*text)
            .map_err(Error::io(&self.partial))
    }

    /// Adds the file `name` of a folder, if it is there, and what is below it if it is a folder itself.
    pub(super) fn add_tree(&mut self, folder: &Path, name: &Path) -> Result<()> {
        let path = folder.join(name);
        let metadata = match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            metadata => metadata.map_err(Error::io(&path))?,
        };
        if metadata.is_dir() {
            let entries = fs::read_dir(&path).map_err(Error::io(&path))?;
            for entry in entries {
                let entry = entry.map_err(Error::io(&path))?;
                self.add_tree(folder, &name.join(entry.file_name()))?;
            }
            return Ok(());
        }
        if !metadata.is_file() {
            return Err(Error::Refused(format!(
                "{} is neither a file nor a folder, and a backup can't contain it; move it elsewhere",
                path.display()
            )));
        }
        let mut file = File::open(&path).map_err(Error::io(&path))?;
        let mut header = new_header(metadata.permissions().mode());
        header.set_size(metadata.len());
        self.archive
            .append_data(&mut header, name, &mut file)
            .map_err(Error::io(&path))
    }

    /// Adds the snapshot. `fill` writes it.
    pub(super) async fn add_snapshot<F>(&mut self, fill: F) -> Result<()>
    where
        F: AsyncFnOnce(&mut dyn FnMut(&[u8]) -> io::Result<()>) -> Result<()>,
    {
        let mut header = new_header(0o600);
        let entry = self.archive.append_writer(&mut header, SNAPSHOT);
        let mut entry = entry.map_err(Error::io(&self.partial))?;
        fill(&mut |part| base_task::blocking(|| entry.write_all(part))).await?;
        base_task::blocking(|| entry.finish()).map_err(Error::io(&self.partial))
    }

    /// Completes the file on the disk and gives it its name. Returns its size.
    pub(super) fn finish(mut self) -> Result<u64> {
        let mut finish = || {
            self.archive.finish()?;
            let file = self.archive.get_ref();
            file.sync_all()?;
            rustix::fs::renameat_with(
                rustix::fs::CWD,
                &self.partial,
                rustix::fs::CWD,
                &self.path,
                // Another backup may have got the name in the meantime.
                rustix::fs::RenameFlags::NOREPLACE,
            )?;
            let folder = self.path.parent().filter(|p| !p.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
            Ok(file.metadata()?.len())
        };
        finish().map_err(Error::io(&self.path))
    }
}

fn new_header(mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode & 0o777);
    header.set_entry_type(tar::EntryType::Regular);
    header
}

fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// Unpacks a backup into an empty folder.
///
/// # Errors
/// It is damaged, incomplete, or has a file that no backup has.
pub(super) fn unpack(backup: &Path, folder: &Path) -> Result<Description> {
    let refuse = |why: String| Error::Refused(format!("{} {why}", backup.display()));
    let damaged = |error: io::Error| {
        Error::Refused(format!(
            "{} is not a complete backup: {error}",
            backup.display()
        ))
    };
    let file = File::open(backup).map_err(Error::io(backup))?;
    let mut archive = tar::Archive::new(io::BufReader::new(file));
    let mut entries = archive.entries().map_err(damaged)?;
    let first = entries.next().transpose().map_err(damaged)?;
    let description = first.and_then(read_description);
    let description =
        description.ok_or_else(|| refuse("is no backup that `ironclad backup` made".to_owned()))?;
    if description.format > FORMAT {
        return Err(refuse(format!(
            "was made by a newer release ({}); use that release",
            description.release
        )));
    }
    for entry in entries {
        let mut entry = entry.map_err(damaged)?;
        let name = entry.path().map_err(damaged)?.into_owned();
        if !entry.header().entry_type().is_file() || !belongs_to_a_backup(&name) {
            return Err(refuse(format!("has an unknown entry, {name:?}")));
        }
        let path = folder.join(&name);
        if let Some(parent) = path.parent() {
            crate::files::create_dir(parent, 0o755)?;
        }
        let mode = entry.header().mode().unwrap_or(0o600);
        let mut file = create_private(&path).map_err(Error::io(&path))?;
        io::copy(&mut entry, &mut file).map_err(damaged)?;
        file.set_permissions(fs::Permissions::from_mode(mode & 0o755))
            .and_then(|()| file.sync_all())
            .map_err(Error::io(&path))?;
    }
    match NEEDED.iter().find(|name| !folder.join(name).is_file()) {
        Some(missing) => Err(refuse(format!("is not complete: {missing} is not in it"))),
        None => Ok(description),
    }
}

fn read_description<R: Read>(entry: tar::Entry<'_, R>) -> Option<Description> {
    if entry.path().ok()?.as_os_str() != DESCRIPTION {
        return None;
    }
    serde_json::from_reader(entry.take(MAX_DESCRIPTION)).ok()
}

/// Returns whether a backup has entries of this name. Others could lead out of the folder, or replace what
/// `up` writes.
fn belongs_to_a_backup(name: &Path) -> bool {
    let words: Option<Vec<&str>> = name
        .components()
        .map(|component| match component {
            Component::Normal(word) => word.to_str(),
            _ => None,
        })
        .collect();
    match words.unwrap_or_default().as_slice() {
        [one] => [SETTINGS, SNAPSHOT].contains(one),
        ["pki" | "manifests", ..] => true,
        ["config", marker] => marker.ends_with("-rights-granted"),
        ["nodes", number, "manifests", _, ..] => number.parse::<u8>().is_ok(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn cluster(folder: &Path) {
        fs::create_dir_all(folder.join("pki/etcd")).unwrap();
        fs::create_dir_all(folder.join("manifests")).unwrap();
        for name in ["settings.json", "pki/ca.crt", "pki/etcd/ca.crt"] {
            fs::write(folder.join(name), name).unwrap();
        }
        for name in ["pki/ca.key", "pki/sa.key"] {
            fs::write(folder.join(name), name).unwrap();
            fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o600)).unwrap();
        }
    }

    async fn save(folder: &Path, names: &[&str], backup: &Path) -> Result<u64> {
        let mut writer = Writer::create(backup)?;
        writer.add_description(&Description::now())?;
        for name in names {
            writer.add_tree(folder, Path::new(name))?;
        }
        let fill = async |write: &mut dyn FnMut(&[u8]) -> io::Result<()>| {
            write(b"snap").and_then(|()| write(b"shot")).unwrap();
            Ok(())
        };
        writer.add_snapshot(fill).await?;
        writer.finish()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[tokio::test]
    async fn unpacked_backup_has_the_files_with_their_modes() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to, backup) = (
            dir.path().join("a"),
            dir.path().join("b"),
            dir.path().join("c"),
        );
        cluster(&from);
        fs::create_dir(&to).unwrap();
        let names = ["settings.json", "pki", "manifests", "config/absent"];
        let size = save(&from, &names, &backup).await.unwrap();
        assert_eq!(
            (fs::metadata(&backup).unwrap().len(), mode(&backup)),
            (size, 0o600)
        );
        unpack(&backup, &to).unwrap();
        for name in [
            "settings.json",
            "pki/ca.crt",
            "pki/etcd/ca.crt",
            "pki/sa.key",
        ] {
            assert_eq!(fs::read_to_string(to.join(name)).unwrap(), name);
            assert_eq!(mode(&to.join(name)), mode(&from.join(name)), "{name}");
        }
        assert_eq!(fs::read(to.join(SNAPSHOT)).unwrap(), b"snapshot");
        let again = save(&from, &names, &backup).await.unwrap_err();
        assert!(again.to_string().contains("exists"), "{again}");
    }

    #[tokio::test]
    async fn incomplete_backup_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let (from, backup) = (dir.path().join("a"), dir.path().join("c"));
        cluster(&from);
        save(&from, &["settings.json"], &backup).await.unwrap();
        let error = |backup: &Path| {
            let to = tempfile::tempdir().unwrap();
            unpack(backup, to.path()).unwrap_err().to_string()
        };
        assert!(
            error(&backup).contains("pki/ca.crt is not in it"),
            "{}",
            error(&backup)
        );
        fs::remove_file(&backup).unwrap();
        save(&from, &["settings.json", "pki"], &backup)
            .await
            .unwrap();
        let whole = fs::read(&backup).unwrap();
        // In the middle of the snapshot, of a header, and of the description.
        for length in [whole.len() - 1024 - 500, 2560, 700, 0] {
            fs::write(&backup, &whole[..length]).unwrap();
            let error = error(&backup);
            assert!(
                error.contains("backup") || error.contains("is not in it"),
                "{length}: {error}"
            );
        }
    }

    #[test]
    fn entry_that_leads_out_of_the_folder_is_rejected() {
        let write = |name: &str, kind: tar::EntryType| {
            let dir = tempfile::tempdir().unwrap();
            let backup = dir.path().join("backup");
            let mut writer = Writer::create(&backup).unwrap();
            writer.add_description(&Description::now()).unwrap();
            let mut header = new_header(0o644);
            header.set_entry_type(kind);
            // Not by `set_path`, which would refuse them.
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_size(0);
            header.set_cksum();
            writer.archive.append(&header, io::empty()).unwrap();
            writer.finish().unwrap();
            let to = dir.path().join("to");
            fs::create_dir(&to).unwrap();
            unpack(&backup, &to).unwrap_err().to_string()
        };
        for name in [
            "../x",
            "/etc/x",
            "pki/../../x",
            "x",
            "config/kubelet.yaml",
            "nodes/a/manifests/x",
        ] {
            let error = write(name, tar::EntryType::Regular);
            assert!(error.contains("unknown entry"), "{name}: {error}");
        }
        for kind in [
            tar::EntryType::Symlink,
            tar::EntryType::Link,
            tar::EntryType::Fifo,
        ] {
            assert!(write("pki/x", kind).contains("unknown entry"), "{kind:?}");
        }
    }
}
