//! dns-bench: load for a running DNS server of a cluster, over UDP. Prints one JSON value.
#![allow(clippy::print_stdout)]

mod load;
mod process;
mod resolver;
mod workload;

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Parser, value_parser};
use serde_json::{Value, json};

use crate::load::{Pace, run_load};
use crate::process::Usage;

/// Measures requests per second, processor time for each and latency of a DNS server
#[derive(Debug, Parser)]
#[command(name = "dns-bench", version, about)]
struct Options {
    /// Address of the server
    #[arg(long, value_name = "IP:PORT")]
    server: SocketAddr,
    /// Process of the server
    #[arg(long)]
    pid: u32,
    /// Address of a resolver for names outside of the cluster, which this program serves
    #[arg(long, value_name = "IP:PORT")]
    resolver: SocketAddr,
    /// Number of Services in the namespace bench-dns, named s0, s1, ...
    #[arg(long, default_value_t = 1000, value_parser = value_parser!(u16).range(1..))]
    services: u16,
    /// Number of headless Services, named h0, h1, ...
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u16).range(1..))]
    headless: u16,
    /// Clients, each with one request at a time
    #[arg(long, default_value_t = 64, value_parser = value_parser!(u16).range(1..))]
    clients: u16,
    /// Seconds of each part
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u64).range(1..))]
    seconds: u64,
    /// Requests per second in the parts that measure latency
    #[arg(long, default_value_t = 5000, value_parser = value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// Names of the parts to run [default: all]
    #[arg(long, value_delimiter = ',')]
    parts: Vec<String>,
}

// One thread: the server has the rest of the machine, and the load costs no more than a core.
#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let mut background = tokio::task::JoinSet::new();
    resolver::spawn_resolver(options.resolver, &mut background).await?;
    let mut rows = Vec::new();
    for workload in workload::build_workloads(options.services, options.headless)? {
        let name = workload.name;
        if options.parts.is_empty() || options.parts.iter().any(|part| part == name) {
            rows.push(measure(&options, &workload).await?);
        }
    }
    println!("{}", Value::Array(rows));
    Ok(())
}

async fn measure(options: &Options, workload: &workload::Workload) -> anyhow::Result<Value> {
    let load = |pace, time| run_load(options.server, workload, options.clients, pace, time);
    // Every name once or more often: forwarded answers are cached afterwards.
    load(Pace::Rate(2000), Duration::from_secs(2)).await?;
    let time = Duration::from_secs(options.seconds);
    let before = Usage::read(options.pid)?;
    let full = load(Pace::Full, time).await?;
    let after = Usage::read(options.pid)?;
    let cpu_us = (after.cpu_seconds - before.cpu_seconds) * 1e6 / full.answered.max(1) as f64;
    let paced = load(Pace::Rate(options.rate), time).await?;
    Ok(json!({
        "what": workload.name,
        "rate": (full.answered as f64 / time.as_secs_f64()).round(),
        "cpu_us": (cpu_us * 10.0).round() / 10.0,
        "rate_per_core": (1e6 / cpu_us).round(),
        "paced_rate": (paced.answered as f64 / time.as_secs_f64()).round(),
        "p50_us": paced.percentile(0.5),
        "p99_us": paced.percentile(0.99),
        "lost": full.lost + paced.lost,
        "wrong": full.wrong + paced.wrong,
        "rss_mb": (after.rss_mb * 10.0).round() / 10.0,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_nothing_can_be_measured_with_are_rejected() {
        for (option, is_valid) in [
            ("--rate=1", true),
            ("--rate=0", false),
            ("--rate=1000000", true),
            ("--rate=4294967295", false),
            ("--clients=0", false),
            ("--clients=4294967296", false),
            ("--seconds=0", false),
            ("--services=0", false),
        ] {
            let fixed = [
                "x",
                "--server=127.0.0.1:53",
                "--pid=1",
                "--resolver=127.0.0.1:54",
            ];
            let parsed = Options::try_parse_from([&fixed[..], &[option]].concat());
            assert_eq!(parsed.is_ok(), is_valid, "{option}");
        }
    }
}
