//! Entries of connection tracking, through the program `conntrack`.

use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;
use tokio::time::{Instant, timeout, timeout_at};

use crate::terms::Family;

/// Timeout of a listing: a node may have some 100,000 entries.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The reason why entries could not be listed or deleted.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// `conntrack` could not be started.
    #[error("conntrack can't be run: {0}; install conntrack")]
    Run(#[from] std::io::Error),
    /// `conntrack` exceeded the deadline and was killed.
    #[error("conntrack did not end within {} s", .0.as_secs())]
    Timeout(Duration),
    /// `conntrack` failed.
    #[error("conntrack failed: {0}")]
    Rejected(String),
}

/// Lists the entries of a family, one a line.
///
/// # Errors
/// `conntrack` can't be started, does not end in time, or fails.
pub async fn list_connections(family: Family) -> Result<String, ConnectionError> {
    let name = match family {
        Family::V4 => "ipv4",
        Family::V6 => "ipv6",
    };
    list_entries(&["-L", "-f", name]).await
}

/// Lists the UDP entries, one a line.
///
/// # Errors
/// `conntrack` can't be started, does not end in time, or fails.
pub async fn list_udp_connections() -> Result<String, ConnectionError> {
    list_entries(&["-L", "-p", "udp"]).await
}

async fn list_entries(arguments: &[&str]) -> Result<String, ConnectionError> {
    let output = timeout(TIMEOUT, run_conntrack(arguments)).await;
    let output = output.map_err(|_| ConnectionError::Timeout(TIMEOUT))??;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(ConnectionError::Rejected(read_reason(&output))),
    }
}

/// Deletes entries, by the arguments of one call of `conntrack` each. A call without such an entry
/// is no error, and one that is rejected does not prevent the others. Returns the number of deleted
/// entries.
///
/// # Errors
/// The first: `conntrack` can't be started or fails, or not all calls end within `limit`.
pub async fn delete_connections(
    calls: &[Vec<String>],
    limit: Duration,
) -> Result<u64, ConnectionError> {
    let mut first = Ok(());
    let mut deleted = 0;
    let deadline = Instant::now() + limit;
    for arguments in calls {
        let output = timeout_at(deadline, run_conntrack(arguments)).await;
        // The next call would fail for the same reason.
        let output = output.map_err(|_| ConnectionError::Timeout(limit))??;
        let reason = read_reason(&output);
        // It exits with 1 if there was no such entry, too.
        match read_deleted(&reason) {
            Some(count) => deleted += count,
            None if output.status.success() => {}
            None => first = first.and(Err(ConnectionError::Rejected(reason))),
        }
    }
    first.map(|()| deleted)
}

/// Reads the number in a line such as `conntrack v1.4.7 (conntrack-tools): 3 flow entries have been
/// deleted.`
fn read_deleted(report: &str) -> Option<u64> {
    let (before, _) = report.split_once(" flow entries have been deleted")?;
    before.rsplit(' ').next()?.parse().ok()
}

async fn run_conntrack(arguments: &[impl AsRef<std::ffi::OsStr>]) -> std::io::Result<Output> {
    Command::new("conntrack")
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
}

fn read_reason(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_deleted_entries_is_read() {
        let line = "conntrack v1.4.7 (conntrack-tools): 3 flow entries have been deleted.";
        for (report, expect) in [
            (line, Some(3)),
            ("0 flow entries have been deleted.", Some(0)),
            ("conntrack v1.4.7: Operation failed: no such entry", None),
            ("", None),
        ] {
            assert_eq!(read_deleted(report), expect, "{report}");
        }
    }
}
