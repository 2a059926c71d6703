//! One running process: started in a group of its own, recorded so that a later supervisor can adopt it, watched and
//! signalled through a descriptor so that a recycled process id never takes the blow.

use std::fs::{self, OpenOptions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;

use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::plan::Process;

/// What is written down about a process that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its id.
    pub pid: i32,
    /// When the kernel started it, in its clock ticks since boot: tells a recycled id.
    pub start: u64,
    /// The boot that the id belongs to.
    pub boot: String,
    /// The stamp of the plan's entry.
    pub stamp: String,
    /// How often it was started again after it had ended by itself.
    pub restarts: u32,
}

impl Record {
    /// Reads a record; nothing when there is none or it makes no sense.
    pub fn load(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    fn save(&self, path: &Path) -> Result<()> {
        crate::files::write(path, serde_json::to_string(self).unwrap_or_default().as_bytes())
    }

    /// Whether the process of the record still lives.
    pub fn alive(&self) -> bool {
        self.boot == boot() && start_of(self.pid) == Some(self.start)
    }
}

/// The id of this boot.
pub fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// When a process was started; nothing when there is none, or only its remains.
pub fn start_of(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything; the fields after it are numbers.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// A process that runs.
pub struct Running {
    /// What is known about it.
    pub record: Record,
    descriptor: AsyncFd<OwnedFd>,
    child: Option<std::process::Child>,
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit(pub String);

impl Running {
    /// Starts a process with its output appended to its log.
    pub fn start(process: &Process, layout: &Layout, restarts: u32) -> Result<Self> {
        let log = layout.log(&process.name);
        crate::files::create_private_dir(&layout.logs())?;
        let file = OpenOptions::new().append(true).create(true).open(&log).map_err(Error::io(&log))?;
        let errors = file.try_clone().map_err(Error::io(&log))?;
        let (program, args) = process.argv.split_first().ok_or_else(|| Error::Refused("an empty command".into()))?;
        let child = Command::new(program)
            .args(args)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors)
            .process_group(0)
            .spawn()
            .map_err(|error| Error::Command { command: program.clone(), reason: error.to_string() })?;
        let pid = i32::try_from(child.id()).unwrap_or_default();
        let record = Record {
            pid,
            start: start_of(pid).unwrap_or_default(),
            boot: boot(),
            stamp: process.stamp.clone(),
            restarts,
        };
        let mut running = Self::open(record)?;
        running.child = Some(child);
        running.record.save(&layout.record(&process.name))?;
        Ok(running)
    }

    /// Takes over a process that an earlier supervisor started, if it still lives.
    pub fn adopt(name: &str, layout: &Layout) -> Option<Self> {
        let record = Record::load(&layout.record(name))?;
        if !record.alive() {
            return None;
        }
        let running = Self::open(record).ok()?;
        // The id may have been recycled between the look and the descriptor.
        running.record.alive().then_some(running)
    }

    /// The descriptor is owned by the `AsyncFd` and never replaced, which is what its constructor asks for.
    #[allow(deprecated)]
    fn open(record: Record) -> Result<Self> {
        let failed = |reason: String| Error::Command { command: format!("pidfd_open({})", record.pid), reason };
        let pid = Pid::from_raw(record.pid).ok_or_else(|| failed("no such process".into()))?;
        let descriptor = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| failed(error.to_string()))?;
        let descriptor = AsyncFd::new(descriptor).map_err(|error| failed(error.to_string()))?;
        Ok(Self { record, descriptor, child: None })
    }

    /// Waits until it has ended.
    pub async fn ended(&mut self) -> Exit {
        let _ = self.descriptor.readable().await;
        let status = self.child.as_mut().and_then(|child| child.wait().ok());
        Exit(status.map_or_else(|| "it ended".to_owned(), |status| status.to_string()))
    }

    /// Asks it to end, and after `grace` makes it.
    pub async fn stop(&mut self, grace: Duration) {
        self.signal(Signal::TERM);
        if tokio::time::timeout(grace, self.ended()).await.is_err() {
            self.signal(Signal::KILL);
            self.ended().await;
        }
    }

    fn signal(&self, signal: Signal) {
        // It may have ended already, which is as good.
        let _ = pidfd_send_signal(self.descriptor.get_ref().as_fd(), signal);
    }
}
