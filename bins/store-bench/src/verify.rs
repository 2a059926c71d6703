//! A load that verifies every response: no acknowledged write is lost and no linearizable read is
//! stale, under arbitrary faults of the members. See `ledger` for the rules.

mod client;
mod ledger;

use crate::random::Random;
use anyhow::{Result, bail};
use client::{Failure, Member};
use ledger::{Key, Ledger, Violation};
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

// Several writes are in progress at any time, so that a fault hits some of them.
const CLIENTS: usize = 64;
/// Number of keys that a client writes in turn.
const SLOTS: usize = 4;
/// Interval between progress lines.
const LINE: Duration = Duration::from_secs(10);
/// Maximum time without any response.
const PATIENCE: Duration = Duration::from_secs(60);

/// Parameters of the load.
pub struct Plan {
    /// `host:port` of each member.
    pub addresses: Vec<String>,
    /// Number of operations, without reading everything back in the end.
    pub operations: u64,
    /// Maximum operations per second; 0: unlimited.
    pub rate: u64,
    /// Seed of all random choices.
    pub seed: u64,
}

#[derive(Clone, Copy)]
struct Counts {
    begun: u64,
    puts: u64,
    reads: u64,
    read_back: u64,
    /// Failed operations without consequences.
    failed: u64,
    /// Puts with unknown outcome.
    unknown: u64,
    answered: Instant,
}

struct State {
    ledger: Ledger,
    /// The keys that all clients currently write.
    active: Vec<Key>,
    counts: Counts,
}

/// State that the clients share.
struct Run {
    plan: Plan,
    /// Prefix of the keys, which differs between runs on the same servers.
    prefix: String,
    begin: Instant,
    state: Mutex<State>,
}

/// Runs the load, then reads everything back through every member.
pub async fn run_verification(plan: Plan) -> Result<()> {
    let begin = Instant::now();
    let counts = Counts {
        begun: 0,
        puts: 0,
        reads: 0,
        read_back: 0,
        failed: 0,
        unknown: 0,
        answered: begin,
    };
    let mut ledger = Ledger::default();
    let active = (0..CLIENTS * SLOTS).map(|_| ledger.add_key()).collect();
    print_progress(&format!(
        "seed {}: {} operations on {}",
        plan.seed,
        plan.operations,
        plan.addresses.join(", ")
    ));
    // Values of an earlier run on the same servers would look like values that no client has put.
    let prefix = format!(
        "verify/{}",
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_millis()
    );
    let run = Arc::new(Run {
        plan,
        prefix,
        begin,
        state: Mutex::new(State {
            ledger,
            active,
            counts,
        }),
    });
    // Silence must end the run: with all members down no call ever fails for good.
    let outcome = tokio::select! {
        outcome = write_and_read_back(&run) => outcome,
        stalled = report_progress(&run) => stalled,
    };
    print_progress(&format!(
        "{}: {}",
        if outcome.is_ok() {
            "all is well"
        } else {
            "ended"
        },
        run.summarize_counts()
    ));
    outcome
}

async fn write_and_read_back(run: &Arc<Run>) -> Result<()> {
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        clients.spawn(run_client(run.clone(), number));
    }
    join_tasks(clients).await?;
    let mut readers = JoinSet::new();
    for number in 0..CLIENTS {
        readers.spawn(read_back(run.clone(), number));
    }
    join_tasks(readers).await
}

