//! Servers under test: started on free ports with their own directories and stopped afterwards, or
//! running servers that are only used.

use anyhow::{Context, Result, bail};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

const START: Duration = Duration::from_secs(60);

/// A running cluster of one implementation.
pub struct Cluster {
    /// Name of the implementation.
    pub name: String,
    binary: PathBuf,
    members: Vec<Member>,
    folder: TempDir,
}

struct Member {
    /// `None` for a running server, which may be on another machine.
    child: Option<Child>,
    flags: Vec<String>,
    address: String,
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn process_cpu(id: &str) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    // The name of the process is in parentheses and may contain spaces.
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks = |at: usize| {
        after
            .split(' ')
            .nth(at)
            .and_then(|n| n.parse::<f64>().ok())
            .unwrap_or_default()
    };
    // User and system time, in units of 10 ms on Linux.
    (ticks(12) + ticks(13)) / 100.0
}

/// Returns the processor time of the load generator in seconds.
pub fn own_cpu_seconds() -> f64 {
    process_cpu("self")
}

impl Cluster {
    /// Starts members with etcd's flags and `more`, and waits until they serve.
    pub async fn start(
        name: &str,
        binary: &Path,
        size: usize,
        below: &Path,
        more: &[&str],
    ) -> Result<Cluster> {
        let folder = tempfile::tempdir_in(below)?;
        let mut ports = Vec::new();
        for _ in 0..size {
            // A port may be taken between here and the start; the start then times out.
            ports.push((free_port()?, free_port()?));
        }
        let peers: Vec<String> = ports
            .iter()
            .enumerate()
            .map(|(n, (_, peer))| format!("m{n}=http://127.0.0.1:{peer}"))
            .collect();
        let mut cluster = Cluster {
            name: name.to_owned(),
            binary: binary.to_owned(),
            members: Vec::new(),
            folder,
        };
        for (number, (client, peer)) in ports.iter().enumerate() {
            let data = cluster.folder.path().join(format!("m{number}"));
            let mut flags = vec![
                format!("--name=m{number}"),
                format!("--data-dir={}", data.display()),
                format!("--listen-client-urls=http://127.0.0.1:{client}"),
                format!("--advertise-client-urls=http://127.0.0.1:{client}"),
                format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
                format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer}"),
                format!("--initial-cluster={}", peers.join(",")),
            ];
            flags.extend(more.iter().map(|flag| (*flag).to_owned()));
            let child = cluster.spawn_member(&flags)?;
            // Added at once, so that `Drop` also ends the members of a cluster that never becomes
            // ready.
            cluster.members.push(Member {
                child: Some(child),
                flags,
                address: format!("127.0.0.1:{client}"),
            });
        }
        cluster.wait_until_ready().await?;
        Ok(cluster)
    }

    /// Uses running servers; `addresses` are `host:port`.
    pub async fn use_running(addresses: &[String]) -> Result<Cluster> {
        let member = |address: &String| Member {
            child: None,
            flags: Vec::new(),
            address: address.clone(),
        };
        let cluster = Cluster {
            name: "running".to_owned(),
            binary: PathBuf::from("the server"),
            members: addresses.iter().map(member).collect(),
            folder: tempfile::tempdir()?,
        };
        cluster.wait_until_ready().await?;
        Ok(cluster)
    }

    fn spawn_member(&self, flags: &[String]) -> Result<Child> {
        Command::new(&self.binary)
            .args(flags)
            // An environment variable, because etcd is started with the same flags.
            .env("KVSTORE_ALLOW_INSECURE_PEERS", "true")
            // A pipe that no task reads would fill up and block the server.
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("{} can't be started", self.binary.display()))
    }

    /// Waits until every member serves a linearizable read.
    async fn wait_until_ready(&self) -> Result<()> {
        let begin = Instant::now();
        for member in &self.members {
            // A linearizable read needs a leader and an applied log, which an open port does not
            // prove.
            while crate::grpc::unary::check_serving(&member.address)
                .await
                .is_err()
            {
                if begin.elapsed() > START {
                    bail!("{} does not answer", self.binary.display());
                }
                sleep(Duration::from_millis(5)).await;
            }
        }
        Ok(())
    }

    /// Stops all members with SIGTERM and starts them again. Returns the time until they
    /// serve.
    pub async fn restart_members(&mut self) -> Result<Duration> {
        for child in self
            .members
            .iter_mut()
            .filter_map(|member| member.child.as_mut())
        {
            // SIGTERM and not SIGKILL: a regular stop is measured, not a recovery.
            rustix::process::kill_process(
                rustix::process::Pid::from_child(child),
                rustix::process::Signal::TERM,
            )?;
            // Its ports and its data directory are free only when the process has exited.
            child.wait()?;
        }
        let begin = Instant::now();
        for number in 0..self.members.len() {
            let flags = self
                .members
                .get(number)
                .map(|member| member.flags.clone())
                .unwrap_or_default();
            let child = self.spawn_member(&flags)?;
            if let Some(member) = self.members.get_mut(number) {
                member.child = Some(child);
            }
        }
        self.wait_until_ready().await?;
        Ok(begin.elapsed())
    }

    /// Returns the client addresses of all members.
    pub fn addresses(&self) -> Vec<String> {
        self.members
            .iter()
            .map(|member| member.address.clone())
            .collect()
    }

    /// Returns the client address of the first member.
    pub fn first_address(&self) -> Result<String> {
        self.addresses()
            .first()
            .cloned()
            .context("a cluster without members")
    }

    /// Returns a metric of the first member.
    pub async fn read_metric(&self, name: &str) -> Result<f64> {
        let mut connection = TcpStream::connect(self.first_address()?).await?;
        connection
            // HTTP/1.0: the server closes the connection after the page, whose length need not be
            // parsed.
            .write_all(b"GET /metrics HTTP/1.0\r\n\r\n")
            .await?;
        let mut page = String::new();
        connection.read_to_string(&mut page).await?;
        let line = page
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .with_context(|| format!("no metric {name}"))?;
        Ok(line.trim().parse()?)
    }

    /// Returns whether the cluster was started here, so that it may be modified.
    pub fn is_ours(&self) -> bool {
        self.child_processes().next().is_some()
    }

    /// Returns the number of members.
    pub fn member_count(&self) -> usize {
        self.members.len()
    }

    fn child_processes(&self) -> impl Iterator<Item = &Child> {
        self.members
            .iter()
            .filter_map(|member| member.child.as_ref())
    }

    /// Returns the processor time of all members so far, in seconds.
    pub fn cpu_seconds(&self) -> f64 {
        self.child_processes()
            .map(|child| process_cpu(&child.id().to_string()))
            .sum()
    }

    /// Returns the disk space of the first member's files, in MiB.
    pub fn disk_mib(&self) -> f64 {
        let mut folders = vec![self.folder.path().join("m0")];
        let mut blocks = 0;
        while let Some(folder) = folders.pop() {
            // Files that were deleted in the meantime occupy no space.
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                match entry.metadata() {
                    Ok(about) if about.is_dir() => folders.push(entry.path()),
                    Ok(about) => blocks += std::os::unix::fs::MetadataExt::blocks(&about),
                    Err(_) => {}
                }
            }
        }
        // Blocks and not lengths: preallocated and sparse files differ in both servers.
        blocks as f64 * 512.0 / f64::from(1 << 20)
    }

    /// Returns the resident memory of the first member, in MiB.
    pub fn memory_mib(&self) -> f64 {
        let Some(child) = self.child_processes().next() else {
            return 0.0;
        };
        let statm =
            std::fs::read_to_string(format!("/proc/{}/statm", child.id())).unwrap_or_default();
        let pages = statm
            .split(' ')
            .nth(1)
            .and_then(|n| n.parse::<f64>().ok())
            .unwrap_or_default();
        pages * 4096.0 / f64::from(1 << 20)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self
            .members
            .iter_mut()
            .filter_map(|member| member.child.as_mut())
        {
            // Fails if the process has exited already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn running_servers_are_not_ours_and_have_no_figures() {
        let cluster = Cluster::use_running(&[]).await.unwrap();
        assert!(!cluster.is_ours());
        assert_eq!(cluster.member_count(), 0);
        assert!(cluster.cpu_seconds() == 0.0 && cluster.memory_mib() == 0.0);
        assert!(cluster.first_address().is_err());
    }

    #[tokio::test]
    async fn binary_that_can_not_be_started_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let binary = Path::new("/absent/kvstore");
        let started = Cluster::start("kvstore", binary, 1, folder.path(), &[]).await;
        let error = started.err().unwrap().to_string();
        assert!(error.contains("/absent/kvstore"), "{error}");
    }

    #[test]
    fn disk_space_is_that_of_the_blocks_of_all_files() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("m0/member/wal");
        std::fs::create_dir_all(&deep).unwrap();
        let cluster = Cluster {
            name: "test".to_owned(),
            binary: PathBuf::new(),
            members: Vec::new(),
            folder,
        };
        assert!(cluster.disk_mib() < 0.5);
        std::fs::write(deep.join("segment"), vec![7; 1 << 20]).unwrap();
        // A sparse file occupies nothing.
        let sparse = std::fs::File::create(deep.join("sparse")).unwrap();
        sparse.set_len(1 << 30).unwrap();
        let used = cluster.disk_mib();
        assert!((1.0..1.5).contains(&used), "{used}");
    }
}
