//! What a run is to be like: chosen by its seed, or by a test.

use crate::entropy::Rng;

/// A bug put in on purpose, to see whether it is caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// Writes are acknowledged before they are synced.
    AcknowledgeBeforeSync,
    /// A linearizable read is answered without asking whether the leader still leads.
    StaleRead,
    /// A watch event is dropped when history is compacted.
    DropAtCompaction,
    /// The events of a transaction are told in two pieces, as if of two revisions.
    SplitTransaction,
    /// Who was asked to give leadership away goes on reading from its lease.
    LeaseAfterTransfer,
}

/// Numbers of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The run's seed.
    pub seed: u64,
    /// Voters at the beginning.
    pub members: u64,
    /// Milliseconds with faults; then everything is repaired and must come to rest.
    pub faults_for: u64,
    /// Applied entries between two snapshots.
    pub snapshot_entries: u64,
    /// A fault is begun once in so many milliseconds; 0: never.
    pub fault_every: u64,
    /// One message in so many is lost; 0: none.
    pub lost_once_in: u64,
    /// Milliseconds that a message takes at most.
    pub longest_delay: u64,
    /// Milliseconds that a sync takes at most.
    pub longest_sync: u64,
    /// Milliseconds that a client waits between two requests at most.
    pub pause: u64,
    /// The operator changes the members, or moves leadership, once in about so many milliseconds; 0: never.
    pub change_every: u64,
    /// Bytes that data may take before puts are refused.
    pub quota: u64,
    /// Thousandths by which the clock of a member is fast or slow at most.
    pub drift: u64,
    /// Whether members are suspended now and then.
    pub suspends: bool,
    /// Milliseconds between two checkpoints of a lease.
    pub checkpoint_every: u64,
    /// Seconds that leases live at most.
    pub longest_ttl: u64,
    /// A bug put in on purpose.
    pub plant: Option<Plant>,
}

impl Plan {
    /// What a seed stands for.
    pub fn new(seed: u64) -> Plan {
        let mut rng = Rng::new(seed ^ 0x6e77);
        Plan {
            change_every: *rng.pick(&[0, 150, 400, 1_000]).unwrap_or(&0),
            quota: *rng.pick(&[u64::MAX, u64::MAX, 28_000, 36_000]).unwrap_or(&u64::MAX),
            drift: *rng.pick(&[0, 50]).unwrap_or(&0),
            suspends: rng.once_in(2),
            checkpoint_every: *rng.pick(&[300_000, 300, 1_000]).unwrap_or(&1_000),
            longest_ttl: *rng.pick(&[2, 5]).unwrap_or(&2),
            ..Plan::settled(seed)
        }
    }

    /// What a seed stands for with members, space and clocks that stay as they are.
    pub fn settled(seed: u64) -> Plan {
        let mut rng = Rng::new(seed ^ 0x5eed);
        let members = *rng.pick(&[1, 1, 3, 3, 3, 5]).unwrap_or(&1);
        Plan {
            seed,
            members,
            faults_for: rng.range(2_000, 6_000),
            snapshot_entries: *rng.pick(&[5, 20, 60, 10_000]).unwrap_or(&20),
            fault_every: *rng.pick(&[0, 300, 600, 1_200]).unwrap_or(&0),
            lost_once_in: *rng.pick(&[0, 0, 1_000, 100]).unwrap_or(&0),
            longest_delay: *rng.pick(&[2, 5, 20]).unwrap_or(&2),
            longest_sync: *rng.pick(&[1, 3, 10, 40]).unwrap_or(&1),
            pause: *rng.pick(&[2, 10, 30]).unwrap_or(&10),
            change_every: 0,
            quota: u64::MAX,
            drift: 0,
            suspends: false,
            checkpoint_every: 300_000,
            longest_ttl: 2,
            plant: None,
        }
    }
}
