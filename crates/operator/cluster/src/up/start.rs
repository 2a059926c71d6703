//! Hands a plan to the supervisor.

use crate::cluster_files::save_plan;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::plan::{Plan, Process};
use crate::settings::Settings;
use crate::systemd;
use crate::upgrade_state::end_upgrade;

/// Writes a plan and makes the supervisor follow it. Returns its processes with their stamps, for
/// [`wait_for_replacements`](super::wait::wait_for_replacements): the supervisor has not read the
/// plan yet.
#[must_use = "processes of an earlier plan may still run"]
pub(crate) fn start_processes(
    settings: &Settings,
    layout: &Layout,
    plan: Plan,
) -> Result<Vec<Process>> {
    let plan = save_plan(layout, plan)?;
    // All components get the programs of one release, so nothing is left of an interrupted upgrade.
    end_upgrade(layout)?;
    // The supervisor is the same program, so that an upgrade replaces both at once.
    let program = std::env::current_exe().map_err(Error::io("/proc/self/exe"))?;
    systemd::start_supervisor(settings, layout, &program)?;
    Ok(plan.processes)
}
