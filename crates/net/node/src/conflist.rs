//! The plugin's configuration for the container runtime.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde_json::{Value, json};

use crate::settings::{Backend, NodeSettings};

/// Name of the file: runtimes take the first one of their directory.
const FILE_NAME: &str = "10-ironclad.conflist";
/// Name of the network, and of the directory of its records.
pub(crate) const NETWORK: &str = "pods";

/// Key of the backend, by which the agent knows the configuration of an earlier one.
const BACKEND: &str = "backend";

/// Returns the configuration. Runtimes that do not know `cniVersions` use version 1.0.0.
pub(crate) fn build_conflist(
    settings: &NodeSettings,
    ranges: &[IpNet],
    mtu: u32,
    boot_id: &str,
) -> Value {
    let sets: Vec<_> = ranges
        .iter()
        .map(|range| json!([{ "subnet": range.to_string() }]))
        .collect();
    json!({
        "cniVersion": "1.0.0",
        "cniVersions": ["1.0.0", "1.1.0"],
        "name": NETWORK,
        // No key of the specification, and so not read by runtimes.
        BACKEND: name_backend(settings.backend),
        "plugins": [{
            "type": "ironclad-cni",
            "bridge": settings.bridge.as_str(),
            "mtu": mtu,
            "bootId": boot_id,
            "ipam": { "type": "host-local", "dataDir": settings.data_dir, "ranges": sets },
            "capabilities": { "portMappings": true, "bandwidth": true },
        }],
    })
}

/// Writes the configuration if it differs from the present one. The runtime sees the old file or
/// the new one. Returns whether it was written.
///
/// # Errors
/// The directory can't be written.
pub(crate) fn write_conflist(dir: &Path, tree: &Value) -> io::Result<bool> {
    let path = conflist_path(dir);
    let text = format!("{tree:#}\n");
    if fs::read_to_string(&path).is_ok_and(|present| present == text) {
        return Ok(false);
    }
    fs::create_dir_all(dir)?;
    // Runtimes read files with certain endings only.
    let temporary = dir.join(format!(".{FILE_NAME}.new"));
    fs::write(&temporary, text)?;
    // A power failure leaves the old file or the new one, too.
    fs::File::open(&temporary)?.sync_all()?;
    fs::rename(&temporary, &path)?;
    fs::File::open(dir)?.sync_all()?;
    Ok(true)
}

/// Returns whether the configuration exists and was written for a backend, in a boot of the
/// machine.
pub(crate) fn has_conflist(dir: &Path, backend: Backend, boot_id: &str) -> bool {
    let text = fs::read(conflist_path(dir)).unwrap_or_default();
    let tree: Value = serde_json::from_slice(&text).unwrap_or_default();
    tree[BACKEND] == name_backend(backend) && tree["plugins"][0]["bootId"] == boot_id
}

fn name_backend(backend: Backend) -> &'static str {
    match backend {
        Backend::Auto => "auto",
        Backend::Direct => "direct",
        Backend::Vxlan => "vxlan",
        Backend::Wireguard => "wireguard",
    }
}

/// Removes the configuration, if it exists.
///
/// # Errors
/// The directory can't be written.
pub(crate) fn remove_conflist(dir: &Path) -> io::Result<()> {
    match fs::remove_file(conflist_path(dir)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn conflist_path(dir: &Path) -> PathBuf {
    dir.join(FILE_NAME)
}
