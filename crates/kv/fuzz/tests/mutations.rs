//! Runs the targets with mutations from a fixed seed. `KV_FUZZ_RUNS` sets the number of runs.

use kv_fuzz::{Mutator, commands, commands_corpus, snapshot, snapshot_corpus, wal, wal_corpus};

fn feed(target: fn(&[u8]), corpus: &[Vec<u8>], runs: u64) {
    assert!(!corpus.is_empty());
    for input in corpus {
        target(input);
    }
    let runs = std::env::var("KV_FUZZ_RUNS")
        .ok()
        .and_then(|runs| runs.parse().ok())
        .unwrap_or(runs);
    for seed in 0..runs {
        let input = Mutator::new(seed).next(corpus);
        if std::panic::catch_unwind(|| target(&input)).is_err() {
            panic!("mutation {seed} of {} bytes", input.len());
        }
    }
}

#[test]
fn mutated_logs_never_panic() {
    feed(wal, &wal_corpus(), 3_000);
}

#[test]
fn mutated_snapshots_never_panic() {
    feed(snapshot, &snapshot_corpus(), 1_000);
}

#[test]
fn mutated_requests_never_panic() {
    feed(commands, &commands_corpus(), 10_000);
}
