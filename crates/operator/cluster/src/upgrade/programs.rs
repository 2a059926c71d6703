//! Checks of programs before anything is replaced: they exist, are for this machine, and report
//! their version.

use std::cmp::Ordering;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::Command;

use super::options::PlannedStep;
use super::steps::Step;
use super::version::{Version, split_output};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::plan::{Plan, Process};
use crate::process::Record;

/// Time for `--version`, which a program answers in milliseconds, also from a cold disk.
const VERSION_TIMEOUT: Duration = Duration::from_secs(20);
/// Bound on the output of `--version` that is read, in bytes.
const MAX_OUTPUT: u64 = 4096;

/// The machine for which an ELF program is built: class, byte order and instruction set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Architecture {
    class: u8,
    order: u8,
    machine: u16,
}

impl Architecture {
    /// Parses the header of a file; None if it is no ELF program.
    fn parse(header: &[u8; 20]) -> Option<Self> {
        let (magic, rest) = header.split_first_chunk::<4>()?;
        let (&class, &order) = (rest.first()?, rest.get(1)?);
        // e_machine, after the 16 bytes of identification and the 2 bytes of the type.
        let machine = *header.last_chunk::<2>()?;
        (magic == b"\x7fELF").then_some(Self {
            class,
            order,
            machine: match order {
                2 => u16::from_be_bytes(machine),
                _ => u16::from_le_bytes(machine),
            },
        })
    }

    /// Returns the name of the instruction set, as `uname -m` prints it.
    fn name(self) -> String {
        let name = match self.machine {
            3 => "i386",
            22 => "s390x",
            40 => "arm",
            62 => "x86_64",
            183 => "aarch64",
            243 => "riscv64",
            other => return format!("ELF machine {other}"),
        };
        name.to_owned()
    }
}

/// Reads the architecture of a program; None for one that is no ELF file, such as a script.
fn read_architecture(path: &Path) -> Result<Option<Architecture>> {
    let mut header = [0; 20];
    let mut file = std::fs::File::open(path).map_err(Error::io(path))?;
    Ok(match file.read_exact(&mut header) {
        Ok(()) => Architecture::parse(&header),
        // A short file can be a script.
        Err(_) => None,
    })
}

fn reject_program<T>(text: String) -> Result<T> {
    Err(Error::Refused(text))
}

/// Rejects a program for another architecture: the kernel's own error does not say that.
fn check_architecture(path: &Path) -> Result<()> {
    let own = read_architecture(Path::new("/proc/self/exe"))?;
    match (read_architecture(path)?, own) {
        (Some(found), Some(own)) if found != own => reject_program(format!(
            "{} is a program for {}, and this machine has {}",
            path.display(),
            found.name(),
            own.name()
        )),
        _ => Ok(()),
    }
}

/// Runs a program with `--version`; returns what it prints.
async fn run_version(path: &Path) -> Result<String> {
    let failed = |reason: String| Error::Command {
        command: format!("{} --version", path.display()),
        reason,
    };
    let mut child = Command::new(path)
        .arg("--version")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let mut output = Vec::new();
    let running = async {
        if let Some(stdout) = child.stdout.take() {
            stdout.take(MAX_OUTPUT).read_to_end(&mut output).await?;
        }
        child.wait().await
    };
    let ended = tokio::time::timeout(VERSION_TIMEOUT, running).await;
    let status = ended
        .map_err(|_| {
            failed(format!(
                "it did not end within {} s",
                VERSION_TIMEOUT.as_secs()
            ))
        })?
        .map_err(|error| failed(error.to_string()))?;
    match status.success() {
        true => Ok(String::from_utf8_lossy(&output).into_owned()),
        false => Err(failed(status.to_string())),
    }
}

/// Returns the version of a new program, after all checks.
async fn examine_new(path: &Path, name: &str) -> Result<Version> {
    if !path.is_file() {
        return reject_program(format!(
            "{} does not exist; a directory of programs has all of them",
            path.display()
        ));
    }
    check_architecture(path)?;
    let output = run_version(path).await?;
    let parsed = split_output(&output);
    match parsed.map(|(found, version)| (found == name, Version::parse(version))) {
        Some((true, Some(version))) => Ok(version),
        _ => reject_program(format!(
            "{} --version prints {:?} instead of \"{name} VERSION\"; it is another program",
            path.display(),
            output.lines().next().unwrap_or_default()
        )),
    }
}

/// Returns the version of a running program; None if it reports none in our form. The rollback runs
/// it, so one that can't be run is an error.
async fn examine_former(path: &Path) -> Result<Option<Version>> {
    if !path.is_file() {
        return reject_program(format!(
            "{} runs and its file does not exist, so a rollback would fail; put it there, or use `ironclad up`",
            path.display()
        ));
    }
    let output = run_version(path).await?;
    Ok(split_output(&output).and_then(|(_, version)| Version::parse(version)))
}

