//! The measured API server: its requests, processor time and memory.

use anyhow::{Context, ensure};
use client::{Client, Config, Request};
use futures::{StreamExt, TryStreamExt, stream};
use http::Method;
use nix::time::ClockId;
use nix::unistd::Pid;
use serde_json::Value;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::process::Command;

/// Timeout of a state that a measurement waits for.
const PATIENCE: Duration = Duration::from_secs(300);

/// Flags of the running server that would collide with those of a second one.
const OWN_FLAGS: [&str; 3] = ["--secure-port", "--advertise-port", "--port-file"];

/// Cost of some work.
#[derive(Clone, Copy, Default)]
pub struct Cost {
    /// Elapsed time.
    pub wall: Duration,
    /// Processor time of the server.
    pub cpu: Duration,
}

/// Cost of many requests.
#[derive(Default)]
pub struct Load {
    /// Of all requests.
    pub cost: Cost,
    /// Of each request, sorted.
    pub latencies: Vec<Duration>,
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.wall += other.wall;
        self.cpu += other.cpu;
    }
}

impl Cost {
    /// Returns the mean over `count` units of work.
    pub fn divide_by(self, count: u32) -> Self {
        Self {
            wall: self.wall / count.max(1),
            cpu: self.cpu / count.max(1),
        }
    }
}

/// An API server in a process of its own.
pub struct Server {
    pid: u32,
    config: Config,
    client: Client,
}

impl Server {
    /// Creates a client of the server and checks that the process exists.
    pub fn new(kubeconfig: &Path, pid: u32) -> anyhow::Result<Self> {
        let config = Config::from_kubeconfig(kubeconfig)?;
        let client = Client::new(config.clone());
        let server = Self {
            pid,
            config,
            client,
        };
        server.read_cpu().context("the API server's process")?;
        Ok(server)
    }

