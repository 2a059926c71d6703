//! Operations on the files of a member that does not run: status and restore of snapshot files,
//! verification of a data directory, `--force-new-cluster`.
//!
//! Invariant: opens no port and contacts no member.

mod check;
mod force_new_cluster;
mod snapshot;

pub use check::check_folder;
pub use force_new_cluster::force_new_cluster;
pub use snapshot::run_snapshot_command;

use std::io::Write;

/// Prints a line of a command's result.
fn print_line(text: &str) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}
