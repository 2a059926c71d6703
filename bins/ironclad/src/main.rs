//! ironclad: starts and stops a whole cluster on this machine, joins the machine to another one,
//! and shows the status.

mod args;
mod certs;
mod commands;
mod doctor;
mod join;
mod progress;
mod token;
mod upgrade;

use std::process::ExitCode;

use args::Cli;

fn main() -> ExitCode {
    base_cli::run_component(
        "ironclad",
        &[],
        |cli: &Cli| cli.logs.clone(),
        commands::run_command,
    )
}
