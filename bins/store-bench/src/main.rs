//! `store-bench`: runs the same load alternately on `kvstore` and, if installed, on etcd, on the
//! same disk; or on running servers.

mod figures;
mod flags;
mod grpc;
mod host;
mod random;
mod report;
mod suites;
mod verify;
mod workloads;

use anyhow::Result;
use clap::Parser;
use flags::Flags;
use std::io::Write;
use std::process::ExitCode;

// A single thread, so that the load generator does not use more of the machine than the servers.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run_flags(Flags::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Fails if standard error is closed.
            let _ = writeln!(std::io::stderr(), "store-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run_flags(flags: Flags) -> Result<()> {
    match flags.verify {
        Some(operations) => {
            let Flags {
                endpoints: addresses,
                rate,
                seed,
                ..
            } = flags;
            verify::run_verification(verify::Plan {
                addresses,
                operations,
                rate,
                seed,
            })
            .await
        }
        None => suites::compare::run_comparison(flags).await,
    }
}
