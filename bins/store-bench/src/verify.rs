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
pub async fn run(plan: Plan) -> Result<()> {
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
    let active = (0..CLIENTS * SLOTS).map(|_| ledger.open()).collect();
    say(&format!(
        "seed {}: {} operations on {}",
        plan.seed,
        plan.operations,
        plan.addresses.join(", ")
    ));
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
    let outcome = tokio::select! {
        outcome = everything(&run) => outcome,
        silence = watched(&run) => silence,
    };
    say(&format!(
        "{}: {}",
        if outcome.is_ok() {
            "all is well"
        } else {
            "ended"
        },
        run.told()
    ));
    outcome
}

async fn everything(run: &Arc<Run>) -> Result<()> {
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        clients.spawn(work(run.clone(), number));
    }
    all(clients).await?;
    let mut readers = JoinSet::new();
    for number in 0..CLIENTS {
        readers.spawn(read_back(run.clone(), number));
    }
    all(readers).await
}

async fn all(mut tasks: JoinSet<Result<()>>) -> Result<()> {
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// Prints progress at intervals. Returns an error if the servers have not responded for too long.
async fn watched(run: &Run) -> Result<()> {
    let mut said = run.begin;
    loop {
        sleep(Duration::from_millis(200)).await;
        if said.elapsed() >= LINE {
            said = Instant::now();
            say(&run.told());
        }
        if run.state().counts.answered.elapsed() > PATIENCE {
            let addresses = run.plan.addresses.join(", ");
            bail!(
                "no member has answered for {} s: see whether those at {addresses} run and have a leader",
                PATIENCE.as_secs()
            );
        }
    }
}

fn say(line: &str) {
    // Fails if standard error is closed.
    let _ = writeln!(std::io::stderr(), "store-bench: {line}");
}

impl Run {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told(&self) -> String {
        let state = self.state();
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
            state.ledger.keys(),
            self.begin.elapsed().as_secs_f64()
        )
    }

    fn name(&self, key: Key) -> String {
        format!("{}/{key}", self.prefix)
    }

    /// Returns the start time of the next operation, or `None` if all were started.
    fn ticket(&self) -> Option<Instant> {
        let counts = &mut self.state().counts;
        if counts.puts + counts.reads >= self.plan.operations {
            return None;
        }
        counts.begun += 1;
        let wait = (counts.begun * 1_000_000)
            .checked_div(self.plan.rate)
            .map(Duration::from_micros);
        Some(self.begin + wait.unwrap_or_default())
    }

    fn checked(&self, outcome: Result<(), Violation>, key: Key, member: &Member) -> Result<()> {
        match outcome {
            Ok(()) => {
                self.state().counts.answered = Instant::now();
                Ok(())
            }
            Err(violation) => bail!(
                "{} through {}: {violation}",
                self.name(key),
                member.address()
            ),
        }
    }
}

async fn work(run: Arc<Run>, number: usize) -> Result<()> {
    let mut random = Random::new(
        run.plan
            .seed
            .wrapping_mul(1_000)
            .wrapping_add(number as u64 + 1),
    );
    let mut members = client::members(&run.plan.addresses);
    while let Some(begin) = run.ticket() {
        sleep_until(begin).await;
        let at = client::choose(&members, &mut random).await;
        let Some(member) = members.get_mut(at) else {
            bail!("there are no endpoints")
        };
        if random.below(2) == 0 {
            put(&run, number * SLOTS + random.below(SLOTS), member).await?;
        } else {
            let key = chosen(&run.state(), &mut random);
            read(&run, key, member, |counts| counts.reads += 1).await?;
        }
    }
    Ok(())
}

/// Chooses a key that is currently written or, equally often, any key.
fn chosen(state: &State, random: &mut Random) -> Key {
    match random.below(2) {
        0 => state
            .active
            .get(random.below(state.active.len()))
            .copied()
            .unwrap_or_default(),
        _ => random.below(state.ledger.keys()),
    }
}

async fn put(run: &Run, slot: usize, member: &mut Member) -> Result<()> {
    let (key, before, value) = {
        let State { ledger, active, .. } = &mut *run.state();
        let key = active.get(slot).copied().unwrap_or_default();
        let begun = (key, ledger.before(key), ledger.next(key));
        ledger.tried(key);
        begun
    };
    match member.put(&run.name(key), value).await {
        Ok(revision) => {
            let outcome = run.state().ledger.acknowledged(key, before, revision);
            run.state().counts.puts += 1;
            run.checked(outcome, key, member)
        }
        Err(failure) => {
            let state = &mut *run.state();
            match failure {
                Failure::Unsent => {
                    state.ledger.withdrawn(key);
                    state.counts.failed += 1;
                }
                Failure::Unknown => {
                    let fresh = state.ledger.open();
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
async fn read(run: &Run, key: Key, member: &mut Member, count: fn(&mut Counts)) -> Result<bool> {
    let before = run.state().ledger.before(key);
    match member.read(&run.name(key)).await {
        Ok(found) => {
            let outcome = run.state().ledger.read(key, before, found);
            count(&mut run.state().counts);
            run.checked(outcome, key, member).map(|()| true)
        }
        Err(_) => {
            run.state().counts.failed += 1;
            Ok(false)
        }
    }
}

/// Reads one client's share of all keys through every member.
async fn read_back(run: Arc<Run>, number: usize) -> Result<()> {
    let keys = run.state().ledger.keys();
    for mut member in client::members(&run.plan.addresses) {
        for key in (number..keys).step_by(CLIENTS) {
            while !read(&run, key, &mut member, |counts| counts.read_back += 1).await? {
                member.rested().await;
            }
        }
    }
    Ok(())
}
