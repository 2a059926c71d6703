//! Hands a plan to the supervisor.

use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::plan::Plan;
use crate::settings::Settings;
use crate::{files, systemd};

/// Writes a plan with the current stamps of programs and files.
pub(super) fn save_plan(layout: &Layout, mut plan: Plan) -> Result<()> {
    // After all files are written: the stamp decides which processes are restarted.
    plan.set_stamps();
    let text = serde_json::to_string_pretty(&plan).unwrap_or_default();
    files::write_if_changed(&layout.plan(), text.as_bytes()).map(drop)
}

/// Writes a plan and makes the supervisor follow it.
pub(crate) fn start_processes(settings: &Settings, layout: &Layout, plan: Plan) -> Result<()> {
    save_plan(layout, plan)?;
    // The supervisor is the same program, so that an upgrade replaces both at once.
    let program = std::env::current_exe().map_err(Error::io("/proc/self/exe"))?;
    systemd::start_supervisor(settings, layout, &program)
}
