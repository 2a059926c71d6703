//! The network and mount namespaces of a node. Two files pin them, so that no process must run to
//! keep them: a node survives the end of any process.
//!
//! Work inside them runs in a thread of its own, because a thread that has entered a namespace
//! can't be used for anything else. A process that such a thread starts is in the namespaces, too.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

use crate::error::{Error, Result};

/// Type of the file system of pinned namespaces (`NSFS_MAGIC`).
const NSFS_MAGIC: u64 = 0x6e73_6673;

/// The namespaces of one node: `PATH.net` and `PATH.mnt`.
#[derive(Debug, Clone)]
pub struct Namespaces {
    path: PathBuf,
}

impl Namespaces {
    /// Refers to the namespaces at `path`, which may not exist.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    /// Returns the path of the network namespace.
    #[must_use]
    pub fn network(&self) -> PathBuf {
        self.path.with_extension("net")
    }

    fn mounts(&self) -> PathBuf {
        self.path.with_extension("mnt")
    }

    /// Returns whether both namespaces exist.
    #[must_use]
    pub fn exist(&self) -> bool {
        is_namespace(&self.network()) && is_namespace(&self.mounts())
    }

    /// Creates the namespaces after `prepare` has run inside them.
    ///
    /// The mount namespace is pinned last: if anything fails before, or this process is killed,
    /// nothing exists.
    pub fn create(&self, prepare: impl FnOnce() -> Result<()> + Send) -> Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        make_private_mount(folder)?;
        let (prepared, is_prepared) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let thread = unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET)
                    .map_err(|error| failed("unshare", error))
                    .and_then(|()| prepare())
                    .map(|()| rustix::thread::gettid().as_raw_nonzero().get());
                let _ = prepared.send(thread);
                // The namespaces exist as long as this thread, until they are pinned.
                let _ = released.recv();
            });
            let pinned = is_prepared
                .recv()
                .unwrap_or_else(|_| Err(Error::Refused("a node's namespaces can't be made".into())))
                .and_then(|thread| self.pin(thread));
            drop(release);
            pinned
        })
    }

    fn pin(&self, thread: i32) -> Result<()> {
        let own = format!("/proc/{}/task/{thread}/ns", std::process::id());
        for (kind, pin) in [("net", self.network()), ("mnt", self.mounts())] {
            // A pin of a start that was interrupted.
            let _ = umount2(&pin, MntFlags::MNT_DETACH);
            File::create(&pin).map_err(Error::io(&pin))?;
            let source = format!("{own}/{kind}");
            bind(Path::new(&source), &pin, MsFlags::MS_BIND)?;
        }
        Ok(())
    }

    /// Runs `work` in a thread inside the namespaces.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| self.enter().map(|()| work()));
            thread
                .join()
                .unwrap_or_else(|_| Err(Error::Refused("work on a node failed".into())))
        })
    }

    /// Moves the calling thread into the namespaces.
    fn enter(&self) -> Result<()> {
        let open = |path: PathBuf| File::open(&path).map_err(Error::io(path));
        let (network, mounts) = (open(self.network())?, open(self.mounts())?);
        // A thread that shares its root and working directory with others can't change its mounts.
        unshare(CloneFlags::CLONE_FS).map_err(|error| failed("unshare", error))?;
        setns(network, CloneFlags::CLONE_NEWNET).map_err(|error| failed("setns", error))?;
        setns(mounts, CloneFlags::CLONE_NEWNS).map_err(|error| failed("setns", error))
    }

    /// Returns the ids of the processes in the mount namespace.
    #[must_use]
    pub fn processes(&self) -> Vec<i32> {
        if !self.exist() {
            return Vec::new();
        }
        // Two files of one namespace have the same inode (namespaces(7)).
        let inode = |path: &Path| fs::metadata(path).map(|meta| meta.ino()).ok();
        let Some(own) = inode(&self.mounts()) else {
            return Vec::new();
        };
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        processes
            .filter(|entry| inode(&entry.path().join("ns/mnt")) == Some(own))
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect()
    }
}

/// Connects to an address inside namespaces, within 0.5 s.
pub async fn connect_inside(path: PathBuf, address: SocketAddr) -> Option<TcpStream> {
    const TIMEOUT: Duration = Duration::from_millis(500);
    let (send, receive) = tokio::sync::oneshot::channel();
    let started = std::thread::Builder::new().spawn(move || {
        let connect = || TcpStream::connect_timeout(&address, TIMEOUT).ok();
        let _ = send.send(Namespaces::new(&path).run(connect).ok().flatten());
    });
    started.ok()?;
    receive.await.ok().flatten()
}

fn is_namespace(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|found| u64::try_from(found.f_type) == Ok(NSFS_MAGIC))
}

/// Makes `folder` a mount of its own that shares nothing with other mount namespaces: the kernel
/// pins a mount namespace only there.
fn make_private_mount(folder: &Path) -> Result<()> {
    crate::files::create_dir(folder, 0o700)?;
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let folder_text = folder.to_string_lossy();
    if !mounts
        .lines()
        .any(|line| line.split(' ').nth(1) == Some(&folder_text))
    {
        bind(folder, folder, MsFlags::MS_BIND)?;
    }
    set_propagation(folder, MsFlags::MS_PRIVATE)
}

/// Mounts `source` at `target`.
pub fn bind(source: &Path, target: &Path, flags: MsFlags) -> Result<()> {
    mount(Some(source), target, None::<&str>, flags, None::<&str>)
        .map_err(|error| failed(&format!("mount {}", target.display()), error))
}

/// Sets the propagation of a mount.
pub fn set_propagation(target: &Path, flags: MsFlags) -> Result<()> {
    mount(None::<&str>, target, None::<&str>, flags, None::<&str>)
        .map_err(|error| failed(&format!("mount {}", target.display()), error))
}

/// Mounts the network devices and other kernel objects of the calling thread's namespaces.
pub fn mount_sysfs(target: &Path) -> Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("sysfs"), target, Some("sysfs"), flags, None::<&str>)
        .map_err(|error| failed(&format!("mount {}", target.display()), error))
}

/// Unmounts a mount and all below it, also while they are in use.
pub fn detach(target: &Path) -> Result<()> {
    umount2(target, MntFlags::MNT_DETACH)
        .map_err(|error| failed(&format!("umount {}", target.display()), error))
}

fn failed(command: &str, error: nix::Error) -> Error {
    Error::Command {
        command: command.to_owned(),
        reason: error.to_string(),
    }
}
