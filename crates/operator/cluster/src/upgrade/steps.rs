//! The decisions of an upgrade: pure functions of the stored state and the plans.

use std::path::Path;

use super::options::UpgradeTarget;
use crate::error::{Error, Result};
use crate::plan::{Plan, Process};
use crate::upgrade_state::{Phase, UpgradeState};

/// The order of replacement, by program: servers before their clients, as upstream's version skew
/// policy requires.
const ORDER: [&str; 9] = [
    "kvstore",
    "kube-apiserver",
    // The proxy to the API servers.
    "ironclad",
    "kube-controller-manager",
    "kube-scheduler",
    "containerd",
    "kubelet",
    "kube-proxy",
    "cluster-dns",
];

/// A component that is replaced, added or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) name: String,
    /// The process before; None for a new component.
    pub(super) before: Option<Process>,
    /// The process after; None for a component that the new release does not have.
    pub(super) after: Option<Process>,
}

/// The beginning of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// No upgrade has begun.
    Begin,
    /// An upgrade to the same programs was interrupted.
    Continue,
    /// An upgrade was interrupted, and is to be undone.
    RollBack,
}

/// The next thing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action<'a> {
    /// Start the new program of a component, and wait until it is healthy.
    Replace(&'a Step),
    /// Start the former program of a component.
    RollBack(&'a str),
    /// All components are replaced: make it permanent.
    Commit,
    /// All components are rolled back: make it permanent.
    Restore,
}

/// Decides what a command does, after what was interrupted before.
pub(super) fn decide_start(
    state: Option<&UpgradeState>,
    bin_dir: &Path,
    target: &UpgradeTarget,
) -> Result<Start> {
    let refuse = |text: String| Err(Error::Refused(text));
    match (state, target) {
        (None, UpgradeTarget::Former) => refuse(
            "no upgrade was interrupted here; `DIR/ironclad upgrade --bin-dir DIR --allow-downgrade` runs the programs of \
             an older release"
                .to_owned(),
        ),
        (None, UpgradeTarget::Directory(to)) if to == bin_dir => refuse(format!(
            "the cluster runs the programs of {} already; if the files were replaced there, `ironclad up` restarts what \
             changed, and a rollback needs the former files in a directory of their own",
            bin_dir.display()
        )),
        (None, UpgradeTarget::Directory(_)) => Ok(Start::Begin),
        (Some(_), UpgradeTarget::Former) => Ok(Start::RollBack),
        (Some(state), UpgradeTarget::Directory(to)) if *to == state.from => Ok(Start::RollBack),
        (Some(state), UpgradeTarget::Directory(to)) if *to == state.to => Ok(match state.phase {
            Phase::Forward => Start::Continue,
            // A component was not healthy, so the cluster has to be whole before the next attempt.
            Phase::Back => Start::RollBack,
        }),
        (Some(state), UpgradeTarget::Directory(_)) => refuse(format!(
            "an upgrade to {} was interrupted; run it again, or `ironclad upgrade --rollback`",
            state.to.display()
        )),
    }
}

/// Returns the components that differ between two plans, in the order of their replacement; also
/// those that differ from the present one, since an earlier run may have made another plan.
pub(super) fn order_steps(before: &Plan, after: &Plan, present: &Plan) -> Vec<Step> {
    let replaced = after.processes.iter().map(|process| Step {
        name: process.name.clone(),
        before: find_process(before, &process.name).cloned(),
        after: Some(process.clone()),
    });
    let is_absent = |process: &&Process| find_process(after, &process.name).is_none();
    let removed = before
        .processes
        .iter()
        .filter(is_absent)
        .map(|process| Step {
            name: process.name.clone(),
            before: Some(process.clone()),
            after: None,
        });
    let mut steps: Vec<Step> = replaced
        .chain(removed)
        .filter(|step| step.before != step.after || !step.is_in(present))
        .collect();
    // Stable: the nodes of one machine stay in their order.
    steps.sort_by_key(rank_step);
    steps
}

fn rank_step(step: &Step) -> usize {
    let process = step.after.as_ref().or(step.before.as_ref());
    let program = process.and_then(Process::program_name);
    let position = ORDER.iter().position(|name| Some(*name) == program);
    position.unwrap_or(ORDER.len())
}

pub(super) fn find_process<'a>(plan: &'a Plan, name: &str) -> Option<&'a Process> {
    plan.processes.iter().find(|process| process.name == name)
}

/// Returns the plan with another process of this name, or without one.
pub(super) fn swap_process(mut plan: Plan, name: &str, process: Option<&Process>) -> Plan {
    let found = plan.processes.iter().position(|other| other.name == name);
    match (found, process) {
        (Some(index), Some(process)) => plan.processes[index] = process.clone(),
        (Some(index), None) => drop(plan.processes.remove(index)),
        (None, Some(process)) => plan.processes.push(process.clone()),
        (None, None) => {}
    }
    plan
}

/// Decides what is next. A component whose replacement was interrupted is replaced again, and so is
/// one whose program or files have changed since: the present plan has another entry for it.
pub(super) fn next_action<'a>(
    state: &'a UpgradeState,
    steps: &'a [Step],
    present: &'a Plan,
) -> Action<'a> {
    let last = state.replaced.last();
    if state.phase == Phase::Back {
        return last.map_or(Action::Restore, |name| Action::RollBack(name));
    }
    let mut open = list_open_steps(state, steps, present);
    open.next().map_or(Action::Commit, Action::Replace)
}

/// Returns the components that are not known to be healthy with their new programs.
pub(super) fn list_open_steps<'a>(
    state: &'a UpgradeState,
    steps: &'a [Step],
    present: &'a Plan,
) -> impl Iterator<Item = &'a Step> {
    let done = state.replaced.get(..state.healthy).unwrap_or_default();
    let is_done = |step: &&Step| done.contains(&step.name) && step.is_in(present);
    steps.iter().filter(move |step| !is_done(step))
}

impl Step {
    /// Returns whether the plan has the entry of the new program.
    fn is_in(&self, plan: &Plan) -> bool {
        find_process(plan, &self.name) == self.after.as_ref()
    }
}

/// Returns the plan before the upgrade. A component that was never replaced keeps its present
/// entry: its certificate may have been renewed, and a restart would not be examined.
pub(super) fn keep_present(mut before: Plan, present: &Plan) -> Plan {
    for process in &mut before.processes {
        if let Some(entry) = find_process(present, &process.name) {
            let stamp = entry.stamp.clone();
            let same = Process {
                stamp: process.stamp.clone(),
                ..entry.clone()
            };
            if same == *process {
                process.stamp = stamp;
            }
        }
    }
    before
}

impl UpgradeState {
    /// Records that a component may run its new program from now on.
    pub(super) fn begin_step(&mut self, name: &str) {
        match self.find_replaced(name) {
            // Those after it were examined with its former entry, and are again.
            Some(index) => self.healthy = self.healthy.min(index),
            None => self.replaced.push(name.to_owned()),
        }
    }

    /// Records that a replaced component is healthy.
    pub(super) fn end_step(&mut self, name: &str) {
        if let Some(index) = self.find_replaced(name) {
            self.healthy = self.healthy.max(index.saturating_add(1));
        }
    }

    fn find_replaced(&self, name: &str) -> Option<usize> {
        self.replaced.iter().position(|replaced| replaced == name)
    }

    /// Records that the last replaced component runs its former program again.
    pub(super) fn undo_step(&mut self) {
        self.replaced.pop();
        self.healthy = self.healthy.min(self.replaced.len());
    }
}

#[cfg(test)]
#[path = "steps_tests.rs"]
mod tests;
