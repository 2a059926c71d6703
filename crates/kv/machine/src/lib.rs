//! The replicated state machine: keys, leases, users, members and alarms, changed by commands from the log.
//!
//! Invariant: the same commands in the same order give the same state and the same answers on every member. What is
//! applied is visible at once and reaches the engine in the background together with its place in the log; after a
//! crash the log replays what the engine does not have.

mod apply;
mod apply_auth;
mod command;
mod machine;
mod members;
mod persist;
mod refusal;
mod rights;
mod snapshot;
mod storer;
mod tokens;

pub use command::{Command, Envelope, Login, Nothing, decode_batch, encode_into, may_forward};
pub use kv_auth::{Access, Auth, AuthError, ROOT};
pub use kv_lease::{LeaseInfo, Leases};
pub use machine::{Caller, Machine, MachineError, Options, Outcome, Place, Reply};
pub use members::{Members, NewMember};
pub use persist::{auth_row, lease_row, seed};
pub use refusal::{Code, Refusal};
pub use snapshot::{SnapshotItem, SnapshotReader};
