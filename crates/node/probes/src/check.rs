//! Runs one check of a handler.

use crate::spec::Handler;
use crate::thresholds::Health;
use async_trait::async_trait;
use std::time::Duration;
use tokio::net::TcpStream;

/// Runs commands inside the probed container.
#[async_trait]
pub trait CommandRunner: Send + Sync {
    /// Returns exit code and output, or an error's text and whether the timeout expired.
    async fn run_command(
        &self,
        command: &[String],
        timeout: Duration,
    ) -> Result<(i32, Vec<u8>), (String, bool)>;
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckResult {
    /// A result, with a message.
    Completed(Health, String),
    /// No result, for reasons outside the container.
    Unknown(String),
}

impl CheckResult {
    pub(crate) fn failure(text: impl Into<String>) -> Self {
        CheckResult::Completed(Health::Unhealthy, text.into())
    }

    pub(crate) fn success(text: impl Into<String>) -> Self {
        CheckResult::Completed(Health::Healthy, text.into())
    }
}

/// Runs `handler` once within `timeout`.
pub async fn run_check(
    handler: &Handler,
    timeout: Duration,
    runner: &dyn CommandRunner,
) -> CheckResult {
    match handler {
        Handler::Exec(command) => check_exec(command, timeout, runner).await,
        Handler::Http { url, headers } => check_http(url, headers, timeout).await,
        Handler::Tcp { host, port } => check_tcp(host, *port, timeout).await,
        Handler::Grpc {
            host,
            port,
            service,
        } => crate::grpc::check_grpc(host, *port, service, timeout).await,
        Handler::Sleep(time) => {
            tokio::time::sleep(*time).await;
            CheckResult::success("")
        }
        Handler::Invalid(why) => CheckResult::Unknown(why.clone()),
    }
}

async fn check_exec(
    command: &[String],
    timeout: Duration,
    runner: &dyn CommandRunner,
) -> CheckResult {
    match runner.run_command(command, timeout).await {
        Ok((0, output)) => CheckResult::success(truncate_output(&output)),
        Ok((_, output)) => CheckResult::failure(truncate_output(&output)),
        Err((_, true)) => CheckResult::failure(format!(
            "command timed out: {:?} timed out after {}s",
            command.join(" "),
            timeout.as_secs()
        )),
        Err((why, false)) => CheckResult::Unknown(why),
    }
}

/// Truncates the output of a command for messages.
fn truncate_output(output: &[u8]) -> String {
    const LIMIT: usize = 10 * 1024;
    String::from_utf8_lossy(output.get(..LIMIT).unwrap_or(output)).into_owned()
}

async fn check_http(url: &str, headers: &[(String, String)], timeout: Duration) -> CheckResult {
    match crate::http::http_get(url, headers, timeout).await {
        Ok(health) if (200..400).contains(&health.status) => CheckResult::success(health.body),
        Ok(health) => CheckResult::failure(format!(
            "HTTP probe failed with statuscode: {}",
            health.status
        )),
        Err(why) => CheckResult::failure(format!("Get {url:?}: {why}")),
    }
}

async fn check_tcp(host: &str, port: u16, timeout: Duration) -> CheckResult {
    match tokio::time::timeout(timeout, TcpStream::connect((host, port))).await {
        Ok(Ok(_)) => CheckResult::success(""),
        Ok(Err(e)) => CheckResult::failure(format!("dial tcp {host}:{port}: connect: {e}")),
        Err(_) => CheckResult::failure(format!("dial tcp {host}:{port}: i/o timeout")),
    }
}
