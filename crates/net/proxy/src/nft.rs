//! Applies transactions to the kernel through the program `nft`.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::base_chains::TABLE;
use crate::model::Family;

/// The reason why a transaction was not applied.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `nft` could not be started.
    #[error("nft can't be run: {0}; install nftables")]
    Run(#[from] std::io::Error),
    /// The kernel or `nft` rejected the transaction; no part of it took effect.
    #[error("nft refused a transaction: {0}")]
    Refused(String),
    /// `nft` exceeded the deadline and was killed.
    #[error("nft did not end within {} s", NFT_TIMEOUT.as_secs())]
    Late,
}

/// Timeout of one call of `nft`. A transaction of 10 000 Services takes a few seconds.
const NFT_TIMEOUT: Duration = Duration::from_secs(60);

/// Checks that `nft` is installed and this process may use it.
pub async fn check_nft() -> Result<(), Error> {
    let output = Command::new("nft")
        .args(["list", "tables"])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Error::Refused(first_lines(&output.stderr))),
    }
}

/// Applies a transaction: all of it, or nothing.
pub async fn apply_commands(commands: &str) -> Result<(), Error> {
    if commands.is_empty() {
        return Ok(());
    }
    let mut child = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    // Written while the output is read: a large transaction fills the pipe, and errors of nft fill
    // the other one.
    let mut stdin = child.stdin.take();
    let feed = async {
        if let Some(stdin) = stdin.as_mut() {
            // If nft exits early, its standard error has the reason.
            let _ = stdin.write_all(commands.as_bytes()).await;
        }
        drop(stdin);
    };
    let ended = async { tokio::join!(child.wait_with_output(), feed).0 };
    let output = tokio::time::timeout(NFT_TIMEOUT, ended)
        .await
        .map_err(|_| Error::Late)??;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Refused(first_lines(&output.stderr)))
}

/// Returns whether the tables exist with their hooks. If `nft` fails, they count as installed.
pub async fn are_installed(families: &[Family]) -> bool {
    for family in families {
        let words = ["list", "chain", family.nft_name(), TABLE, "nat-prerouting"];
        let listing = Command::new("nft")
            .args(words)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        // Only a listing that worked and lacks the jump means that the rules were removed: each
        // wrong result installs everything again.
        if let Ok(Ok(output)) = tokio::time::timeout(NFT_TIMEOUT, listing).await
            && !(output.status.success()
                && String::from_utf8_lossy(&output.stdout).contains("jump services"))
        {
            return false;
        }
    }
    true
}

/// Returns all sets with their elements, in JSON; empty if `nft` can't list them.
pub async fn list_sets() -> String {
    let listing = Command::new("nft")
        .args(["-j", "list", "sets"])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    match listing.await {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).into_owned()
        }
        Ok(output) => {
            let reason = first_lines(&output.stderr);
            tracing::warn!(
                reason,
                "sets can't be listed; clients may change endpoints in spite of session affinity"
            );
            String::new()
        }
        Err(_) => String::new(),
    }
}

fn first_lines(output: &[u8]) -> String {
    String::from_utf8_lossy(output)
        .lines()
        .take(5)
        .collect::<Vec<_>>()
        .join("; ")
}

/// Removes all tables that the proxy installed.
pub async fn delete_tables() -> Result<(), Error> {
    for family in [Family::V4, Family::V6] {
        let word = family.nft_name();
        // `add` first: the deletion of a missing table is an error, the creation of an existing one
        // is not.
        apply_commands(&format!(
            "add table {word} {TABLE}\ndelete table {word} {TABLE}\n"
        ))
        .await?;
    }
    Ok(())
}
