//! `store-bench`: runs the same load alternately on `kvstore` and, if installed, on etcd, on the
//! same disk; or on running servers.

mod figures;
mod grpc;
mod host;
mod random;
mod report;
mod suites;
mod verify;
mod workloads;

use anyhow::Result;
use clap::Parser;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Compares stores with etcd's v3 API
#[derive(Parser)]
pub(crate) struct Flags {
    /// Path of the kvstore binary
    #[arg(long, required_unless_present = "endpoints")]
    kvstore: Option<PathBuf>,
    /// Path of the etcd binary; if it is missing, only kvstore is measured
    #[arg(long, default_value = "etcd")]
    etcd: PathBuf,
    /// Running servers (host:port, without TLS) to use instead of starting some; their content is
    /// overwritten
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["kvstore", "soak", "scale"])]
    endpoints: Vec<String>,
    /// Duration of a round in seconds
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Number of rounds for each figure; the servers alternate
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Numbers of concurrent clients for puts
    #[arg(long, value_delimiter = ',', default_value = "1,100,1000")]
    clients: Vec<usize>,
    /// Sizes of clusters
    #[arg(long, value_delimiter = ',', default_value = "1,3")]
    members: Vec<usize>,
    /// Workloads to measure, by prefixes of their names (and "memory") [default: all]
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Run overwrites with compaction for this many seconds, instead of everything else
    #[arg(long)]
    soak: Option<f64>,
    /// Run scale tests, instead of everything else
    #[arg(long, value_delimiter = ',', value_enum)]
    scale: Vec<suites::scale::Scale>,
    /// Run this many operations of a load that verifies every response, instead of measuring:
    /// acknowledged writes must remain, reads must not be stale; members may fail in the meantime
    #[arg(
        long,
        requires = "endpoints",
        conflicts_with = "kvstore",
        value_name = "OPERATIONS"
    )]
    verify: Option<u64>,
    /// Maximum number of operations per second for --verify; 0: unlimited
    #[arg(long, default_value_t = 0)]
    rate: u64,
    /// Seed for --verify
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory on the disk to measure
    #[arg(long)]
    folder: Option<PathBuf>,
    /// File to write the figures to
    #[arg(long)]
    json: Option<PathBuf>,
}

impl Flags {
    fn selects_work(&self, work: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| work.starts_with(only.as_str()))
    }
}

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
