//! `--auto-compaction-mode` and `--auto-compaction-retention`.

use crate::flags::{CompactionMode, ServeFlags, parse_duration};
use anyhow::{Result, bail};
use std::time::Duration;

/// Retention of the automatic compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// Keeps all history: nothing is compacted automatically.
    All,
    /// Keeps the history of a time span.
    For(Duration),
    /// Keeps a number of revisions.
    Revisions(i64),
}

impl Retention {
    /// Parses the flags.
    pub fn parse(flags: &ServeFlags) -> Result<Retention> {
        let text = &flags.auto_compaction_retention;
        if text == "0" || text.is_empty() {
            return Ok(Retention::All);
        }
        match flags.auto_compaction_mode {
            CompactionMode::Periodic => {
                let kept =
                    parse_duration("auto-compaction-retention", text, Duration::from_secs(3600))?;
                Ok(if kept.is_zero() {
                    Retention::All
                } else {
                    Retention::For(kept)
                })
            }
            CompactionMode::Revision => match text.parse::<i64>() {
                Ok(count) if count >= 0 => Ok(Retention::Revisions(count)),
                _ => bail!("--auto-compaction-retention: {text:?} is not a number of revisions"),
            },
        }
    }
}