/// Rejects a step to an older version, and one to another version than that of this program, which
/// writes the flags and configurations of its own release.
fn check_versions(
    step: &Step,
    versions: (Option<&Version>, &Version),
    own: &Version,
    allow_downgrade: bool,
) -> Result<()> {
    let (former, new) = versions;
    if new.compare(own) != Ordering::Equal {
        return reject_program(format!(
            "{} has version {new}, and this is `ironclad` {own}, which does not know its flags; run the `ironclad` of that \
             release",
            step.name
        ));
    }
    match former {
        Some(former) if new.compare(former) == Ordering::Less && !allow_downgrade => {
            reject_program(format!(
                "{} has version {new}, and {former} runs; data of a newer release may be unreadable for an older one: read \
                 the changelog, save a backup, and give --allow-downgrade",
                step.name
            ))
        }
        _ => Ok(()),
    }
}

fn program_path(process: &Process) -> PathBuf {
    PathBuf::from(process.argv.first().cloned().unwrap_or_default())
}

/// Checks the programs of all steps, and the `ironclad` of the directory, which the next supervisor
/// runs. Returns the steps with their versions.
pub(super) async fn check_programs(
    steps: &[Step],
    directory: &Path,
    allow_downgrade: bool,
) -> Result<Vec<PlannedStep>> {
    let supervisor = directory.join("ironclad");
    if supervisor.exists() {
        examine_new(&supervisor, "ironclad").await?;
    }
    let own = Version::parse(env!("CARGO_PKG_VERSION"));
    let mut planned = Vec::new();
    for step in steps {
        let former = match &step.before {
            Some(process) if !process.is_foreign() => {
                examine_former(&program_path(process)).await?
            }
            _ => None,
        };
        let new = match &step.after {
            Some(process) if !process.is_foreign() => {
                let name = process.program_name().unwrap_or_default();
                Some(examine_new(&program_path(process), name).await?)
            }
            _ => None,
        };
        if let (Some(new), Some(own)) = (&new, &own) {
            check_versions(step, (former.as_ref(), new), own, allow_downgrade)?;
        }
        let process = step.after.as_ref().or(step.before.as_ref());
        planned.push(PlannedStep {
            name: step.name.clone(),
            node: process.map_or_else(String::new, |process| process.node.clone()),
            from: former.map(|version| version.to_string()),
            to: new.map(|version| version.to_string()),
        });
    }
    Ok(planned)
}

/// Returns the programs of the steps, and the `ironclad` beside them.
pub(super) fn list_new_programs(steps: &[Step], directory: &Path) -> Vec<PathBuf> {
    let own = steps.iter().filter_map(|step| step.after.as_ref());
    let own = own.filter(|process| !process.is_foreign());
    let mut programs: Vec<PathBuf> = own.map(program_path).collect();
    programs.push(directory.join("ironclad"));
    programs
}

/// Rejects former files that were replaced in place: the rollback would start programs that have
/// never run here.
pub(super) fn check_running_files(before: &Plan, layout: &Layout) -> Result<()> {
    for process in &before.processes {
        let record = Record::load(&layout.record(&process.name));
        let Some(record) = record.filter(Record::is_alive) else {
            continue;
        };
        if is_deleted(record.pid) {
            return reject_program(format!(
                "{} runs a program whose file was replaced or deleted, so a rollback would start another one; `ironclad up` \
                 restarts what changed, without a rollback",
                process.name
            ));
        }
    }
    Ok(())
}

