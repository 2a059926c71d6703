//! Network devices of the calling thread's network namespace.

use crate::command::run_command;
use crate::error::Result;

/// Creates a bridge with an address.
pub(super) fn ensure_bridge(name: &str, address: &str) -> Result<()> {
    if !device_exists(name) {
        run_command("ip", &["link", "add", name, "type", "bridge"])?;
    }
    // replace is idempotent; add would fail in the second run.
    run_command("ip", &["address", "replace", address, "dev", name])?;
    run_command("ip", &["link", "set", name, "up"]).map(drop)
}

/// Returns whether a device of this name exists. Queries the kernel instead of `/sys`, which may
/// show another network namespace.
pub(super) fn device_exists(device: &str) -> bool {
    run_command("ip", &["link", "show", "dev", device]).is_ok()
}

/// Removes a device if it exists: a second `down` must succeed as well.
pub(super) fn remove_device(device: &str) -> Result<()> {
    if !device_exists(device) {
        return Ok(());
    }
    match run_command("ip", &["link", "delete", device]) {
        // The kernel removed it in between, with the namespace of its other end.
        Err(_) if !device_exists(device) => Ok(()),
        done => done.map(drop),
    }
}
