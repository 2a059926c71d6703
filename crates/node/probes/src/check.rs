//! Runs one check of a handler.

use crate::result::CheckResult;
use crate::spec::Handler;
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
        // A hook that sleeps cannot fail; the caller of preStop bounds it by the grace period.
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
        // A timeout is the container's failure; every other error is one of the runtime and must
        // not restart the container.
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
    // Redirects that were not followed count as success, like every status below 400.
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
        // Closed at once: a server may log it, but an accepted connection is all that the probe
        // asks for.
        Ok(Ok(_)) => CheckResult::success(""),
        Ok(Err(e)) => CheckResult::failure(format!("dial tcp {host}:{port}: connect: {e}")),
        Err(_) => CheckResult::failure(format!("dial tcp {host}:{port}: i/o timeout")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::{ScriptedCommands, serve_once};
    use crate::thresholds::Health;
    use tokio::net::TcpListener;

    const TIMEOUT: Duration = Duration::from_secs(5);

    async fn run_exec(result: Result<(i32, Vec<u8>), (String, bool)>) -> CheckResult {
        let handler = Handler::Exec(vec!["test".into(), "-e".into()]);
        run_check(&handler, TIMEOUT, &ScriptedCommands::new(vec![result])).await
    }

    #[tokio::test]
    async fn exec_check_is_healthy_only_with_exit_code_zero() {
        for (code, health) in [
            (0, Health::Healthy),
            (1, Health::Unhealthy),
            (137, Health::Unhealthy),
        ] {
            let result = run_exec(Ok((code, b"output".to_vec()))).await;
            let expected = CheckResult::Completed(health, "output".into());
            assert_eq!(result, expected, "exit code {code}");
        }
    }

    #[tokio::test]
    async fn exec_check_that_times_out_fails_and_a_runtime_error_has_no_result() {
        let late = run_exec(Err(("deadline".into(), true))).await;
        let message = r#"command timed out: "test -e" timed out after 5s"#;
        assert_eq!(
            late,
            CheckResult::Completed(Health::Unhealthy, message.into())
        );
        let broken = run_exec(Err(("the runtime is away".into(), false))).await;
        assert_eq!(broken, CheckResult::Unknown("the runtime is away".into()));
    }

    #[test]
    fn output_of_a_command_is_limited_to_ten_kibibytes() {
        assert_eq!(truncate_output(&[b'a'; 10 * 1024]).len(), 10 * 1024);
        assert_eq!(truncate_output(&[b'a'; 10 * 1024 + 1]).len(), 10 * 1024);
    }

    #[tokio::test]
    async fn http_check_is_healthy_from_200_to_399() {
        for (status, health) in [
            ("200 OK", Health::Healthy),
            ("304 Not Modified", Health::Healthy),
            ("399 Odd", Health::Healthy),
            ("400 Bad Request", Health::Unhealthy),
            ("500 Internal Server Error", Health::Unhealthy),
        ] {
            let reply = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
            let (address, _) = serve_once(vec![reply]).await;
            let handler = Handler::Http {
                url: format!("http://{address}/"),
                headers: Vec::new(),
            };
            let result = run_check(&handler, TIMEOUT, &ScriptedCommands::default()).await;
            assert!(
                matches!(&result, CheckResult::Completed(found, _) if *found == health),
                "{status}: {result:?}"
            );
        }
    }

    #[tokio::test]
    async fn tcp_check_needs_a_listening_port() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let handler = Handler::Tcp {
            host: "127.0.0.1".into(),
            port,
        };
        let none = ScriptedCommands::default();
        assert_eq!(
            run_check(&handler, TIMEOUT, &none).await,
            CheckResult::success("")
        );
        drop(listener);
        let refused = run_check(&handler, TIMEOUT, &none).await;
        assert!(
            matches!(&refused, CheckResult::Completed(Health::Unhealthy, why)
                if why.starts_with(&format!("dial tcp 127.0.0.1:{port}: connect: "))),
            "{refused:?}"
        );
    }
}