/// Returns whether the file of a running program is no longer in its directory.
fn is_deleted(pid: i32) -> bool {
    let target = std::fs::read_link(format!("/proc/{pid}/exe"));
    // proc_pid_exe(5): the kernel appends this to the name.
    target.is_ok_and(|target| target.to_string_lossy().ends_with(" (deleted)"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::command::run_with_input;
    use crate::plan::make_plan;
    use crate::settings::Settings;
    use crate::upgrade::steps::order_steps;

    const OWN: &str = env!("CARGO_PKG_VERSION");

    /// Writes a program by another process: this one starts others, which would have the file open
    /// for writing for a moment, and the kernel runs no such file.
    fn install(path: &Path, text: &str) {
        let path = path.to_str().unwrap();
        run_with_input("install", &["-m", "755", "/dev/stdin", path], text).unwrap();
    }

    /// Writes programs that print a version; `texts` are scripts of some of them.
    fn write_programs(directory: &Path, version: &str, texts: &[(&str, &str)]) {
        std::fs::create_dir_all(directory).unwrap();
        for name in ["kubelet", "kube-proxy", "ironclad"] {
            let given = texts.iter().find(|(given, _)| *given == name);
            let text = match given {
                Some((_, text)) => (*text).to_owned(),
                None => format!("#!/bin/sh\necho {name} {version}\n"),
            };
            install(&directory.join(name), &text);
        }
    }

    async fn check(root: &Path, allow_downgrade: bool) -> Result<Vec<PlannedStep>> {
        let plan = |name: &str| {
            let settings = Settings {
                bin_dir: root.join(name),
                ..Settings::example_joined()
            };
            make_plan(&settings, &Layout::new(Path::new("/data"), false))
        };
        let steps = order_steps(&plan("old"), &plan("new"), &plan("old"));
        check_programs(&steps, &root.join("new"), allow_downgrade).await
    }

    #[tokio::test]
    async fn programs_that_can_not_replace_the_running_ones_are_named() {
        // 40 is arm, also where these tests run on 64-bit machines.
        let foreign = String::from_utf8(elf(1, 1, [40, 0]).to_vec()).unwrap();
        for (former, new, text, expected) in [
            (OWN, OWN, None, "ok"),
            ("0.0.9", OWN, None, "ok"),
            ("99.0.0", OWN, None, "--allow-downgrade"),
            (OWN, "0.0.9", None, "run the `ironclad` of that release"),
            (OWN, "99.0.0", None, "run the `ironclad` of that release"),
            (OWN, OWN, Some("#!/bin/sh\nexit 3\n"), "exit status: 3"),
            (
                OWN,
                OWN,
                Some("#!/bin/sh\necho kubelet 0.1.0\n"),
                "another program",
            ),
            (
                OWN,
                OWN,
                Some("#!/bin/sh\necho kube-proxy new\n"),
                "another program",
            ),
            (OWN, OWN, Some("#!/no/such/shell\n"), "--version` failed"),
            (OWN, OWN, Some(foreign.as_str()), "is a program for"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let texts: Vec<_> = text.map(|text| ("kube-proxy", text)).into_iter().collect();
            write_programs(&dir.path().join("old"), former, &[]);
            write_programs(&dir.path().join("new"), new, &texts);
            match check(dir.path(), false).await {
                Ok(steps) => {
                    assert_eq!(expected, "ok", "{text:?} {new}");
                    let found = steps.iter().map(|step| step.name.as_str());
                    assert_eq!(found.collect::<Vec<_>>(), ["kubelet", "kube-proxy"]);
                    assert_eq!(steps[0].from.as_deref(), Some(former));
                    assert_eq!(steps[0].to.as_deref(), Some(new));
                }
                Err(error) => {
                    let error = error.to_string();
                    assert!(error.contains(expected), "{text:?} {new}: {error}");
                }
            }
        }
    }

    #[tokio::test]
    async fn downgrade_needs_the_option_and_all_programs() {
        let dir = tempfile::tempdir().unwrap();
        write_programs(&dir.path().join("old"), "99.0.0", &[]);
        write_programs(&dir.path().join("new"), OWN, &[]);
        assert!(check(dir.path(), false).await.is_err());
        assert!(check(dir.path(), true).await.is_ok());
        for name in ["old", "new"] {
            let path = dir.path().join(name).join("kubelet");
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            let error = check(dir.path(), true).await.unwrap_err().to_string();
            assert!(error.contains("does not exist"), "{name}: {error}");
            install(&path, &text);
        }
        // The supervisor of the next boot.
        install(&dir.path().join("new/ironclad"), "#!/bin/sh\nexit 3\n");
        let error = check(dir.path(), true).await.unwrap_err().to_string();
        assert!(error.contains("ironclad --version"), "{error}");
    }

    /// As a package manager does it.
    #[test]
    fn program_that_was_replaced_in_place_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let (program, other) = (dir.path().join("program"), dir.path().join("other"));
        run_with_input("install", &["/bin/sleep", program.to_str().unwrap()], "").unwrap();
        run_with_input("install", &["/bin/sleep", other.to_str().unwrap()], "").unwrap();
        let mut child = std::process::Command::new(&program)
            .arg("60")
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let layout = Layout::new(dir.path(), false);
        let mut plan = make_plan(&Settings::example_joined(), &layout);
        plan.processes.truncate(1);
        let record = Record {
            pid,
            start: crate::process::read_start_time(pid).unwrap(),
            boot: crate::process::read_boot_id(),
            stamp: String::new(),
            restarts: 0,
        };
        let text = serde_json::to_vec(&record).unwrap();
        crate::files::write_file(&layout.record(&plan.processes[0].name), &text).unwrap();
        check_running_files(&plan, &layout).unwrap();
        std::fs::rename(&other, &program).unwrap();
        let result = check_running_files(&plan, &layout);
        child.kill().unwrap();
        child.wait().unwrap();
        let error = result.unwrap_err().to_string();
        assert!(error.contains("replaced or deleted"), "{error}");
    }

    fn elf(class: u8, order: u8, machine: [u8; 2]) -> [u8; 20] {
        let mut header = [0; 20];
        header[..4].copy_from_slice(b"\x7fELF");
        (header[4], header[5]) = (class, order);
        header[18..].copy_from_slice(&machine);
        header
    }

    #[test]
    fn architecture_is_read_from_the_header() {
        for (header, expected) in [
            (elf(2, 1, [62, 0]), Some("x86_64")),
            (elf(2, 1, [183, 0]), Some("aarch64")),
            (elf(2, 2, [0, 22]), Some("s390x")),
            (elf(2, 1, [255, 255]), Some("ELF machine 65535")),
            ([b'#'; 20], None),
        ] {
            let found = Architecture::parse(&header).map(Architecture::name);
            assert_eq!(found.as_deref(), expected);
        }
        let own = Path::new("/proc/self/exe");
        assert!(read_architecture(own).unwrap().is_some());
        check_architecture(own).unwrap();
    }
}
