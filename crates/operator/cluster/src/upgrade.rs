//! Replaces the programs of a cluster's machine, one component after the other. If one does not
//! become healthy, all of them get their former programs back.
//!
//! Invariant: the state is stored before each change, so a command that was killed can be repeated,
//! or rolled back. The supervisor follows the plan, which has programs of both releases meanwhile.

mod configs;
mod health;
mod options;
mod programs;
mod steps;
mod trust;
mod version;

use std::path::Path;
use std::time::Duration;

use crate::addons;
use crate::cluster_files::save_exact_plan;
use crate::config_file::write_configs;
use crate::connect::{connect_admin_at, local_api_url};
use crate::error::{Error, Result};
use crate::files;
use crate::layout::Layout;
use crate::network::{link_plugins, plugin_program};
use crate::plan::{Plan, make_plan};
use crate::settings::Settings;
use crate::status::cluster_status;
use crate::systemd;
use crate::token_issuers::check_issuers;
use crate::up::choose::{absolute_path, reject_removed};
use crate::upgrade_state::{FORMAT, Phase, UpgradeState, end_upgrade, is_unfinished};
use configs::{NewConfigs, write_credentials};
use health::HealthChecks;
pub use options::{PlannedStep, UpgradeOptions, UpgradeOutcome, UpgradeTarget};
use programs::{check_programs, check_running_files, list_new_programs};
use steps::{
    Action, Start, Step, decide_start, find_process, keep_present, list_open_steps, next_action,
    order_steps, swap_process,
};
use trust::reject_foreign_owners;

/// Minimum of the timeout: [`health`] observes a component for 2 s, and its start takes a moment.
const MIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause before a failed update of objects is repeated.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Upgrades the components of the machine, continues with that, or undoes it.
///
/// # Errors
/// A check that failed, with nothing changed; a component that did not become healthy, with
/// everything rolled back; or a rollback that failed.
pub async fn upgrade_cluster(
    options: &UpgradeOptions,
    report_progress: &dyn Fn(&str),
) -> Result<UpgradeOutcome> {
    let data_dir = absolute_path(&options.data_dir)?;
    let settings = Settings::load_existing(&data_dir)?;
    let layout = Layout::for_settings(&settings);
    check_settings(&settings, options)?;
    let mut state = UpgradeState::load(&layout)?;
    if let Some(state) = &state {
        reject_changed_settings(&settings, state)?;
    }
    let mut known_directories = vec![settings.bin_dir.as_path()];
    known_directories.extend(
        state
            .iter()
            .flat_map(|state| [state.from.as_path(), &state.to]),
    );
    let target = resolve_target(&options.target, &known_directories)?;
    let start = decide_start(state.as_ref(), &settings.bin_dir, &target)?;
    let upgrade = Upgrade {
        settings: &settings,
        layout: &layout,
        options,
        report_progress,
    };
    match (start, &mut state, &target) {
        (Start::RollBack, Some(state), _) => upgrade.resume_rollback(state, &target).await,
        (Start::Continue, Some(state), _) => upgrade.resume(state).await,
        (_, _, UpgradeTarget::Directory(to)) => upgrade.begin(to).await,
        // `decide_start` begins no upgrade without a directory.
        (_, _, UpgradeTarget::Former) => Err(Error::Refused(
            "no directory was given; name that of the new programs with --bin-dir".to_owned(),
        )),
    }
}

/// Rejects machines and options with which no upgrade can begin.
fn check_settings(settings: &Settings, options: &UpgradeOptions) -> Result<()> {
    reject_removed(settings)?;
    if settings.awaits_promotion() {
        return Err(Error::Refused(
            "this machine has not joined the control plane yet; run `ironclad join` again first"
                .to_owned(),
        ));
    }
    if options.timeout < MIN_TIMEOUT {
        return Err(Error::Refused(format!(
            "--timeout is at least {} s: a rollback waits for the former programs as long",
            MIN_TIMEOUT.as_secs()
        )));
    }
    Ok(())
}

/// Rejects an upgrade whose plan another command was about to replace: the state has former
/// settings, and the files may have new ones.
fn reject_changed_settings(settings: &Settings, state: &UpgradeState) -> Result<()> {
    let before = Settings {
        bin_dir: settings.bin_dir.clone(),
        ..state.settings.clone()
    };
    match before == *settings {
        true => Ok(()),
        false => Err(Error::Refused(
            "the settings have changed since the upgrade began, because an `ironclad up` or `ironclad join` was interrupted; \
             run that again, which gives all components the programs of one directory"
                .to_owned(),
        )),
    }
}

