//! Runs the programs of iptables.

use std::process::Stdio;
use std::time::Duration;

use net_nft::{Family, first_lines, run_with_input, transaction_timeout};
use tokio::process::Command;

/// Time that a program waits for another one of iptables (of the legacy variant).
const LOCK_SECONDS: &str = "5";

/// The timeout of a transaction is this many times that of nft: the programs of iptables are slower
/// with the same number of rules.
const SLOWNESS: u32 = 5;

/// The reason why rules could not be listed or applied.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program could not be started.
    #[error("{program} can't be run: {source}; install iptables")]
    Run {
        /// The program.
        program: &'static str,
        /// The reason.
        source: std::io::Error,
    },
    /// The program failed; of the tables, no part of the one with the error took effect.
    #[error("{program} failed: {reason}")]
    Rejected {
        /// The program.
        program: &'static str,
        /// Its exit code; None if a signal ended it.
        code: Option<i32>,
        /// The first lines of its errors.
        reason: String,
    },
    /// The program exceeded the deadline and was killed.
    #[error("{program} did not end within {} s", limit.as_secs())]
    Timeout {
        /// The program.
        program: &'static str,
        /// The deadline.
        limit: Duration,
    },
}

/// Errors about a chain that does not exist, of the legacy variant and of versions of the nft one.
const NO_CHAIN: [&str; 4] = [
    "No chain/target/match by that name",
    "No such file or directory",
    "does not exist",
    "is incompatible, use 'nft' tool",
];
/// Errors about a kernel that can't translate addresses of the family.
const NO_TABLE: [&str; 4] = [
    "does not exist",
    "not supported",
    "Invalid argument",
    "No such file or directory",
];

impl Error {
    /// Returns whether the program is not installed.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Run { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
    }

    /// Returns whether the chain to list does not exist. Other reasons say nothing about it: exit
    /// code 4 is a lock that another program holds, or a lack of resources.
    #[must_use]
    pub fn is_missing_chain(&self) -> bool {
        match self {
            Self::Rejected { code, reason, .. } => {
                *code == Some(1) && NO_CHAIN.iter().any(|text| reason.contains(text))
            }
            _ => false,
        }
    }

    /// Returns whether the family can't be served on this machine: the program is not installed, or
    /// the kernel has no such table.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        match self {
            Self::Rejected { code, reason, .. } => {
                *code != Some(4) && NO_TABLE.iter().any(|text| reason.contains(text))
            }
            _ => self.is_absent(),
        }
    }
}

/// Properties of the installed programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    /// `MASQUERADE` has the option `--random-fully`: since version 1.6.2. Without it, connections
    /// share the kernel's order of ports, as with upstream.
    pub has_random_fully: bool,
    /// They translate rules for nftables.
    pub is_nft_variant: bool,
}

/// Returns the properties of the installed programs.
///
/// # Errors
/// As for [`restore`].
pub async fn find_program() -> Result<Program, Error> {
    let text = run("iptables", &["--version"], "").await?;
    Ok(Program {
        has_random_fully: parse_version(&text).is_some_and(|version| version >= [1, 6, 2]),
        is_nft_variant: text.contains("(nf_tables)"),
    })
}

/// Parses a version such as `iptables v1.8.9 (nf_tables)`.
fn parse_version(text: &str) -> Option<[u32; 3]> {
    let (_, version) = text.split_once(" v")?;
    let end = version.find(|c: char| c != '.' && !c.is_ascii_digit());
    let version = version.get(..end.unwrap_or(version.len()))?;
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    Some([
        numbers.next()??,
        numbers.next()??,
        numbers.next().flatten().unwrap_or(0),
    ])
}

/// Applies the input of `iptables-restore --noflush`.
///
/// # Errors
/// The program can't be started, does not end in time, or fails.
pub async fn restore(family: Family, input: &str) -> Result<(), Error> {
    if input.is_empty() {
        return Ok(());
    }
    let program = match family {
        Family::V4 => "iptables-restore",
        Family::V6 => "ip6tables-restore",
    };
    run(program, &["-w", LOCK_SECONDS, "--noflush"], input)
        .await
        .map(|_| ())
}

/// Lists the rules of all tables.
///
/// # Errors
/// As for [`restore`].
pub async fn save(family: Family) -> Result<String, Error> {
    let program = match family {
        Family::V4 => "iptables-save",
        Family::V6 => "ip6tables-save",
    };
    run(program, &[], "").await
}

/// Lists the rules of a chain.
///
/// # Errors
/// As for [`restore`]; the chain does not exist.
pub async fn list_chain(family: Family, table: &str, chain: &str) -> Result<String, Error> {
    let program = match family {
        Family::V4 => "iptables",
        Family::V6 => "ip6tables",
    };
    run(program, &["-w", LOCK_SECONDS, "-t", table, "-S", chain], "").await
}

async fn run(program: &'static str, words: &[&str], input: &str) -> Result<String, Error> {
    let mut command = Command::new(program);
    command.args(words).stdout(Stdio::piped());
    let limit = SLOWNESS * transaction_timeout(input.len());
    let output = run_with_input(&mut command, input, limit).await;
    let output = output.map_err(|source| Error::Run { program, source })?;
    let output = output.ok_or(Error::Timeout { program, limit })?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(Error::Rejected {
            program,
            code: output.status.code(),
            reason: first_lines(&output.stderr),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_decides_on_random_ports() {
        for (text, expect) in [
            ("iptables v1.8.9 (nf_tables)\n", Some([1, 8, 9])),
            ("iptables v1.6.2\n", Some([1, 6, 2])),
            ("ip6tables v1.6.1", Some([1, 6, 1])),
            ("iptables v1.8", Some([1, 8, 0])),
            ("iptables", None),
            ("iptables version", None),
        ] {
            assert_eq!(parse_version(text), expect, "{text}");
        }
    }

    #[test]
    fn only_an_absent_chain_counts_as_missing() {
        for (code, reason, missing, unsupported) in [
            (
                1,
                "iptables: No chain/target/match by that name.",
                true,
                false,
            ),
            (
                1,
                "iptables v1.8.9 (nf_tables): chain `KUBE-X' in table `nat' is incompatible, use 'nft' tool.",
                true,
                false,
            ),
            (
                4,
                "Another app is currently holding the xtables lock; still 0s 0us time ahead to have a chance to grab the lock...",
                false,
                false,
            ),
            (1, "iptables: Memory allocation problem.", false, false),
            (
                3,
                "ip6tables v1.8.9 (legacy): can't initialize ip6tables table `nat': Table does not exist (do you need to insmod?)",
                false,
                true,
            ),
            (
                3,
                "can't initialize ip6tables table `nat': Address family not supported by protocol",
                false,
                true,
            ),
            (3, "Permission denied (you must be root)", false, false),
        ] {
            let error = Error::Rejected {
                program: "iptables",
                code: Some(code),
                reason: reason.to_owned(),
            };
            let found = (error.is_missing_chain(), error.is_unsupported());
            assert_eq!(found, (missing, unsupported), "{reason}");
        }
    }
}
