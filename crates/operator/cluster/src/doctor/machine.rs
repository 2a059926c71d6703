//! Problems of this machine: processes, certificates, disk.

use std::path::Path;

use jiff::Timestamp;

use super::finding::{Finding, Severity};
use crate::certificates::CertificateFile;
use crate::files::read_last_line;
use crate::layout::Layout;
use crate::status::{Component, Report};
use crate::upgrade_state::{is_unfinished, read_target};

/// Restarts from which on a component does not just recover from an accident.
const MANY_RESTARTS: u32 = 3;
/// Shares of free space in percent: the kubelet's defaults are 10 for evictions.
const FEW_PERCENT: u64 = 10;
const TOO_FEW_PERCENT: u64 = 3;

pub(super) fn examine_components(report: &Report) -> Vec<Finding> {
    let command = if report.is_joined { "join" } else { "up" };
    let repair = format!("ironclad {command} --data-dir={}", report.data_dir);
    if !is_started(report) {
        let problem = "is stopped";
        return vec![Finding::new(Severity::Error, "cluster", problem, repair)];
    }
    let mut findings: Vec<Finding> = report
        .components
        .iter()
        .filter_map(|component| examine_component(component, &repair))
        .collect();
    if !report.supervised {
        let problem = "does not run; components that end are not started again";
        findings.push(Finding::new(Severity::Error, "supervisor", problem, repair));
    }
    findings
}

/// Returns whether anything of the cluster runs.
pub(super) fn is_started(report: &Report) -> bool {
    report.supervised || report.components.iter().any(|component| component.running)
}

fn examine_component(component: &Component, repair: &str) -> Option<Finding> {
    let subject = format!("{} on {}", component.name, component.node);
    let show = format!("tail -n 50 {}", component.log);
    match (component.running, component.ready) {
        (false, _) => {
            let last = read_last_line(Path::new(&component.log)).unwrap_or_default();
            let problem = format!("does not run; its log ends with: {last}");
            Some(Finding::new(Severity::Error, subject, problem, repair))
        }
        (true, false) => {
            let problem = "runs, and is not ready";
            Some(Finding::new(Severity::Error, subject, problem, show))
        }
        (true, true) if component.restarts >= MANY_RESTARTS => {
            let problem = format!("ended by itself {} times", component.restarts);
            Some(Finding::new(Severity::Warning, subject, problem, show))
        }
        (true, true) => None,
    }
}

/// Returns a finding if components may run programs of two releases.
pub(super) fn examine_upgrade(layout: &Layout) -> Option<Finding> {
    is_unfinished(layout).then(|| {
        let problem =
            "runs, or was interrupted; the same command with --bin-dir continues it, and until it ends the supervisor renews no certificates";
        // The `ironclad` of the new release knows the state and the flags.
        let program = read_target(layout).map(|to| to.join("ironclad"));
        let program = program.filter(|program| program.is_file());
        let program = program.unwrap_or_else(|| "ironclad".into());
        let remedy = format!(
            "{} upgrade --rollback --data-dir={}",
            program.display(),
            layout.data().display()
        );
        Finding::new(Severity::Warning, "upgrade", problem, remedy)
    })
}

pub(super) fn examine_certificates(all: &[CertificateFile], now: Timestamp) -> Vec<Finding> {
    let finding = |certificate: &CertificateFile| {
        let problem = certificate.warning(now)?;
        let severity = match certificate.days_left(now) {
            ..0 => Severity::Error,
            _ => Severity::Warning,
        };
        let subject = format!("certificate {}", certificate.name);
        Some(Finding::new(
            severity,
            subject,
            problem,
            "ironclad certs list",
        ))
    };
    all.iter().filter_map(finding).collect()
}

pub(super) fn examine_disk(folder: &Path) -> Option<Finding> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    let (free, all) = (disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize);
    examine_space(folder, free, all)
}

fn examine_space(folder: &Path, free: u64, all: u64) -> Option<Finding> {
    // Virtual file systems report 0 blocks, and can't be full.
    let percent = free.checked_mul(100)?.checked_div(all)?;
    if percent >= FEW_PERCENT {
        return None;
    }
    let severity = match percent < TOO_FEW_PERCENT {
        true => Severity::Error,
        false => Severity::Warning,
    };
    let problem = format!("{percent} % are free ({} MiB)", free >> 20);
    let remedy = format!("du -xh --max-depth=2 {} | sort -h | tail", folder.display());
    let subject = format!("disk of {}", folder.display());
    Some(Finding::new(severity, subject, problem, remedy))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn component(running: bool, ready: bool, restarts: u32, log: &Path) -> Component {
        Component {
            name: "kubelet".to_owned(),
            node: "n".to_owned(),
            running,
            ready,
            pid: None,
            restarts,
            log: log.display().to_string(),
        }
    }

    #[test]
    fn component_that_does_not_run_is_reported_with_the_end_of_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        std::fs::write(&log, format!("{}\nthe port is in use\n", "x".repeat(9000))).unwrap();
        let examine = |running, ready, restarts| {
            examine_component(&component(running, ready, restarts, &log), "ironclad up")
        };
        let found = examine(false, false, 0).unwrap();
        assert!(found.problem.ends_with("the port is in use"), "{found:?}");
        assert_eq!(
            (found.severity, found.remedy.as_str()),
            (Severity::Error, "ironclad up")
        );
        assert_eq!(examine(true, false, 0).unwrap().severity, Severity::Error);
        assert_eq!(examine(true, true, 3).unwrap().severity, Severity::Warning);
        assert_eq!(examine(true, true, 2), None);
    }

    #[test]
    fn interrupted_upgrade_is_reported_with_the_command_that_ends_it() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        assert_eq!(examine_upgrade(&layout), None);
        std::fs::write(layout.upgrade(), "{}").unwrap();
        let remedy = examine_upgrade(&layout).unwrap().remedy;
        assert!(
            remedy.starts_with("ironclad upgrade --rollback"),
            "{remedy}"
        );
        let program = dir.path().join("ironclad");
        std::fs::write(&program, "").unwrap();
        let state = serde_json::json!({ "to": dir.path() });
        std::fs::write(layout.upgrade(), state.to_string()).unwrap();
        let remedy = examine_upgrade(&layout).unwrap().remedy;
        assert!(
            remedy.starts_with(&format!("{} upgrade --rollback", program.display())),
            "{remedy}"
        );
    }

    #[test]
    fn disk_is_reported_when_little_is_free() {
        let severity =
            |free| examine_space(Path::new("/x"), free, 1000).map(|found| found.severity);
        assert_eq!(severity(29), Some(Severity::Error));
        assert_eq!(severity(99), Some(Severity::Warning));
        assert_eq!(severity(100), None);
        assert_eq!(examine_space(Path::new("/x"), 0, 0), None);
    }
}
