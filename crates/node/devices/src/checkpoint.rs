//! The file of prepared claims.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::DeviceError;

/// The claims of the node's pods, by UID.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Claims(pub(crate) BTreeMap<String, ClaimState>);

/// A claim that a plugin has prepared, or was called for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClaimState {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Allocated devices as `driver/pool/device`, with the share if there is one.
    pub(crate) allocation: Vec<String>,
    /// UIDs of the pods that use the claim here.
    pub(crate) pods: BTreeSet<String>,
    /// Those of them for which the claim is being released.
    #[serde(skip)]
    pub(crate) leaving: BTreeSet<String>,
    pub(crate) drivers: BTreeMap<String, DriverState>,
}

/// The devices of one driver in a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct DriverState {
    /// The plugin has prepared them.
    pub(crate) prepared: bool,
    pub(crate) devices: Vec<PreparedDevice>,
}

/// A device as its plugin has prepared it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PreparedDevice {
    /// Requests of the claim; all if empty.
    pub(crate) requests: Vec<String>,
    pub(crate) cdi_ids: Vec<String>,
}

/// Path of the file.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoint(pub(crate) PathBuf);

impl Checkpoint {
    /// Reads the file; no claims if there is none.
    pub(crate) fn read(&self) -> Result<Claims, DeviceError> {
        let fail = |why: String| self.fail("can't read", why);
        match std::fs::read(&self.0) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| fail(format!("{error}; drain the node, then remove the file"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Claims::default()),
            Err(error) => Err(fail(error.to_string())),
        }
    }

    /// Replaces the file, on disk before this returns.
    pub(crate) fn write(&self, claims: &Claims) -> Result<(), DeviceError> {
        let text = serde_json::to_vec(claims).map_err(io::Error::other);
        let written = text.and_then(|text| replace_file(&self.0, &text));
        written.map_err(|error| self.fail("can't write", error.to_string()))
    }

    fn fail(&self, action: &'static str, why: String) -> DeviceError {
        DeviceError::Checkpoint {
            action,
            path: self.0.clone(),
            why,
        }
    }
}

/// Replaces a file that only its owner can read, on disk before this returns.
///
/// # Errors
/// The folder does not exist, or the disk fails; the old file remains.
pub fn replace_file(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    // The names of tenants' objects are for the kubelet only.
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&new)?;
    file.write_all(text)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}
