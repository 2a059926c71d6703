//! What the server needs from the kubelet.

use async_trait::async_trait;
use http::StatusCode;
use jiff::Timestamp;
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// A request that can't be fulfilled: its status and words.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// HTTP status.
    pub status: StatusCode,
    /// For the client.
    pub message: String,
}

impl Failure {
    /// A failure of that status.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Failure { status, message: message.into() }
    }

    /// 404.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// 400.
    pub fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }
}

/// Which part of a log is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogQuery {
    /// Go on while the container runs.
    pub follow: bool,
    /// The container before the last restart.
    pub previous: bool,
    /// The time before each line.
    pub timestamps: bool,
    /// Only the last lines.
    pub tail: Option<u64>,
    /// At most so many bytes.
    pub limit: Option<u64>,
    /// Only what is younger.
    pub since: Option<Timestamp>,
    /// Some(true): standard error only; Some(false): standard output only.
    pub stderr: Option<bool>,
}

/// Where a log is, and how to know that nothing follows.
pub struct LogSource {
    /// The file.
    pub path: PathBuf,
    /// Whether the container still runs.
    pub alive: Box<dyn Fn() -> bool + Send + Sync>,
}

/// A pod's container, by names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamTarget {
    /// Namespace.
    pub namespace: String,
    /// Pod.
    pub pod: String,
    /// Uid of the pod, where the client names it.
    pub uid: Option<String>,
    /// Container.
    pub container: String,
}

/// Options of exec and attach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamOptions {
    /// Exec only.
    pub command: Vec<String>,
    /// Feed standard input.
    pub stdin: bool,
    /// Show standard output.
    pub stdout: bool,
    /// Show standard error.
    pub stderr: bool,
    /// A terminal.
    pub tty: bool,
}

/// The kubelet behind the server.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// A PodList of what runs here.
    fn pods(&self) -> Value;
    /// A container's log.
    fn log(&self, target: &StreamTarget, query: &LogQuery) -> Result<LogSource, Failure>;
    /// The runtime's URL for a command.
    async fn exec(&self, target: &StreamTarget, options: StreamOptions) -> Result<String, Failure>;
    /// The runtime's URL for a main process.
    async fn attach(&self, target: &StreamTarget, options: StreamOptions) -> Result<String, Failure>;
    /// The runtime's URL for ports.
    async fn port_forward(&self, target: &StreamTarget, ports: Vec<i32>) -> Result<String, Failure>;
    /// Runs a command to its end; its output.
    async fn run(&self, target: &StreamTarget, command: Vec<String>, limit: Duration) -> Result<Vec<u8>, Failure>;
    /// What node and pods use.
    async fn summary(&self) -> Value;
    /// Metrics of the kubelet itself.
    fn metrics(&self) -> String;
    /// `/metrics/resource` and `/metrics/cadvisor`.
    async fn resource_metrics(&self, cadvisor: bool) -> String;
    /// The configuration in use.
    fn configuration(&self) -> Value;
}