/// Returns the target with the real path of its directory, so that no link can change it later; a
/// known one by its known name.
fn resolve_target(target: &UpgradeTarget, known: &[&Path]) -> Result<UpgradeTarget> {
    let UpgradeTarget::Directory(given) = target else {
        return Ok(UpgradeTarget::Former);
    };
    let given = absolute_path(given)?;
    let real = given.canonicalize().ok();
    let is_same = |other: &&&Path| real.is_some() && other.canonicalize().ok() == real;
    let same = known.iter().find(is_same).map(|path| path.to_path_buf());
    Ok(UpgradeTarget::Directory(same.or(real).unwrap_or(given)))
}

/// One run of the command.
struct Upgrade<'a> {
    settings: &'a Settings,
    layout: &'a Layout,
    options: &'a UpgradeOptions,
    report_progress: &'a dyn Fn(&str),
}

impl Upgrade<'_> {
    fn report(&self, text: &str) {
        (self.report_progress)(text);
    }

    /// Returns the settings with another directory of programs.
    fn settings_for(&self, bin_dir: &Path) -> Settings {
        Settings {
            bin_dir: bin_dir.to_owned(),
            ..self.settings.clone()
        }
    }

    /// Returns the plan with the new programs and configurations.
    fn plan_for(&self, bin_dir: &Path, configs: &NewConfigs) -> Plan {
        let mut plan = make_plan(&self.settings_for(bin_dir), self.layout);
        plan.set_future_stamps(configs.files());
        plan
    }

    /// Checks everything, stores the state, and replaces the programs.
    async fn begin(&self, to: &Path) -> Result<UpgradeOutcome> {
        let before = Plan::load(self.layout)?;
        let configs = NewConfigs::new(&self.settings_for(to), self.layout)?;
        let steps = order_steps(&before, &self.plan_for(to, &configs), &before);
        self.report(&format!("checking the programs in {}", to.display()));
        let planned = self.check_new(&steps, to).await?;
        check_running_files(&before, self.layout)?;
        self.check_health().await?;
        if self.options.dry_run {
            return Ok(UpgradeOutcome::Planned(planned));
        }
        let mut state = UpgradeState {
            format: FORMAT,
            settings: self.settings.clone(),
            added: Vec::new(),
            from: self.settings.bin_dir.clone(),
            to: to.to_owned(),
            before,
            configs: Vec::new(),
            phase: Phase::Forward,
            replaced: Vec::new(),
            healthy: 0,
        };
        self.replace_programs(&mut state, &configs).await
    }

    /// Continues an upgrade. The cluster may be unhealthy by the component that was just replaced.
    async fn resume(&self, state: &mut UpgradeState) -> Result<UpgradeOutcome> {
        let to = state.to.clone();
        self.report(&format!("continuing the upgrade to {}", to.display()));
        let present = Plan::load(self.layout)?;
        let configs = NewConfigs::new(&self.settings_for(&to), self.layout)?;
        let steps = order_steps(&state.before, &self.plan_for(&to, &configs), &present);
        let open: Vec<Step> = list_open_steps(state, &steps, &present).cloned().collect();
        let planned = self.check_new(&open, &to).await?;
        if self.options.dry_run {
            return Ok(UpgradeOutcome::Planned(planned));
        }
        self.replace_programs(state, &configs).await
    }

    /// Checks the new programs, first who may change them: the check of the version runs them.
    async fn check_new(&self, steps: &[Step], to: &Path) -> Result<Vec<PlannedStep>> {
        let mut programs = list_new_programs(steps, to);
        // Without one beside them, this program becomes the supervisor.
        if !to.join("ironclad").is_file() {
            programs.push(std::env::current_exe().map_err(Error::io("/proc/self/exe"))?);
        }
        if let Some(plugin) = plugin_program(&self.settings_for(to)) {
            if !plugin.is_file() {
                return Err(Error::Refused(format!(
                    "{} does not exist, and pods of this cluster need it; a directory of programs has all of them",
                    plugin.display()
                )));
            }
            programs.push(plugin);
        }
        reject_foreign_owners(programs)?;
        let planned = check_programs(steps, to, self.options.allow_downgrade).await?;
        check_issuers(&self.settings_for(to))?;
        Ok(planned)
    }

    /// Rejects a cluster that is not healthy: a failure would not be that of a new program.
    async fn check_health(&self) -> Result<()> {
        let report = cluster_status(&self.settings.data_dir).await?;
        let unready = report.components.iter().find(|component| !component.ready);
        match unready {
            Some(unready) => Err(Error::Refused(format!(
                "{} is not ready, so nothing was changed; see {}, and `ironclad status`",
                unready.name, unready.log
            ))),
            None if !report.supervised => Err(Error::Refused(
                "the supervisor does not run, so nothing was changed; run `ironclad up`, or `ironclad join` on a machine \
                 that joined a cluster"
                    .to_owned(),
            )),
            None => Ok(()),
        }
    }

    /// Replaces the components that are left. After a failure it rolls all of them back, and
    /// returns the failure.
    async fn replace_programs(
        &self,
        state: &mut UpgradeState,
        configs: &NewConfigs,
    ) -> Result<UpgradeOutcome> {
        state.note_configs(configs)?;
        state.save(self.layout)?;
        let Err(failure) = self.try_replace(state, configs).await else {
            return Ok(UpgradeOutcome::Upgraded);
        };
        self.report(&format!("{failure}"));
        state.phase = Phase::Back;
        state.save(self.layout)?;
        let (from, to) = (state.from.clone(), state.to.clone());
        match self.roll_back(state).await {
            Ok(()) => Err(Error::Refused(format!(
                "{failure}. All components run the programs of {} again. Correct the cause in {}, and repeat the command",
                from.display(),
                to.display()
            ))),
            Err(second) => Err(Error::Refused(format!(
                "{failure}. The rollback failed, too: {second}. {}",
                match is_unfinished(self.layout) {
                    true => "`ironclad upgrade --rollback` continues it",
                    false => "`ironclad status` shows what runs",
                }
            ))),
        }
    }

    async fn try_replace(&self, state: &mut UpgradeState, configs: &NewConfigs) -> Result<()> {
        let settings = self.settings_for(&state.to);
        write_credentials(&settings, self.layout)?;
        // The stamps are those with the new configurations, which are written later.
        let after = self.plan_for(&state.to, configs);
        let mut present = Plan::load(self.layout)?;
        let steps = order_steps(&state.before, &after, &present);
        let checks = HealthChecks::new(&settings, self.layout, self.options.timeout)?;
        while let Action::Replace(step) = next_action(state, &steps, &present) {
            let step = step.clone();
            let number = state.healthy.saturating_add(1);
            self.report(&format!(
                "{number}/{}: replacing {}",
                steps.len(),
                step.name
            ));
            state.begin_step(&step.name);
            state.save(self.layout)?;
            self.replace(&step, configs, &checks).await?;
            state.end_step(&step.name);
            state.save(self.layout)?;
            present = Plan::load(self.layout)?;
        }
        configs.write_all()?;
        self.commit(state, &after, &checks).await
    }

    /// Starts the new program of a component, and waits until it is healthy.
    async fn replace(
        &self,
        step: &Step,
        configs: &NewConfigs,
        checks: &HealthChecks<'_>,
    ) -> Result<()> {
        configs.write_inputs(step)?;
        let plan = Plan::load(self.layout)?;
        let plan = swap_process(plan, &step.name, step.after.as_ref());
        save_exact_plan(self.layout, &plan)?;
        if !systemd::notify_supervisor(self.layout)? {
            // The machine has restarted since the interruption, or the supervisor was killed.
            self.start_supervisor(self.settings)?;
        }
        match &step.after {
            Some(process) => checks.wait_for(process).await,
            None => Ok(()),
        }
    }

    /// Makes the upgrade permanent.
    async fn commit(
        &self,
        state: &UpgradeState,
        after: &Plan,
        checks: &HealthChecks<'_>,
    ) -> Result<()> {
        // One that was healthy at its turn may have failed since, for example by a newer server.
        for process in &after.processes {
            if checks.check(process).await.is_none() {
                checks.wait_for(process).await?;
            }
        }
        let settings = self.settings_for(&state.to);
        if settings.membership.is_none() {
            self.report("updating the objects of the cluster");
            self.update_objects(&settings).await?;
        }
        settings.save()?;
        link_plugins(&settings, self.layout)?;
        self.save_whole_plan(&settings, after)?;
        end_upgrade(self.layout)
    }

    /// Updates the objects of the cluster. An error of a moment does not undo the upgrade.
    async fn update_objects(&self, settings: &Settings) -> Result<()> {
        // Issuers of tokens that are not published yet wait for `up`: a refusal of them would undo
        // the upgrade.
        let settings = &Settings {
            replaced_issuers: None,
            ..settings.clone()
        };
        let client = connect_admin_at(&local_api_url(settings), self.layout);
        let mut failure = None;
        let updating = async {
            while let Err(error) = addons::apply_addons(&client, settings, self.layout).await {
                if failure.is_none() {
                    self.report(&format!("{error}; trying again"));
                }
                failure = Some(error);
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        };
        match tokio::time::timeout(self.options.timeout, updating).await {
            Ok(()) => Ok(()),
            Err(_) => Err(failure.unwrap_or_else(|| {
                Error::Refused("the objects of the cluster could not be updated in time; give a longer --timeout".to_owned())
            })),
        }
    }

    /// Makes the supervisor follow a plan of one release. The stamps are those of the processes
    /// that were examined.
    fn save_whole_plan(&self, settings: &Settings, plan: &Plan) -> Result<()> {
        save_exact_plan(self.layout, plan)?;
        self.start_supervisor(settings)
    }

    /// Notifies the supervisor, or starts it.
    fn start_supervisor(&self, settings: &Settings) -> Result<()> {
        let beside = settings.bin_dir.join("ironclad");
        let program = match beside.is_file() {
            true => beside,
            false => std::env::current_exe().map_err(Error::io("/proc/self/exe"))?,
        };
        systemd::start_supervisor(settings, self.layout, &program)
    }

    /// Continues a rollback, or begins that of an interrupted upgrade.
    async fn resume_rollback(
        &self,
        state: &mut UpgradeState,
        target: &UpgradeTarget,
    ) -> Result<UpgradeOutcome> {
        if self.options.dry_run {
            let steps = state.replaced.iter().rev();
            let steps = steps.map(|name| self.plan_rollback(name)).collect();
            return Ok(UpgradeOutcome::Planned(steps));
        }
        self.report(&format!(
            "undoing the interrupted upgrade to {}",
            state.to.display()
        ));
        state.phase = Phase::Back;
        state.save(self.layout)?;
        self.roll_back(state).await?;
        match target {
            UpgradeTarget::Directory(to) if *to == state.to => Err(Error::Refused(format!(
                "the rollback of the last upgrade had been interrupted, and has ended now; run the command again to upgrade \
                 to {}",
                to.display()
            ))),
            _ => Ok(UpgradeOutcome::RolledBack),
        }
    }

    fn plan_rollback(&self, name: &str) -> PlannedStep {
        let plan = make_plan(self.settings, self.layout);
        let process = find_process(&plan, name);
        PlannedStep {
            name: name.to_owned(),
            node: process.map_or_else(String::new, |process| process.node.clone()),
            from: None,
            to: None,
        }
    }

    /// Starts the former programs in reverse order. One that is not healthy does not keep the
    /// others from being rolled back.
    async fn roll_back(&self, state: &mut UpgradeState) -> Result<()> {
        write_configs(&state.configs)?;
        let settings = self.settings_for(&state.from);
        let mut before = state.before.clone();
        // A certificate may have been renewed since.
        before.set_stamps();
        let checks = HealthChecks::new(&settings, self.layout, self.options.timeout)?;
        let mut failure = None;
        while let Action::RollBack(name) = next_action(state, &[], &before) {
            let name = name.to_owned();
            self.report(&format!("rolling {name} back"));
            let process = find_process(&before, &name);
            let plan = swap_process(Plan::load(self.layout)?, &name, process);
            save_exact_plan(self.layout, &plan)?;
            if !systemd::notify_supervisor(self.layout)? {
                self.start_supervisor(&settings)?;
            }
            if let Some(process) = process
                && let Err(error) = checks.wait_for(process).await
            {
                self.report(&format!("{error}"));
                failure = failure.or(Some(error));
            }
            state.undo_step();
            state.save(self.layout)?;
        }
        settings.save()?;
        link_plugins(&settings, self.layout)?;
        for path in &state.added {
            files::remove_file(path)?;
        }
        let whole = keep_present(before, &Plan::load(self.layout)?);
        self.save_whole_plan(&settings, &whole)?;
        end_upgrade(self.layout)?;
        failure.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The state has one node and its files, and the settings may have three.
    #[test]
    fn upgrade_whose_settings_have_changed_is_neither_continued_nor_undone() {
        let before = Settings::example();
        let mut state = UpgradeState {
            settings: before.clone(),
            ..UpgradeState::example()
        };
        let other_directory = Settings {
            bin_dir: "/other".into(),
            ..before
        };
        reject_changed_settings(&other_directory, &state).unwrap();
        state.settings = Settings::with_nodes(2);
        let error = reject_changed_settings(&other_directory, &state).unwrap_err();
        assert!(
            error.to_string().contains("the settings have changed"),
            "{error}"
        );
    }

    #[test]
    fn directory_is_known_by_each_of_its_names() {
        let dir = tempfile::tempdir().unwrap();
        let (old, link) = (dir.path().join("old"), dir.path().join("link"));
        std::fs::create_dir(&old).unwrap();
        std::os::unix::fs::symlink(&old, &link).unwrap();
        let absent = dir.path().join("absent");
        let (other, other_link) = (dir.path().join("other"), dir.path().join("other-link"));
        std::fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&other, &other_link).unwrap();
        for (given, expected) in [
            (&old, &old),
            (&link, &old),
            (&dir.path().join("old/../old"), &old),
            (&absent, &absent),
            // Stored by its real name: the link could be changed later.
            (&other_link, &other),
        ] {
            let target = UpgradeTarget::Directory(given.clone());
            let found = resolve_target(&target, &[&absent, &old]).unwrap();
            assert_eq!(
                found,
                UpgradeTarget::Directory(expected.clone()),
                "{given:?}"
            );
        }
    }
}
