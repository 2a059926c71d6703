//! One running process: started in its own process group, recorded so that a later supervisor can
//! adopt it, watched and signalled through a pidfd so that a recycled process id is never
//! signalled.

use std::fs::{self, OpenOptions};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Signal, pidfd_getfd, pidfd_open, pidfd_send_signal,
};
use serde::{Deserialize, Serialize};
use tokio::net::unix::pipe;

use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::namespaces::Namespaces;
use crate::plan::Process;
use crate::store_data::check_store_data;

/// Grace period of a component, apart from the API server.
const GRACE: Duration = Duration::from_secs(15);
/// Grace period of the API server. It stops as soon as it has responded to the requests in flight,
/// each within its `--request-timeout` (60 s), and has written the audit log.
const API_SERVER_GRACE: Duration = Duration::from_secs(75);

/// Returns the grace period of the process with this name.
pub(crate) fn choose_grace(name: &str) -> Duration {
    match name {
        "kube-apiserver" => API_SERVER_GRACE,
        _ => GRACE,
    }
}

/// Returns how much longer a component of this name may take to end than others. A command that
/// waits for its replacement waits so much longer.
pub(crate) fn choose_extra_grace(name: &str) -> Duration {
    choose_grace(name).saturating_sub(GRACE)
}

/// The record of a started process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Process id.
    pub pid: i32,
    /// Start time in clock ticks since boot; distinguishes a recycled id.
    pub start: u64,
    /// Id of the boot in which the process was started.
    pub boot: String,
    /// The stamp of the plan's entry.
    pub stamp: String,
    /// Number of restarts after the process exited by itself.
    pub restarts: u32,
}

impl Record {
    /// Loads a record; None if it is missing or invalid.
    pub fn load(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    fn save(&self, path: &Path) -> Result<()> {
        crate::files::write_file(
            path,
            serde_json::to_string(self).unwrap_or_default().as_bytes(),
        )
    }

    /// Returns when the process started, as time since boot. The kernel gives hundredths of a
    /// second.
    pub fn started(&self) -> Duration {
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        Duration::from_millis(self.start.saturating_mul(1_000) / ticks)
    }

    /// Returns whether the recorded process is alive.
    pub fn is_alive(&self) -> bool {
        self.boot == read_boot_id() && read_start_time(self.pid) == Some(self.start)
    }
}

/// Returns the time since boot.
pub fn read_boot_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(time).unwrap_or_default()
}

/// Returns the id of this boot.
pub fn read_boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Returns the start time of a process; None if it does not exist or is a zombie.
pub fn read_start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain anything; the fields after it are numbers.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    // A zombie has ended, but keeps its id and start time until its parent waits for it.
    if matches!(state, "Z" | "X") {
        return None;
    }
    // Field 22 of proc(5), starttime: the first one after the name is the state, field 3.
    fields.nth(18)?.parse().ok()
}

/// A running process.
pub struct Running {
    /// Record of the process.
    pub record: Record,
    /// The pidfd. Not a pipe: the type owns a descriptor and waits until it is readable.
    descriptor: pipe::Receiver,
    child: Option<Child>,
}

/// Starts a command, in the namespaces of a node if there are any.
fn spawn_on_node(
    command: &mut Command,
    namespaces: Option<&Path>,
) -> Result<std::io::Result<Child>> {
    match namespaces {
        None => Ok(command.spawn()),
        Some(path) => Namespaces::new(path).run(|| command.spawn()),
    }
}

fn make_command(
    process: &Process,
    layout: &Layout,
    socket: Option<&TcpListener>,
) -> Result<Command> {
    let log = layout.log(&process.name);
    crate::files::create_private_dir(&layout.logs())?;
    let file = OpenOptions::new()
        // Rotation truncates the log: only with O_APPEND does the next line begin at the new end.
        .append(true)
        .create(true)
        .open(&log)
        .map_err(Error::io(&log))?;
    let errors = file.try_clone().map_err(Error::io(&log))?;
    let input = match socket {
        Some(socket) => Stdio::from(OwnedFd::from(socket.try_clone().map_err(Error::io(&log))?)),
        None => Stdio::null(),
    };
    let (program, args) = process
        .argv
        .split_first()
        .ok_or_else(|| Error::Refused("an empty command".into()))?;
    let mut command = Command::new(program);
    command
        .args(args)
        // The directory of the caller could otherwise not be unmounted or removed.
        .current_dir("/")
        .stdin(input)
        .stdout(file)
        .stderr(errors)
        // A Ctrl-C at the terminal of `ironclad up` must not end the components.
        .process_group(0);
    Ok(command)
}

/// The exit status of a process, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit(pub String);

impl Running {
    /// Starts a process, whose standard input is the socket; appends its output to its log.
    pub fn start(
        process: &Process,
        layout: &Layout,
        restarts: u32,
        socket: Option<&TcpListener>,
    ) -> Result<Self> {
        if process.needs_data {
            check_store_data(layout)?;
        }
        let mut command = make_command(process, layout, socket)?;
        let child =
            spawn_on_node(&mut command, process.namespaces.as_deref())?.map_err(|error| {
                Error::Command {
                    command: command.get_program().to_string_lossy().into_owned(),
                    reason: error.to_string(),
                }
            })?;
        let pid = i32::try_from(child.id()).unwrap_or_default();
        let record = Record {
            pid,
            start: read_start_time(pid).unwrap_or_default(),
            boot: read_boot_id(),
            stamp: process.stamp.clone(),
            restarts,
        };
        // The child cannot have been reaped yet: this process is its parent and has not waited for
        // it.
        let mut running = Self::open(record)?;
        running.child = Some(child);
        running.record.save(&layout.record(&process.name))?;
        Ok(running)
    }

