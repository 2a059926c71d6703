//! Applies transactions to the kernel through the program `nft`.

use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::listing::list_tables;
use crate::terms::Family;

/// Two transactions: the first changes the rules that packets pass, the second removes unused
/// chains and sets (some kernels still count references that are removed in the same transaction).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Commands {
    /// The change.
    pub change: String,
    /// The removal of unused chains and sets.
    pub removal: String,
}

/// The reason why a transaction was not applied.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `nft` could not be started.
    #[error("nft can't be run: {0}; install nftables")]
    Run(#[from] std::io::Error),
    /// The kernel has no netlink socket for this process.
    #[error("rules can't be changed by netlink: {0}; the process needs CAP_NET_ADMIN")]
    Netlink(#[source] std::io::Error),
    /// The kernel or `nft` rejected the transaction; no part of it took effect.
    #[error("nft rejected a transaction: {0}")]
    Rejected(String),
    /// `nft` exceeded the deadline and was killed.
    #[error("nft did not end within {} s", .0.as_secs())]
    Timeout(Duration),
}

impl Error {
    /// Returns whether the content of the transaction may be the reason.
    #[must_use]
    pub fn is_rejection(&self) -> bool {
        match self {
            Self::Rejected(_) | Self::Timeout(_) => true,
            Self::Run(_) | Self::Netlink(_) => false,
        }
    }

    /// Returns whether `nft` is not installed.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Run(error) if error.kind() == std::io::ErrorKind::NotFound)
    }
}

/// Timeout of one call of `nft` without input. A transaction of 10 000 Services takes a few
/// seconds.
const NFT_TIMEOUT: Duration = Duration::from_secs(60);
/// Input for which the timeout is a second longer: a slow node would otherwise never finish a large
/// transaction.
const BYTES_PER_SECOND: u64 = 100_000;
/// Limit of the timeout.
const MAX_NFT_TIMEOUT: Duration = Duration::from_secs(600);

/// Limits of the text of an error.
const MAX_ERROR_LINES: usize = 5;
const MAX_ERROR_CHARACTERS: usize = 300;

/// Checks that `nft` is installed and this process may use it.
///
/// # Errors
/// `nft` can't be started, does not end in time, or is rejected by the kernel.
pub async fn check_nft() -> Result<(), Error> {
    let output = list_objects(&["list", "tables"]).await?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Error::Rejected(first_lines(&output.stderr))),
    }
}

/// Checks that `nft` and the kernel accept a transaction, without applying it.
///
/// # Errors
/// `nft` can't be started, does not end in time, or rejects the transaction.
pub async fn check_commands(commands: &str) -> Result<(), Error> {
    run_nft(&["-c", "-f", "-"], commands).await
}

/// Applies a transaction: all of it, or nothing.
///
/// # Errors
/// `nft` can't be started, does not end in time, or rejects the transaction.
pub async fn apply_commands(commands: &str) -> Result<(), Error> {
    if commands.is_empty() {
        return Ok(());
    }
    run_nft(&["-f", "-"], commands).await
}

async fn run_nft(words: &[&str], commands: &str) -> Result<(), Error> {
    let limit = transaction_timeout(commands.len());
    let mut command = Command::new("nft");
    command.args(words).stdout(Stdio::null());
    let output = run_with_input(&mut command, commands, limit).await?;
    let output = output.ok_or(Error::Timeout(limit))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Rejected(first_lines(&output.stderr)))
}

/// Runs a program with input; None if it exceeded the limit and was killed. Its standard output is
/// discarded unless the command pipes it.
///
/// # Errors
/// The program can't be started.
pub async fn run_with_input(
    command: &mut Command,
    input: &str,
    limit: Duration,
) -> std::io::Result<Option<Output>> {
    let mut child = command
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    // Input is written while output is read: otherwise a large transaction and its errors could
    // fill both pipes, and neither process would continue.
    let mut stdin = child.stdin.take();
    let feed = async {
        if let Some(stdin) = stdin.as_mut() {
            // If the program exits early, its standard error has the reason.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        drop(stdin);
    };
    let ended = async { tokio::join!(child.wait_with_output(), feed).0 };
    match tokio::time::timeout(limit, ended).await {
        Ok(output) => output.map(Some),
        Err(_) => Ok(None),
    }
}

/// Runs `nft` to list objects; returns its output, with the reason in it if they do not exist.
///
/// # Errors
/// `nft` can't be started, or does not end in time.
pub async fn list_objects(words: &[&str]) -> Result<Output, Error> {
    let listing = Command::new("nft")
        .args(words)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(NFT_TIMEOUT, listing)
        .await
        .map_err(|_| Error::Timeout(NFT_TIMEOUT))??;
    Ok(output)
}

/// Deletes a table, if it exists. If `nft` is not installed, the kernel is read for the table.
///
/// # Errors
/// As for [`apply_commands`].
pub async fn delete_table(family: Family, table: &str) -> Result<(), Error> {
    let word = family.nft_name();
    // `add` first: the deletion of a missing table is an error, the creation of an existing one is
    // not.
    let commands = format!("add table {word} {table}\ndelete table {word} {table}\n");
    match apply_commands(&commands).await {
        Err(error) if error.is_absent() && lacks_table(family, table) => Ok(()),
        deleted => deleted,
    }
}

fn lacks_table(family: Family, table: &str) -> bool {
    list_tables().is_ok_and(|tables| {
        tables
            .iter()
            .all(|(f, name)| (*f, &**name) != (family, table))
    })
}

/// Returns the timeout of a transaction by its size.
#[must_use]
pub fn transaction_timeout(bytes: usize) -> Duration {
    let more = u64::try_from(bytes).unwrap_or(u64::MAX) / BYTES_PER_SECOND;
    (NFT_TIMEOUT + Duration::from_secs(more)).min(MAX_NFT_TIMEOUT)
}

/// Returns the first errors of `nft`, each of which repeats a line of its input. Such a line may
/// have thousands of elements.
#[must_use]
pub fn first_lines(output: &[u8]) -> String {
    String::from_utf8_lossy(output)
        .lines()
        .take(MAX_ERROR_LINES)
        .map(|line| line.chars().take(MAX_ERROR_CHARACTERS).collect::<String>())
        .collect::<Vec<_>>()
        .join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_grows_with_the_transaction() {
        for (bytes, seconds) in [
            (0, 60),
            (99_999, 60),
            (10_000_000, 160),
            (54_000_000, 600),
            (1 << 40, 600),
        ] {
            assert_eq!(transaction_timeout(bytes).as_secs(), seconds, "{bytes}");
        }
    }
}
