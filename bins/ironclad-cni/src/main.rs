//! ironclad-cni: the pod network. The container runtime runs it for each pod as its plugin; without
//! an operation of a runtime it is the node's agent.

mod agent;

use std::io::{Read, Write};
use std::process::ExitCode;

use net_cni::{COMMAND_VARIABLE, Environment, run_plugin};

/// Limit of a network configuration in bytes.
const MAX_INPUT: u64 = 4 << 20;

fn main() -> ExitCode {
    if std::env::var_os(COMMAND_VARIABLE).is_none() {
        return base_cli::run_component(
            "ironclad-cni",
            &[],
            |args: &agent::Args| args.logs.clone(),
            agent::run,
        );
    }
    match execute_operation() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ironclad-cni: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn execute_operation() -> anyhow::Result<ExitCode> {
    let mut input = Vec::new();
    std::io::stdin().take(MAX_INPUT).read_to_end(&mut input)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let output = runtime.block_on(run_plugin(&Environment::read(), &input));
    std::io::stdout().write_all(output.text.as_bytes())?;
    Ok(if output.is_success {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
