//! Parameters of a run, chosen by its seed or by a test.

use crate::entropy::Rng;

/// A planted bug, to verify that the checks detect it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// Writes are acknowledged before they are synced.
    AcknowledgeBeforeSync,
    /// A linearizable read is served without confirming leadership.
    StaleRead,
    /// A watch event is dropped after a compaction.
    DropAtCompaction,
    /// The events of a transaction are delivered in two parts, as if of two revisions.
    SplitTransaction,
    /// A leader that was asked to transfer leadership continues to serve reads from its lease.
    LeaseAfterTransfer,
}

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Initial number of voters.
    pub members: u64,
    /// Duration of the faults in milliseconds. Afterwards everything is repaired and must settle.
    pub faults_for: u64,
    /// Number of applied entries between two snapshots.
    pub snapshot_entries: u64,
    /// Average milliseconds between two faults; 0: no faults.
    pub fault_every: u64,
    /// One in this many messages is lost; 0: none.
    pub lost_once_in: u64,
    /// Maximum delay of a message in milliseconds.
    pub longest_delay: u64,
    /// Maximum duration of a sync in milliseconds.
    pub longest_sync: u64,
    /// Maximum pause between two requests of a client in milliseconds.
    pub pause: u64,
    /// Average milliseconds between two actions of the operator; 0: none.
    pub change_every: u64,
    /// Quota of the data in bytes.
    pub quota: u64,
    /// Maximum drift of a member's clock in thousandths.
    pub drift: u64,
    /// True if members are suspended at times.
    pub suspends: bool,
    /// Milliseconds between two checkpoints of a lease.
    pub checkpoint_every: u64,
    /// Maximum TTL of a lease in seconds.
    pub longest_ttl: u64,
    /// The planted bug.
    pub plant: Option<Plant>,
}

impl Plan {
    /// Returns the parameters that a seed determines.
    pub fn new(seed: u64) -> Plan {
        let mut rng = Rng::new(seed ^ 0x6e77);
        Plan {
            change_every: *rng.pick(&[0, 150, 400, 1_000]).unwrap_or(&0),
            quota: *rng
                .pick(&[u64::MAX, u64::MAX, 28_000, 36_000])
                .unwrap_or(&u64::MAX),
            drift: *rng.pick(&[0, 50]).unwrap_or(&0),
            suspends: rng.once_in(2),
            checkpoint_every: *rng.pick(&[300_000, 300, 1_000]).unwrap_or(&1_000),
            longest_ttl: *rng.pick(&[2, 5]).unwrap_or(&2),
            ..Plan::settled(seed)
        }
    }

    /// Returns the parameters that a seed determines, without membership changes, quota or clock
    /// drift.
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
