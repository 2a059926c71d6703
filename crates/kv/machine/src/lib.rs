//! The replicated state machine: keys, leases, users, members and alarms, changed by commands from
//! the log.
//!
//! Invariant: the same commands in the same order produce the same state and the same results on
//! every member. An applied command is visible at once. It reaches the engine in the background,
//! together with its log position. After a crash the log replays everything that the engine lacks.

mod apply;
mod apply_auth;
mod caller;
mod command;
mod engine_writer;
mod error;
mod machine;
mod members;
mod persist;
mod replicated_state;
mod rights;
mod snapshot;
mod tokens;

pub use caller::Caller;
pub use command::{Command, Envelope, Login, Nothing, decode_batch, encode_into, may_forward};
pub use error::{Code, EtcdError, MachineError};
pub use kv_auth::{Access, Auth, AuthError, ROOT};
pub use kv_lease::{LeaseInfo, Leases};
pub use machine::{Machine, Options, Outcome, Reply};
pub use members::{Members, NewMember};
pub use persist::{decode_auth_row, decode_lease_row, write_seed};
pub use replicated_state::AppliedPosition;
pub use snapshot::{SnapshotItem, SnapshotReader};
