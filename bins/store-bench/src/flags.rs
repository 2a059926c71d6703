//! The flags of the program.

use crate::suites::scale::Scale;
use clap::Parser;
use std::path::PathBuf;

/// Compares stores with etcd's v3 API
#[derive(Parser)]
pub struct Flags {
    /// Path of the kvstore binary
    #[arg(long, required_unless_present = "endpoints")]
    pub kvstore: Option<PathBuf>,
    /// Path of the etcd binary; if it is missing, only kvstore is measured
    #[arg(long, default_value = "etcd")]
    pub etcd: PathBuf,
    /// Running servers (host:port, without TLS) to use instead of starting some; their content is
    /// overwritten
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["kvstore", "soak", "scale"])]
    pub endpoints: Vec<String>,
    /// Duration of a round in seconds
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
    /// Number of rounds for each figure; the servers alternate
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Numbers of concurrent clients for puts
    #[arg(long, value_delimiter = ',', default_value = "1,100,1000")]
    pub clients: Vec<usize>,
    /// Sizes of clusters
    #[arg(long, value_delimiter = ',', default_value = "1,3")]
    pub members: Vec<usize>,
    /// Workloads to measure, by prefixes of their names (and "memory") [default: all]
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Run overwrites with compaction for this many seconds, instead of everything else
    #[arg(long)]
    pub soak: Option<f64>,
    /// Run scale tests, instead of everything else
    #[arg(long, value_delimiter = ',', value_enum)]
    pub scale: Vec<Scale>,
    /// Run this many operations of a load that verifies every response, instead of measuring:
    /// acknowledged writes must remain, reads must not be stale; members may fail in the meantime
    #[arg(
        long,
        requires = "endpoints",
        conflicts_with = "kvstore",
        value_name = "OPERATIONS"
    )]
    pub verify: Option<u64>,
    /// Maximum number of operations per second for --verify; 0: unlimited
    #[arg(long, default_value_t = 0)]
    pub rate: u64,
    /// Seed for --verify
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Directory on the disk to measure
    #[arg(long)]
    pub folder: Option<PathBuf>,
    /// File to write the figures to
    #[arg(long)]
    pub json: Option<PathBuf>,
}

impl Flags {
    /// Returns whether `--only` selects the workload.
    pub fn selects_work(&self, work: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| work.starts_with(only.as_str()))
    }
}
