//! Options of `ironclad upgrade`.

use std::path::PathBuf;
use std::time::Duration;

/// The programs that `upgrade_cluster` starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpgradeTarget {
    /// Replace the programs by those in this directory.
    Directory(PathBuf),
    /// Undo an upgrade that was interrupted.
    Former,
}

/// Options of `upgrade_cluster`.
#[derive(Debug, Clone)]
pub struct UpgradeOptions {
    /// Data directory.
    pub data_dir: PathBuf,
    /// The programs to run.
    pub target: UpgradeTarget,
    /// Accept programs of an older release.
    pub allow_downgrade: bool,
    /// Maximum time until a component is healthy; at least 5 s.
    pub timeout: Duration,
    /// Check, and report the steps; change nothing.
    pub dry_run: bool,
}

/// A component that an upgrade replaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedStep {
    /// Name of the component.
    pub name: String,
    /// Name of its node.
    pub node: String,
    /// Version of the running program; None if the component is new, does not report a version, or
    /// is rolled back.
    pub from: Option<String>,
    /// Version of the next program; None if the component is removed, does not report a version, or
    /// is rolled back.
    pub to: Option<String>,
}

/// The result of an upgrade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpgradeOutcome {
    /// `dry_run` was set: what would be done, in this order.
    Planned(Vec<PlannedStep>),
    /// All components run the new programs.
    Upgraded,
    /// All components run the former programs again.
    RolledBack,
}
