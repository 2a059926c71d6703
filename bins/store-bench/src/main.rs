//! `store-bench`: the same load on `kvstore` and, where it is installed, on etcd, on the same disk, in turns; or on servers
//! that run already.

mod ask;
mod disk;
mod figures;
mod leases;
mod load;
mod memory;
mod plan;
mod random;
mod report;
mod scale;
mod server;
mod soak;
mod stops;
mod verify;
mod watches;
mod wire;

use anyhow::Result;
use clap::Parser;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measures stores with etcd's v3 API side by side.
#[derive(Parser)]
pub(crate) struct Flags {
    /// The kvstore binary
    #[arg(long, required_unless_present = "endpoints")]
    kvstore: Option<PathBuf>,
    /// The etcd binary; without it only kvstore is measured
    #[arg(long, default_value = "etcd")]
    etcd: PathBuf,
    /// Servers that run already (host:port, without TLS), instead of any that are started; what is in them is written over
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["kvstore", "soak", "scale"])]
    endpoints: Vec<String>,
    /// Seconds of a round
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Rounds of each figure; the servers take turns
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Numbers of clients that put
    #[arg(long, value_delimiter = ',', default_value = "1,100,1000")]
    clients: Vec<usize>,
    /// Sizes of clusters
    #[arg(long, value_delimiter = ',', default_value = "1,3")]
    members: Vec<usize>,
    /// Works to measure, by the beginning of their names (and "memory"); all without it
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Seconds of overwriting with compaction, instead of everything else
    #[arg(long)]
    soak: Option<f64>,
    /// Much of something, instead of everything else
    #[arg(long, value_delimiter = ',', value_enum)]
    scale: Vec<scale::Scale>,
    /// Operations of a load that checks every answer, instead of measuring: what is acknowledged must stay, reads must not be
    /// stale; members may fail meanwhile
    #[arg(long, requires = "endpoints", value_name = "OPERATIONS")]
    verify: Option<u64>,
    /// Operations a second of --verify, at most; 0 for as many as there can be
    #[arg(long, default_value_t = 0)]
    rate: u64,
    /// Seed of --verify
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder on the disk to measure
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Where the figures are written
    #[arg(long)]
    json: Option<PathBuf>,
}

impl Flags {
    fn chosen(&self, work: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| work.starts_with(only.as_str()))
    }
}

// One thread: it must not take more of the machine than the servers.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Flags::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // There is nobody to tell when standard error is closed.
            let _ = writeln!(std::io::stderr(), "store-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(flags: Flags) -> Result<()> {
    match flags.verify {
        Some(operations) => {
            let Flags { endpoints: addresses, rate, seed, .. } = flags;
            verify::run(verify::Plan { addresses, operations, rate, seed }).await
        }
        None => plan::run(flags).await,
    }
}
