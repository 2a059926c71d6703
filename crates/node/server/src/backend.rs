//! The interface between the server and the kubelet.

use async_trait::async_trait;
use http::StatusCode;
use jiff::Timestamp;
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// A failed request: HTTP status and message.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// HTTP status.
    pub status: StatusCode,
    /// Message for the client.
    pub message: String,
}

impl Failure {
    /// Creates a failure with this status.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Failure {
            status,
            message: message.into(),
        }
    }

    /// Creates a 404 failure.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// Creates a 400 failure.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }
}

/// The requested part of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogQuery {
    /// Continue while the container runs.
    pub follow: bool,
    /// The log of the container before the last restart.
    pub previous: bool,
    /// Prefix each line with its time.
    pub timestamps: bool,
    /// Maximum number of last lines.
    pub tail: Option<u64>,
    /// Maximum number of bytes.
    pub limit: Option<u64>,
    /// Only records after this time.
    pub since: Option<Timestamp>,
    /// Some(true): standard error only; Some(false): standard output only.
    pub stderr: Option<bool>,
}

/// A log file, and a check whether more can follow.
pub struct LogSource {
    /// Path of the file.
    pub path: PathBuf,
    /// Returns whether the container still runs.
    pub alive: Box<dyn Fn() -> bool + Send + Sync>,
}

/// A container, addressed by names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamTarget {
    /// Namespace.
    pub namespace: String,
    /// Pod.
    pub pod: String,
    /// Uid of the pod, if the client sends it.
    pub uid: Option<String>,
    /// Container.
    pub container: String,
}

/// Options of exec and attach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamOptions {
    /// Command; exec only.
    pub command: Vec<String>,
    /// Attach standard input.
    pub stdin: bool,
    /// Attach standard output.
    pub stdout: bool,
    /// Attach standard error.
    pub stderr: bool,
    /// Allocate a terminal.
    pub tty: bool,
}

/// The kubelet behind the server.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Returns a PodList of the pods on this node.
    fn list_pods(&self) -> Value;
    /// Returns a container's log.
    fn open_log(&self, target: &StreamTarget, query: &LogQuery) -> Result<LogSource, Failure>;
    /// Returns the runtime's streaming URL for a command.
    async fn exec(&self, target: &StreamTarget, options: StreamOptions) -> Result<String, Failure>;
    /// Returns the runtime's streaming URL for a main process.
    async fn attach(
        &self,
        target: &StreamTarget,
        options: StreamOptions,
    ) -> Result<String, Failure>;
    /// Returns the runtime's streaming URL for ports.
    async fn port_forward(&self, target: &StreamTarget, ports: Vec<i32>)
    -> Result<String, Failure>;
    /// Runs a command to completion; returns its output.
    async fn run(
        &self,
        target: &StreamTarget,
        command: Vec<String>,
        limit: Duration,
    ) -> Result<Vec<u8>, Failure>;
    /// Returns resource usage of node and pods.
    async fn read_summary(&self) -> Value;
    /// Returns metrics of the kubelet itself.
    fn format_metrics(&self) -> String;
    /// Returns `/metrics/resource` or `/metrics/cadvisor`.
    async fn format_resource_metrics(&self, cadvisor: bool) -> String;
    /// Returns the configuration in use.
    fn configuration(&self) -> Value;
}