    /// Adopts a process that an earlier supervisor started, if it is alive.
    pub fn adopt(name: &str, layout: &Layout) -> Option<Self> {
        let record = Record::load(&layout.record(name))?;
        if !record.is_alive() {
            return None;
        }
        let running = Self::open(record).ok()?;
        // The id may have been recycled before the descriptor was opened.
        running.record.is_alive().then_some(running)
    }

    /// Opens the pidfd.
    fn open(record: Record) -> Result<Self> {
        let failed = |reason: String| Error::Command {
            command: format!("pidfd_open({})", record.pid),
            reason,
        };
        let pid = Pid::from_raw(record.pid).ok_or_else(|| failed("no such process".into()))?;
        let descriptor =
            pidfd_open(pid, PidfdFlags::empty()).map_err(|error| failed(error.to_string()))?;
        let descriptor = pipe::Receiver::from_owned_fd_unchecked(descriptor)
            .map_err(|error| failed(error.to_string()))?;
        Ok(Self {
            record,
            descriptor,
            child: None,
        })
    }

    /// Returns a copy of the process's standard input. It needs the right to trace the process.
    pub fn copy_input(&self) -> std::io::Result<OwnedFd> {
        let flags = PidfdGetfdFlags::empty();
        Ok(pidfd_getfd(&self.descriptor, 0, flags)?)
    }

    /// Waits for the exit.
    pub async fn wait_for_exit(&mut self) -> Exit {
        let _ = self.descriptor.readable().await;
        // Only a child has an exit status; the end of an adopted process is seen through its pidfd
        // alone.
        let status = self.child.as_mut().and_then(|child| child.wait().ok());
        Exit(status.map_or_else(|| "it ended".to_owned(), |status| status.to_string()))
    }

    /// Sends SIGTERM, and after `grace` SIGKILL.
    pub async fn stop(&mut self, grace: Duration) {
        self.signal(Signal::TERM);
        if tokio::time::timeout(grace, self.wait_for_exit())
            .await
            .is_err()
        {
            self.signal(Signal::KILL);
            self.wait_for_exit().await;
        }
    }

    fn signal(&self, signal: Signal) {
        // Fails if the process has already exited, which is fine.
        let _ = pidfd_send_signal(&self.descriptor, signal);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::plan::Ready;

    fn process(script: &str) -> Process {
        Process {
            name: "test".into(),
            argv: ["sh", "-c", script].map(str::to_owned).into(),
            node: String::new(),
            namespaces: None,
            after: Vec::new(),
            required: Vec::new(),
            needs_data: false,
            socket: None,
            ready: Ready::Started,
            inputs: Vec::new(),
            stamp: "s1".into(),
        }
    }

    #[tokio::test]
    async fn running_process_is_adopted_by_its_record() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        let mut running = Running::start(&process("exec sleep 60"), &layout, 3, None).unwrap();
        let record = running.record.clone();
        let adopted = Running::adopt("test", &layout).unwrap();
        assert_eq!(adopted.record, record);
        assert_eq!((record.restarts, record.stamp.as_str()), (3, "s1"));
        running.stop(Duration::from_secs(10)).await;
        assert!(Running::adopt("test", &layout).is_none());
    }

    /// At boot the supervisor starts the plan, also if a disk is not mounted.
    #[tokio::test]
    async fn store_whose_data_are_missing_is_not_started() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        std::fs::create_dir_all(layout.store().join("member")).unwrap();
        crate::store_data::record_store_data(&layout).unwrap();
        std::fs::remove_dir_all(layout.store()).unwrap();
        let mut process = process("exec sleep 60");
        process.needs_data = true;
        let error = Running::start(&process, &layout, 0, None).err().unwrap();
        assert!(error.to_string().contains("data of the store"), "{error}");
        process.needs_data = false;
        let mut running = Running::start(&process, &layout, 0, None).unwrap();
        running.stop(Duration::from_secs(10)).await;
    }

    /// The id of a process that ended may belong to another program by now.
    #[tokio::test]
    async fn process_with_a_recycled_id_is_not_adopted() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        let own = i32::try_from(std::process::id()).unwrap();
        let record = Record {
            pid: own,
            start: read_start_time(own).unwrap(),
            boot: read_boot_id(),
            stamp: String::new(),
            restarts: 0,
        };
        assert!(record.is_alive());
        for stale in [
            Record {
                start: record.start + 1,
                ..record.clone()
            },
            Record {
                boot: "another".into(),
                ..record.clone()
            },
        ] {
            stale.save(&layout.record("test")).unwrap();
            assert!(Running::adopt("test", &layout).is_none(), "{stale:?}");
        }
    }

    #[tokio::test]
    async fn process_that_ignores_the_signal_is_killed_after_its_grace_period() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        let script = "trap '' TERM; echo ready; while :; do sleep 1; done";
        let mut running = Running::start(&process(script), &layout, 0, None).unwrap();
        while fs::read(layout.log("test")).unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        running.stop(Duration::from_millis(100)).await;
        assert!(!running.record.is_alive());
    }

    #[tokio::test]
    async fn output_and_errors_are_appended_to_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        for _ in 0..2 {
            let mut running =
                Running::start(&process("echo out; echo err >&2"), &layout, 0, None).unwrap();
            running.wait_for_exit().await;
        }
        let log = fs::read_to_string(layout.log("test")).unwrap();
        assert_eq!(log, "out\nerr\nout\nerr\n");
    }

    #[test]
    fn program_that_does_not_exist_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let mut missing = process("");
        missing.argv = vec!["/no/such/program".into()];
        let error = Running::start(&missing, &Layout::new(dir.path(), false), 0, None)
            .err()
            .unwrap();
        assert!(error.to_string().contains("/no/such/program"), "{error}");
    }
}
