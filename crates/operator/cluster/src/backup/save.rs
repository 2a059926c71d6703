//! Saves a backup.

use std::path::{Path, PathBuf};

use super::archive::{BackupWriter, SETTINGS};
use super::parts::list_parts;
use super::snapshot::read_snapshot;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::settings::Settings;
use crate::up::choose::absolute_path;

/// Options of `save_backup`.
#[derive(Debug, Clone)]
pub struct BackupOptions {
    /// Data directory.
    pub data_dir: PathBuf,
    /// The file to write.
    pub file: PathBuf,
}

/// Saves the objects, keys and settings of the running cluster in `data_dir`. Returns the size of
/// the file.
pub async fn save_backup(options: &BackupOptions, report_progress: &dyn Fn(&str)) -> Result<u64> {
    let settings = Settings::load_existing(&options.data_dir)?;
    if let Some(membership) = &settings.membership {
        return Err(Error::Refused(format!(
            "this machine is a node of the cluster at {}, whose objects and keys are there; run the command on that machine",
            membership.server
        )));
    }
    let layout = Layout::for_settings(&settings);
    let parts = list_parts(&settings);
    reject_file_within(&settings, &parts, &options.file)?;
    report_progress("saving keys and settings");
    let mut writer = BackupWriter::create(&options.file)?;
    base_task::blocking(|| {
        writer.add_tree(&settings.data_dir, Path::new(SETTINGS))?;
        let mut parts = parts.into_iter();
        parts.try_for_each(|part| writer.add_tree(&settings.data_dir, &part))
    })?;
    report_progress("saving the objects");
    let fill = async |write: &mut dyn FnMut(&[u8]) -> Result<()>| {
        read_snapshot(&settings, &layout, write).await
    };
    writer.add_snapshot(fill).await?;
    base_task::blocking(|| writer.finish())
}

/// Rejects a file in a directory that is saved: the backup would contain itself.
fn reject_file_within(settings: &Settings, parts: &[PathBuf], file: &Path) -> Result<()> {
    let file = absolute_path(file)?;
    let directory = file.parent().unwrap_or(&file);
    // Links on the way count. A directory that does not exist is an error of the write.
    let Ok(directory) = directory.canonicalize() else {
        return Ok(());
    };
    let contains = |part: &PathBuf| {
        let part = settings.data_dir.join(part).canonicalize();
        part.is_ok_and(|part| directory.starts_with(part))
    };
    match parts.iter().any(contains) {
        true => Err(Error::Refused(format!(
            "{} is in a directory that is saved; give a file elsewhere",
            file.display()
        ))),
        false => Ok(()),
    }
}
