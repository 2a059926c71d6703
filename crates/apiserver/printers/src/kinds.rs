//! The table of rows: group and plural to cells. A kind that is not here shows its name and creation time.

mod core;
mod network;
mod policy;
mod storage;
mod workloads;

use crate::table::Cell;

type Row = (&'static str, &'static str, &'static [Cell]);

/// The cells of a kind.
pub(crate) fn find(group: &str, plural: &str) -> Option<&'static [Cell]> {
    let all = [core::ROWS, workloads::ROWS, network::ROWS, storage::ROWS, policy::ROWS];
    all.into_iter().flatten().find(|(g, p, _)| *g == group && *p == plural).map(|(_, _, cells)| *cells)
}
