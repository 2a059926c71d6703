//! Runs other programs.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::error::{Error, Result};

/// Directories searched in addition to `PATH`, which may lack those for administrators.
const FOLDERS: [&str; 5] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
];

/// Returns the path of a program; None if it is not installed.
#[must_use]
pub fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(FOLDERS.iter().map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

/// Runs a program and returns its standard output; an exit status other than zero is an error.
pub fn run_command(program: &str, args: &[&str]) -> Result<String> {
    run_with_input(program, args, "")
}

/// Runs a program with `input` as its standard input.
pub fn run_with_input(program: &str, args: &[&str], input: &str) -> Result<String> {
    let output = command_output(program, args, input)
        .map_err(|error| command_failed(program, args, error.to_string()))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let reason = if stderr.is_empty() {
            output.status.to_string()
        } else {
            stderr
        };
        return Err(command_failed(program, args, reason));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn command_output(program: &str, args: &[&str], input: &str) -> std::io::Result<Output> {
    // An absent program is run by its name all the same, so that the error names it.
    let path = find_program(program).unwrap_or_else(|| PathBuf::from(program));
    let mut child = Command::new(path)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    // Closed with the closure's value: programs such as nft read until the end of the input.
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| {
        // The inputs are short: a long one could block while the output of the program is not read.
        stdin.write_all(input.as_bytes())
    });
    let output = child.wait_with_output()?;
    // A program that fails may end before it has read its input. Its own error says why.
    if output.status.success() {
        written?;
    }
    Ok(output)
}

fn command_failed(program: &str, args: &[&str], reason: String) -> Error {
    Error::Command {
        command: format!("{program} {}", args.join(" ")).trim().to_owned(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn failed_program_is_reported_with_its_error_output() {
        let error = run_command("sh", &["-c", "echo reason >&2; exit 3"]).unwrap_err();
        assert!(error.to_string().ends_with("failed: reason"), "{error}");
        let silent = run_command("sh", &["-c", "exit 3"]).unwrap_err();
        assert!(silent.to_string().contains("exit status: 3"), "{silent}");
        assert!(run_command("no-such-program-here", &[]).is_err());
    }

    /// More than a pipe holds, so the write fails when the program closes its input.
    #[test]
    fn program_that_reads_no_input_is_reported_with_its_own_error() {
        let input = "x".repeat(1 << 20);
        let run = |script: &str| run_with_input("sh", &["-c", script], &input);
        let error = run("exec <&-; echo reason >&2; exit 3").unwrap_err();
        assert!(error.to_string().ends_with("failed: reason"), "{error}");
        let error = run("exec <&-; exit 0").unwrap_err();
        assert!(error.to_string().contains("Broken pipe"), "{error}");
    }

    #[test]
    fn input_is_given_and_output_returned() {
        assert_eq!(run_with_input("cat", &[], "text").unwrap(), "text");
    }
}
