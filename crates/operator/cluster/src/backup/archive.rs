//! The file of a backup: a tar archive. Its first entry describes it. The snapshot of the store
//! comes late, since its size is known at its end only, and then the digests of all entries before.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::files::to_hex;

const DESCRIPTION: &str = "backup.json";
pub(super) const SETTINGS: &str = "settings.json";
pub(super) const SNAPSHOT: &str = "snapshot.db";
/// In the format of `sha256sum`.
const DIGESTS: &str = "SHA256SUMS";
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
pub(super) struct BackupWriter {
    path: PathBuf,
    partial: PathBuf,
    archive: tar::Builder<File>,
    digests: String,
}

impl Drop for BackupWriter {
    fn drop(&mut self) {
        // Absent if the backup was completed.
        let _ = fs::remove_file(&self.partial);
    }
}

impl BackupWriter {
    /// Creates the file, which only its owner can read.
    pub(super) fn create(path: &Path) -> Result<Self> {
        // Not `exists`, which follows a link: one without a target would count as absent.
        if path.symlink_metadata().is_ok() {
            return Err(Error::Refused(format!(
                "{} exists; remove it, or give another name",
                path.display()
            )));
        }
        let mut partial = path.as_os_str().to_owned();
        // Another backup to the same name has a file of its own.
        partial.push(format!(".partial-{}", std::process::id()));
        let partial = PathBuf::from(partial);
        let file = create_private(&partial).map_err(Error::io(&partial))?;
        let mut writer = Self {
            path: path.to_owned(),
            partial,
            archive: tar::Builder::new(file),
            digests: String::new(),
        };
        let text = serde_json::to_vec(&Description::now()).unwrap_or_default();
        writer.add_content(Path::new(DESCRIPTION), 0o600, &text)?;
        Ok(writer)
    }

    fn add_content(&mut self, name: &Path, mode: u32, content: &[u8]) -> Result<()> {
        let mut header = new_header(mode);
        header.set_size(content.len() as u64);
        let added = self.archive.append_data(&mut header, name, content);
        added.map_err(Error::io(&self.partial))?;
        self.add_digest(name, Sha256::digest(content).as_slice());
        Ok(())
    }

    fn add_digest(&mut self, name: &Path, digest: &[u8]) {
        self.digests += &format!("{}  {}\n", to_hex(digest), name.display());
    }

    /// Adds the file `name` of a directory, if it exists, and its files if it is a directory
    /// itself.
    pub(super) fn add_tree(&mut self, directory: &Path, name: &Path) -> Result<()> {
        let path = directory.join(name);
        let metadata = match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            metadata => metadata.map_err(Error::io(&path))?,
        };
        if metadata.is_dir() {
            let entries = fs::read_dir(&path).map_err(Error::io(&path))?;
            for entry in entries {
                let entry = entry.map_err(Error::io(&path))?;
                self.add_tree(directory, &name.join(entry.file_name()))?;
            }
            return Ok(());
        }
        // A link would be restored without its target.
        if !metadata.is_file() {
            return Err(Error::Refused(format!(
                "{} is neither a file nor a directory, and a backup can't contain it; move it elsewhere",
                path.display()
            )));
        }
        // At once: another process may replace the file by one of another size.
        let content = fs::read(&path).map_err(Error::io(&path))?;
        self.add_content(name, metadata.permissions().mode(), &content)
    }

    /// Adds the snapshot. `fill` writes it.
    pub(super) async fn add_snapshot<F>(&mut self, fill: F) -> Result<()>
    where
        F: AsyncFnOnce(&mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>,
    {
        let mut header = new_header(0o600);
        let mut digest = Sha256::new();
        // The size is unknown until the end, so tar writes the header again then.
        let entry = self.archive.append_writer(&mut header, SNAPSHOT);
        let mut entry = entry.map_err(Error::io(&self.partial))?;
        fill(&mut |part| {
            digest.update(part);
            base_task::blocking(|| entry.write_all(part)).map_err(Error::io(&self.partial))
        })
        .await?;
        base_task::blocking(|| entry.finish()).map_err(Error::io(&self.partial))?;
        self.add_digest(Path::new(SNAPSHOT), digest.finalize().as_slice());
        Ok(())
    }

    /// Completes the file on the disk and gives it its name. Returns its size.
    pub(super) fn finish(mut self) -> Result<u64> {
        let digests = std::mem::take(&mut self.digests);
        self.add_content(Path::new(DIGESTS), 0o600, digests.as_bytes())?;
        let mut finish = || {
            self.archive.finish()?;
            let file = self.archive.get_ref();
            file.sync_all()?;
            move_to_new_name(&self.partial, &self.path)?;
            Ok(file.metadata()?.len())
        };
        let size = finish().map_err(Error::io(&self.path))?;
        // The file has its name; some file systems can't sync a directory.
        let _ = sync_parent(&self.path);
        Ok(size)
    }
}