    /// Returns the client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Reads the processor time of the process.
    pub fn read_cpu(&self) -> anyhow::Result<Duration> {
        // In nanoseconds. The times in `/proc/PID/stat` are sampled at each tick of the scheduler,
        // which is a third of a short request's time.
        let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(i32::try_from(self.pid)?))?;
        Ok(clock.now()?.into())
    }

    /// Reads the resident memory of the process, in kB.
    pub fn read_memory(&self) -> anyhow::Result<f64> {
        self.read_status("VmRSS:")
    }

    /// Reads the highest resident memory since [`Self::reset_peak`], in kB.
    pub fn read_peak(&self) -> anyhow::Result<f64> {
        self.read_status("VmHWM:")
    }

    /// Begins a new measurement of the highest resident memory.
    pub fn reset_peak(&self) -> anyhow::Result<()> {
        let path = format!("/proc/{}/clear_refs", self.pid);
        // 5 sets the peak to the present value, see proc_pid_clear_refs(5).
        std::fs::write(&path, "5").with_context(|| path)
    }

    fn read_status(&self, name: &str) -> anyhow::Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().next());
        let missing = || format!("no {name} in /proc/PID/status");
        Ok(number.with_context(missing)?.parse()?)
    }

    /// Runs `work` and returns its cost.
    pub async fn measure<T>(
        &self,
        work: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<(T, Cost)> {
        let (begun, before) = (Instant::now(), self.read_cpu()?);
        let result = work.await?;
        let wall = begun.elapsed();
        let cpu = self.read_cpu()?.saturating_sub(before);
        Ok((result, Cost { wall, cpu }))
    }

    /// Sends `count` requests, `at_once` concurrently, and returns their cost.
    pub async fn run_load<F: Future<Output = anyhow::Result<()>>>(
        &self,
        count: usize,
        at_once: usize,
        send: impl Fn(usize) -> F,
    ) -> anyhow::Result<Load> {
        let timed = |number| {
            let request = send(number);
            async move {
                let begun = Instant::now();
                request.await?;
                Ok(begun.elapsed())
            }
        };
        let requests = stream::iter((0..count).map(timed));
        let latencies = requests.buffer_unordered(at_once).try_collect::<Vec<_>>();
        let (mut latencies, cost) = self.measure(latencies).await?;
        latencies.sort();
        Ok(Load { cost, latencies })
    }

    /// Returns the configuration of clients.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Sends a POST with a JSON body. Returns the length of the response.
    pub async fn create(&self, path: &str, body: &Value) -> client::Result<usize> {
        let response = self.client.bytes(Request::post(path, body)?).await?;
        Ok(response.len())
    }

    /// Deletes one object.
    pub async fn delete(&self, path: &str) -> anyhow::Result<()> {
        self.client
            .bytes(Request::new(Method::DELETE, path))
            .await?;
        Ok(())
    }

    /// Deletes the objects of a collection that a measurement has created.
    pub async fn delete_all(&self, collection: &str, selector: &str) -> anyhow::Result<()> {
        let path = format!("{collection}?labelSelector={selector}&gracePeriodSeconds=0");
        let mut request = Request::new(Method::DELETE, path);
        request.timeout = Some(PATIENCE);
        self.client.bytes(request).await?;
        Ok(())
    }

    /// Waits until GET of a path succeeds.
    pub async fn wait_for(&self, path: &str) -> anyhow::Result<()> {
        wait_for(&self.client, path).await
    }

    /// Waits until a path is not found: a deleted resource is served until the server has seen the
    /// deletion.
    pub async fn wait_until_gone(&self, path: &str) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            match self.client.bytes(Request::get(path)).await {
                Err(error) if error.is_not_found() => return Ok(()),
                other => ensure!(begun.elapsed() < PATIENCE, "{path} remains: {other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Starts a second server with the command line of the first one on another port, and stops it.
    /// Returns the times from the start to `/readyz` and until `served` is served.
    pub async fn start_second(&self, served: &str) -> anyhow::Result<(Duration, Duration)> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
            .local_addr()?
            .port();
        let mut command = self.second_command(port)?;
        let client = Client::new(Config {
            server: format!("https://127.0.0.1:{port}"),
            ..self.config.clone()
        });
        let begun = Instant::now();
        let mut child = command.spawn()?;
        wait_for(&client, "/readyz").await?;
        let ready = begun.elapsed();
        wait_for(&client, served).await?;
        let complete = begun.elapsed();
        child.kill().await?;
        Ok((ready, complete))
    }

    fn second_command(&self, port: u16) -> anyhow::Result<Command> {
        let folder = format!("/proc/{}", self.pid);
        let line = std::fs::read_to_string(format!("{folder}/cmdline"))?;
        let mut command = Command::new(std::fs::read_link(format!("{folder}/exe"))?);
        command
            .args(keep_flags(&line))
            .arg(format!("--secure-port={port}"))
            .current_dir(format!("{folder}/cwd"))
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .kill_on_drop(true);
        Ok(command)
    }
}

/// Returns the flags of a command line without those that belong to one server only.
fn keep_flags(line: &str) -> Vec<&str> {
    let mut kept = Vec::new();
    let mut words = line.split('\0').filter(|word| !word.is_empty()).skip(1);
    while let Some(word) = words.next() {
        let name = word.split('=').next().unwrap_or_default();
        if !OWN_FLAGS.contains(&name) {
            kept.push(word);
        } else if !word.contains('=') {
            words.next();
        }
    }
    kept
}

async fn wait_for(client: &Client, path: &str) -> anyhow::Result<()> {
    let begun = Instant::now();
    while let Err(error) = client.bytes(Request::get(path)).await {
        ensure!(begun.elapsed() < PATIENCE, "{path}: {error}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_server_gets_no_flag_of_the_first_ones_port() {
        let line =
            "kube-apiserver\0--secure-port\x006443\0--v=2\0--port-file=/p\0--etcd-servers=e\0";
        assert_eq!(keep_flags(line), ["--v=2", "--etcd-servers=e"]);
    }

    #[test]
    fn cost_of_nothing_is_no_division_by_zero() {
        let cost = Cost {
            wall: Duration::from_secs(4),
            cpu: Duration::from_secs(2),
        };
        assert_eq!(cost.divide_by(2).cpu, Duration::from_secs(1));
        assert_eq!(cost.divide_by(0).wall, Duration::from_secs(4));
    }
}
