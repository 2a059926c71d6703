//! The record of the supervisor's process.

use crate::layout::Layout;
use crate::process::Record;

/// Name of the supervisor's own record.
pub(crate) const NAME: &str = "supervisor";

/// Returns the record of the running supervisor.
pub fn running_supervisor(layout: &Layout) -> Option<Record> {
    Record::load(&layout.record(NAME)).filter(Record::is_alive)
}
