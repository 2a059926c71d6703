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
    // Closed at the end of the block: programs such as nft read until the end of the input.
    if let Some(mut stdin) = child.stdin.take() {
        // The inputs are short: a long one could block while the output of the program is not read.
        stdin.write_all(input.as_bytes())?;
    }
    child.wait_with_output()
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

    #[test]
    fn input_is_given_and_output_returned() {
        assert_eq!(run_with_input("cat", &[], "text").unwrap(), "text");
    }
}