/// Renames a file unless the new name exists: another backup may have got it in the meantime.
fn move_to_new_name(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // NFS and others can't, but can do this.
        Err(rustix::io::Errno::INVAL) => fs::hard_link(from, to),
        renamed => Ok(renamed?),
    }
}

/// Writes the directory of a file to the disk.
pub(super) fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
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
        // With O_EXCL a link that another user has put there is not followed.
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// A backup that is read.
pub(super) struct Backup {
    path: PathBuf,
    archive: tar::Archive<io::BufReader<File>>,
}

impl Backup {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(Error::io(path))?;
        Ok(Self {
            path: path.to_owned(),
            archive: tar::Archive::new(io::BufReader::new(file)),
        })
    }

    /// Unpacks it into an empty directory.
    ///
    /// # Errors
    /// It is damaged, incomplete, or has a file that no backup has.
    pub(super) fn unpack(&mut self, directory: &Path) -> Result<Description> {
        let path = &self.path;
        let reject = |why: &str| Error::Refused(format!("{} {why}", path.display()));
        let damaged = |error: io::Error| reject(&format!("is not a complete backup: {error}"));
        let mut entries = self.archive.entries().map_err(damaged)?;
        let first = entries.next().transpose().map_err(damaged)?;
        let (description, digest) = first
            .and_then(read_description)
            .ok_or_else(|| reject("is no backup that `ironclad backup` made"))?;
        if description.format > FORMAT {
            let release = &description.release;
            return Err(reject(&format!(
                "was made by a newer release ({release}); use that release"
            )));
        }
        let mut digests = format!("{digest}  {DESCRIPTION}\n");
        for entry in entries {
            let mut entry = entry.map_err(damaged)?;
            let name = entry.path().map_err(damaged)?.into_owned();
            if name.as_os_str() == DIGESTS {
                let mut expected = Vec::new();
                // One byte more than can match: the entry may have any size.
                let limit = digests.len() as u64 + 1;
                let mut entry = entry.take(limit);
                entry.read_to_end(&mut expected).map_err(damaged)?;
                // Against damage only: a forger could change the digests, too, which are in the
                // same file.
                if expected != digests.as_bytes() {
                    return Err(reject(
                        "is damaged: its digests do not match; use another copy",
                    ));
                }
                return check_complete(directory, reject).map(|()| description);
            }
            if !entry.header().entry_type().is_file() || !belongs_to_a_backup(&name) {
                return Err(reject(&format!("has an unknown entry, {name:?}")));
            }
            let digest = unpack_entry(&mut entry, &directory.join(&name))?.map_err(damaged)?;
            digests += &format!("{digest}  {}\n", name.display());
        }
        Err(reject("is not complete: it ends too early"))
    }
}

fn check_complete(directory: &Path, reject: impl Fn(&str) -> Error) -> Result<()> {
    match NEEDED.iter().find(|name| !directory.join(name).is_file()) {
        Some(missing) => Err(reject(&format!("is not complete: {missing} is not in it"))),
        None => Ok(()),
    }
}

/// Writes an entry to a file. Returns its digest, or the error of the archive.
fn unpack_entry<R: Read>(entry: &mut tar::Entry<'_, R>, path: &Path) -> Result<io::Result<String>> {
    if let Some(parent) = path.parent() {
        crate::files::create_dir(parent, 0o755)?;
    }
    let mode = entry.header().mode().unwrap_or(0o600);
    let mut file = create_private(path).map_err(Error::io(path))?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let part = match entry.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => buffer.get(..length).unwrap_or_default(),
            Err(error) => return Ok(Err(error)),
        };
        digest.update(part);
        file.write_all(part).map_err(Error::io(path))?;
    }
    // A changed archive must not set setuid bits, or make files that all users can write.
    file.set_permissions(fs::Permissions::from_mode(mode & 0o755))
        .and_then(|()| file.sync_all())
        .map_err(Error::io(path))?;
    Ok(Ok(to_hex(&digest.finalize())))
}

/// Returns the description with its digest.
fn read_description<R: Read>(entry: tar::Entry<'_, R>) -> Option<(Description, String)> {
    if entry.path().ok()?.as_os_str() != DESCRIPTION {
        return None;
    }
    let mut text = Vec::new();
    // The first entry of a file that is no backup may have any size.
    entry.take(MAX_DESCRIPTION).read_to_end(&mut text).ok()?;
    let description = serde_json::from_slice(&text).ok()?;
    Some((description, to_hex(&Sha256::digest(&text))))
}