async fn join_tasks(mut tasks: JoinSet<Result<()>>) -> Result<()> {
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// Prints progress at intervals. Returns an error if the servers have not responded for too long.
async fn report_progress(run: &Run) -> Result<()> {
    let mut last_line = run.begin;
    loop {
        sleep(Duration::from_millis(200)).await;
        if last_line.elapsed() >= LINE {
            last_line = Instant::now();
            print_progress(&run.summarize_counts());
        }
        if run.lock_state().counts.answered.elapsed() > PATIENCE {
            let addresses = run.plan.addresses.join(", ");
            bail!(
                "no member has answered for {} s: see whether those at {addresses} run and have a leader",
                PATIENCE.as_secs()
            );
        }
    }
}

fn print_progress(line: &str) {
    // Fails if standard error is closed.
    let _ = writeln!(std::io::stderr(), "store-bench: {line}");
}

impl Run {
    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn summarize_counts(&self) -> String {
        let state = self.lock_state();
        let Counts {
            puts,
            reads,
            read_back,
            failed,
            unknown,
            ..
        } = state.counts;
        format!(
            "{} operations ({puts} puts, {reads} reads), {read_back} read back of {} keys, {failed} failed, {unknown} puts of \
             unknown outcome, {:.0} s",
            puts + reads,
            state.ledger.key_count(),
            self.begin.elapsed().as_secs_f64()
        )
    }

    fn key_name(&self, key: Key) -> String {
        format!("{}/{key}", self.prefix)
    }

    /// Returns the start time of the next operation, or `None` if all were started.
    fn next_start(&self) -> Option<Instant> {
        let counts = &mut self.lock_state().counts;
        // Only operations with a response count, so a run with many failures still verifies as many
        // responses.
        if counts.puts + counts.reads >= self.plan.operations {
            return None;
        }
        counts.begun += 1;
        let wait = (counts.begun * 1_000_000)
            .checked_div(self.plan.rate)
            .map(Duration::from_micros);
        Some(self.begin + wait.unwrap_or_default())
    }

    fn check_outcome(
        &self,
        outcome: Result<(), Violation>,
        key: Key,
        member: &Member,
    ) -> Result<()> {
        match outcome {
            Ok(()) => {
                self.lock_state().counts.answered = Instant::now();
                Ok(())
            }
            Err(violation) => bail!(
                "{} through {}: {violation}",
                self.key_name(key),
                member.address()
            ),
        }
    }
}

async fn run_client(run: Arc<Run>, number: usize) -> Result<()> {
    // Every client has a seed of its own, and the run is repeatable up to the timing of the
    // servers.
    let mut random = Random::new(
        run.plan
            .seed
            .wrapping_mul(1_000)
            .wrapping_add(number as u64 + 1),
    );
    let mut members = client::create_members(&run.plan.addresses);
    while let Some(begin) = run.next_start() {
        sleep_until(begin).await;
        let at = client::choose_member(&members, &mut random).await;
        let Some(member) = members.get_mut(at) else {
            bail!("there are no endpoints")
        };
        if random.below(2) == 0 {
            put_next_value(&run, number * SLOTS + random.below(SLOTS), member).await?;
        } else {
            let key = choose_key(&run.lock_state(), &mut random);
            read_and_check(&run, key, member, |counts| counts.reads += 1).await?;
        }
    }
    Ok(())
}

/// Chooses a key that is currently written or, equally often, any key.
fn choose_key(state: &State, random: &mut Random) -> Key {
    match random.below(2) {
        0 => state
            .active
            .get(random.below(state.active.len()))
            .copied()
            .unwrap_or_default(),
        // Keys whose last put has an unknown outcome are read further: the put must not be executed
        // twice.
        _ => random.below(state.ledger.key_count()),
    }
}

async fn put_next_value(run: &Run, slot: usize, member: &mut Member) -> Result<()> {
    // The attempt is recorded before the request is sent: a concurrent reader may see its value at
    // once.
    let (key, before, value) = {
        let State { ledger, active, .. } = &mut *run.lock_state();
        let key = active.get(slot).copied().unwrap_or_default();
        let begun = (key, ledger.state_before(key), ledger.next_value(key));
        ledger.record_attempt(key);
        begun
    };
    match member.put(&run.key_name(key), value).await {
        Ok(revision) => {
            let outcome = run
                .lock_state()
                .ledger
                .record_acknowledged(key, before, revision);
            run.lock_state().counts.puts += 1;
            run.check_outcome(outcome, key, member)
        }
        Err(failure) => {
            let state = &mut *run.lock_state();
            match failure {
                Failure::Unsent => {
                    state.ledger.withdraw_attempt(key);
                    state.counts.failed += 1;
                }
                // The put may still be executed at any time, so this key gets no further put and a
                // fresh one replaces it.
                Failure::Unknown => {
                    let fresh = state.ledger.add_key();
                    if let Some(active) = state.active.get_mut(slot) {
                        *active = fresh;
                    }
                    state.counts.unknown += 1;
                }
            }
            Ok(())
        }
    }
}

/// Reads a key. Returns whether there was a response.
async fn read_and_check(
    run: &Run,
    key: Key,
    member: &mut Member,
    count: fn(&mut Counts),
) -> Result<bool> {
    // The known state before the read is the lower bound of a linearizable result.
    let before = run.lock_state().ledger.state_before(key);
    match member.read(&run.key_name(key)).await {
        Ok(found) => {
            let outcome = run.lock_state().ledger.check_read(key, before, found);
            count(&mut run.lock_state().counts);
            run.check_outcome(outcome, key, member).map(|()| true)
        }
        Err(_) => {
            run.lock_state().counts.failed += 1;
            Ok(false)
        }
    }
}

/// Reads one client's share of all keys through every member.
async fn read_back(run: Arc<Run>, number: usize) -> Result<()> {
    let keys = run.lock_state().ledger.key_count();
    // Through every member, because a single one may have lost a write that the others still have.
    for mut member in client::create_members(&run.plan.addresses) {
        for key in (number..keys).step_by(CLIENTS) {
            // Retried until there is a response: a key that is skipped could be the lost one.
            while !read_and_check(&run, key, &mut member, |counts| counts.read_back += 1).await? {
                member.wait_until_rested().await;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn verifying(operations: u64, rate: u64) -> Run {
        let begin = Instant::now();
        let mut ledger = Ledger::default();
        let active = (0..SLOTS).map(|_| ledger.add_key()).collect();
        let counts = Counts {
            begun: 0,
            puts: 0,
            reads: 0,
            read_back: 0,
            failed: 0,
            unknown: 0,
            answered: begin,
        };
        Run {
            plan: Plan {
                addresses: Vec::new(),
                operations,
                rate,
                seed: 1,
            },
            prefix: "verify/1".to_owned(),
            begin,
            state: Mutex::new(State {
                ledger,
                active,
                counts,
            }),
        }
    }

    #[test]
    fn operations_start_at_the_rate() {
        let run = verifying(100, 10);
        for number in 1..4 {
            let start = run.next_start().unwrap();
            assert_eq!(start - run.begin, Duration::from_millis(100) * number);
        }
        let unlimited = verifying(100, 0);
        assert_eq!(unlimited.next_start(), Some(unlimited.begin));
    }

    #[test]
    fn load_ends_after_the_number_of_completed_operations() {
        let run = verifying(3, 0);
        for (puts, reads, more) in [(1, 1, true), (1, 2, false), (3, 0, false)] {
            {
                let counts = &mut run.lock_state().counts;
                (counts.puts, counts.reads) = (puts, reads);
            }
            assert_eq!(
                run.next_start().is_some(),
                more,
                "{puts} puts, {reads} reads"
            );
        }
    }

    #[test]
    fn violation_names_key_and_member() {
        let run = verifying(1, 0);
        let member = client::create_members(&["m1:2379".to_owned()]).remove(0);
        assert!(run.check_outcome(Ok(()), 3, &member).is_ok());
        let lost = Violation::Behind { value: 1, known: 2 };
        let error = run
            .check_outcome(Err(lost), 3, &member)
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("verify/1/3 through m1:2379: the value is 1 although 2"),
            "{error}"
        );
    }

    #[test]
    fn chosen_key_is_in_the_ledger() {
        let run = verifying(1, 0);
        let state = run.lock_state();
        let mut random = Random::new(1);
        for _ in 0..100 {
            assert!(choose_key(&state, &mut random) < state.ledger.key_count());
        }
    }
}
