//! ironclad-cni: the plugin of the pod network, which the container runtime runs for each pod.

use std::io::{Read, Write};
use std::process::ExitCode;

use net_cni::{Environment, run_plugin};

/// Limit of a network configuration in bytes.
const MAX_INPUT: u64 = 4 << 20;

fn main() -> ExitCode {
    match execute() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ironclad-cni: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn execute() -> anyhow::Result<ExitCode> {
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
