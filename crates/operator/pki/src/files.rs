//! Files that hold keys: written atomically, mode 0600, at no moment readable by others.

use std::fs;
use std::path::Path;

use crate::Error;

/// Writes `data` to `path` with mode 0600, atomically.
pub(crate) fn write_private(path: &Path, data: &[u8]) -> Result<(), Error> {
    write_file(path, data, 0o600)
}

pub(crate) fn write_public(path: &Path, data: &[u8]) -> Result<(), Error> {
    write_file(path, data, 0o644)
}

fn write_file(path: &Path, data: &[u8], mode: u32) -> Result<(), Error> {
    let io = |cause| Error::Io {
        path: path.to_owned(),
        cause,
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(io)?;
    }
    base_tls::write_file_atomically(path, data, mode).map_err(io)
}

/// Returns the text of a file; None if it does not exist.
pub(crate) fn read_optional(path: &Path) -> Result<Option<String>, Error> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(Error::Io {
            path: path.to_owned(),
            cause,
        }),
    }
}