/// Returns whether a backup has entries of this name. Others could lead out of the directory, or
/// replace the files that `up` writes.
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

    const SIZE: usize = 10_000;

    fn make_cluster(directory: &Path) {
        fs::create_dir_all(directory.join("pki/etcd")).unwrap();
        fs::create_dir_all(directory.join("manifests")).unwrap();
        for name in ["settings.json", "pki/ca.crt", "pki/etcd/ca.crt"] {
            fs::write(directory.join(name), name).unwrap();
        }
        for name in ["pki/ca.key", "pki/sa.key"] {
            fs::write(directory.join(name), name).unwrap();
            fs::set_permissions(directory.join(name), fs::Permissions::from_mode(0o600)).unwrap();
        }
    }

    async fn save(directory: &Path, names: &[&str], backup: &Path) -> Result<u64> {
        let mut writer = BackupWriter::create(backup)?;
        for name in names {
            writer.add_tree(directory, Path::new(name))?;
        }
        let fill = async |write: &mut dyn FnMut(&[u8]) -> Result<()>| {
            write(&[7; SIZE / 2]).and_then(|()| write(&[7; SIZE / 2]))
        };
        writer.add_snapshot(fill).await?;
        writer.finish()
    }

    fn unpack(backup: &Path, directory: &Path) -> Result<Description> {
        Backup::open(backup)?.unpack(directory)
    }

    fn unpack_error(backup: &Path) -> String {
        let to = tempfile::tempdir().unwrap();
        unpack(backup, to.path()).unwrap_err().to_string()
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
        make_cluster(&from);
        fs::create_dir(&to).unwrap();
        let names = ["settings.json", "pki", "manifests", "config/absent"];
        let size = save(&from, &names, &backup).await.unwrap();
        let length = fs::metadata(&backup).unwrap().len();
        assert_eq!((length, mode(&backup)), (size, 0o600));
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
        assert_eq!(fs::read(to.join(SNAPSHOT)).unwrap(), [7; SIZE]);
        let again = save(&from, &names, &backup).await.unwrap_err();
        assert!(again.to_string().contains("exists"), "{again}");
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            3,
            "no partial file"
        );
    }

    #[tokio::test]
    async fn file_without_a_needed_entry_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let backup = dir.path().join("c");
        make_cluster(dir.path());
        save(dir.path(), &["settings.json"], &backup).await.unwrap();
        let error = unpack_error(&backup);
        assert!(error.contains("pki/ca.crt is not in it"), "{error}");
    }

    #[tokio::test]
    async fn file_that_is_cut_or_changed_anywhere_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let backup = dir.path().join("c");
        make_cluster(dir.path());
        save(dir.path(), &["settings.json", "pki"], &backup)
            .await
            .unwrap();
        let whole = fs::read(&backup).unwrap();
        let ends = whole
            .chunks(512)
            .rev()
            .take_while(|block| block.iter().all(|byte| *byte == 0));
        let content = whole.len() - 512 * ends.count();
        // The first byte of each block belongs to a header or a content.
        for at in (0..content).step_by(512) {
            fs::write(&backup, &whole[..at]).unwrap();
            unpack_error(&backup);
            let mut changed = whole.clone();
            changed[at] ^= 1;
            fs::write(&backup, &changed).unwrap();
            unpack_error(&backup);
        }
    }

    /// The archive may come from elsewhere, and a sparse file can have digests of any size.
    #[test]
    fn digests_are_read_as_far_as_they_can_match() {
        let dir = tempfile::tempdir().unwrap();
        let backup = dir.path().join("backup");
        let mut writer = BackupWriter::create(&backup).unwrap();
        let mut digests = std::mem::take(&mut writer.digests).into_bytes();
        // One byte too many, and behind it what an unlimited read would stumble over.
        digests.extend(b"x\xff");
        writer
            .add_content(Path::new(DIGESTS), 0o600, &digests)
            .unwrap();
        writer.archive.finish().unwrap();
        let error = unpack_error(&writer.partial);
        assert!(error.contains("its digests do not match"), "{error}");
    }

    #[test]
    fn entry_that_leads_out_of_the_directory_is_rejected() {
        let write = |name: &str, kind: tar::EntryType| {
            let dir = tempfile::tempdir().unwrap();
            let backup = dir.path().join("backup");
            let mut writer = BackupWriter::create(&backup).unwrap();
            let mut header = new_header(0o644);
            header.set_entry_type(kind);
            // Not by `set_path`, which would refuse them.
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_size(0);
            header.set_cksum();
            writer.archive.append(&header, io::empty()).unwrap();
            writer.finish().unwrap();
            unpack_error(&backup)
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
