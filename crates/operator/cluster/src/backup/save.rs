//! Saves a backup.

use std::path::{Path, PathBuf};

use super::archive::{Description, SETTINGS, Writer};
use super::restore::list_parts;
use super::snapshot::read_snapshot;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::settings::Settings;

/// Options of `save_backup`.
#[derive(Debug, Clone)]
pub struct BackupOptions {
    /// Data directory.
    pub data_dir: PathBuf,
    /// The file to write.
    pub file: PathBuf,
}

/// Saves the objects, keys and settings of the running cluster in `data_dir`. Returns the size of the
/// file.
pub async fn save_backup(options: &BackupOptions, report_progress: &dyn Fn(&str)) -> Result<u64> {
    let folder = options.data_dir.display();
    let settings = Settings::load(&options.data_dir)?.ok_or_else(|| {
        Error::Refused(format!(
            "{folder} holds no cluster; name its folder with --data-dir"
        ))
    })?;
    if let Some(membership) = &settings.membership {
        return Err(Error::Refused(format!(
            "this machine is a node of the cluster at {}, whose objects and keys are there; run the command on that machine",
            membership.server
        )));
    }
    let layout = Layout::for_settings(&settings);
    report_progress("saving keys and settings");
    let mut writer = Writer::create(&options.file)?;
    writer.add_description(&Description::now())?;
    base_task::blocking(|| {
        writer.add_tree(&settings.data_dir, Path::new(SETTINGS))?;
        let mut parts = list_parts(&settings).into_iter();
        parts.try_for_each(|part| writer.add_tree(&settings.data_dir, &part))
    })?;
    report_progress("saving the objects");
    let fill = async |write: &mut dyn FnMut(&[u8]) -> std::io::Result<()>| {
        read_snapshot(&settings, &layout, write).await
    };
    writer.add_snapshot(fill).await?;
    base_task::blocking(|| writer.finish())
}
