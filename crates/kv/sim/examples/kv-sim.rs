//! Runs many simulations: `cargo run --release -p kv-sim --example kv-sim -- --seeds 10000`, or
//! repeats one with `--seed N`.
#![allow(clippy::print_stdout, clippy::disallowed_methods)]

use clap::Parser;
use kv_sim::{Plan, Plant, run};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

#[derive(Parser)]
struct Flags {
    /// Number of runs
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// First seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Run only this seed, with the members' logs (RUST_LOG)
    #[arg(long)]
    seed: Option<u64>,
    /// Number of members, instead of the seed's choice
    #[arg(long)]
    members: Option<u64>,
    /// Milliseconds between changes of members and leaders, instead of the seed's choice
    #[arg(long)]
    change_every: Option<u64>,
    /// Bug to plant: acknowledge-before-sync, stale-read, drop-at-compaction, split-transaction or
    /// lease-after-transfer
    #[arg(long, value_parser = plant)]
    plant: Option<Plant>,
    /// Directory for received snapshots
    #[arg(long, default_value = "/tmp/kv-sim")]
    spool: PathBuf,
}

fn plant(name: &str) -> Result<Plant, String> {
    Ok(match name {
        "acknowledge-before-sync" => Plant::AcknowledgeBeforeSync,
        "stale-read" => Plant::StaleRead,
        "drop-at-compaction" => Plant::DropAtCompaction,
        "split-transaction" => Plant::SplitTransaction,
        "lease-after-transfer" => Plant::LeaseAfterTransfer,
        other => return Err(format!("{other} is no planted bug")),
    })
}

fn runtime() -> tokio::runtime::Runtime {
    match tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
    {
        Ok(runtime) => runtime,
        Err(e) => panic!("no runtime: {e}"),
    }
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    let seeds = match flags.seed {
        Some(seed) => {
            // Without the variable, only errors.
            let levels = std::env::var("RUST_LOG").unwrap_or_default();
            let errors = Targets::new().with_default(LevelFilter::ERROR);
            let levels: Targets = levels.parse().unwrap_or(errors);
            tracing_subscriber::registry()
                .with(levels)
                .with(tracing_subscriber::fmt::layer())
                .init();
            seed..seed + 1
        }
        None => flags.from..flags.from + flags.seeds,
    };
    let (began, count) = (Instant::now(), seeds.end - seeds.start);
    let (mut failed, mut operations, mut faults, mut milliseconds) = (0, 0, 0, 0);
    let (mut changes, mut moves) = (0, 0);
    for seed in seeds {
        let mut plan = Plan::new(seed);
        plan.members = flags.members.unwrap_or(plan.members);
        plan.change_every = flags.change_every.unwrap_or(plan.change_every);
        plan.plant = flags.plant;
        let report = run(
            &plan,
            &flags.spool.join(std::process::id().to_string()),
            runtime,
        );
        operations += report.operations;
        faults += report.faults;
        (changes, moves) = (changes + report.changes, moves + report.moves);
        milliseconds += report.milliseconds;
        if flags.seed.is_some() {
            println!("{plan:?}\n{report:?}");
        }
        if let Some(violation) = report.violation {
            failed += 1;
            println!("seed {seed}: {violation}");
        }
    }
    println!(
        "{count} runs, {failed} failed; {operations} operations, {faults} faults, {changes} changes of members, {moves} of leaders, \
         {} simulated minutes in {} s",
        milliseconds / 60_000,
        began.elapsed().as_secs()
    );
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
