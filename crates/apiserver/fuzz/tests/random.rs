//! Runs the targets with bytes from fixed seeds, on stacks as small as those of the server's
//! threads. `APISERVER_FUZZ_RUNS` sets the number of runs, `APISERVER_FUZZ_SEED` the first seed.
#![allow(clippy::unwrap_used)]

use apiserver_fuzz::{random_bytes, run_apply, run_cbor, run_expression, run_patch, run_schema};
use std::sync::mpsc;
use std::time::Duration;

/// Stack of the server's threads.
const STACK: usize = 2 << 20;

/// Time after which an input counts as endless; inputs take milliseconds.
const ENDLESS: Duration = Duration::from_secs(60);

fn read_variable(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}

/// Runs a target on consecutive seeds. After an overflow of the stack, which ends the process, the
/// seed is found by bisection with the variables.
fn feed(target: fn(&[u8]), runs: u64) {
    let first = read_variable("APISERVER_FUZZ_SEED", 0);
    let last = first + read_variable("APISERVER_FUZZ_RUNS", runs);
    let (begin, begun) = mpsc::channel();
    let work = move || {
        for seed in first..last {
            begin.send(seed).unwrap();
            target(&random_bytes(seed));
        }
    };
    let thread = std::thread::Builder::new().stack_size(STACK);
    let thread = thread.spawn(work).unwrap();
    let mut current = first;
    loop {
        match begun.recv_timeout(ENDLESS) {
            Ok(seed) => current = seed,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("seed {current} does not end"),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    assert!(thread.join().is_ok(), "seed {current} failed");
}

#[test]
fn random_expressions_end() {
    feed(run_expression, 2_500);
}

#[test]
fn random_schemas_end() {
    feed(run_schema, 2_500);
}

#[test]
fn random_patches_end() {
    feed(run_patch, 1_500);
}

#[test]
fn random_applies_end() {
    feed(run_apply, 2_500);
}

#[test]
fn random_cbor_ends() {
    feed(run_cbor, 2_500);
}
