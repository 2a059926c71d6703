//! The operator's tool: a whole cluster on this machine, up, down, and how it is.

mod args;
mod commands;

use std::process::ExitCode;

use args::Cli;

fn main() -> ExitCode {
    base_cli::run("ironclad", &[], |cli: &Cli| cli.logs.clone(), commands::run)
}
