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
                // etcd counts a bare number in hours here.
                let kept =
                    parse_duration("auto-compaction-retention", text, Duration::from_secs(3600))?;
                // A zero with a unit means the same as a bare zero; compacting everything would
                // break every watcher that resumes.
                Ok(if kept.is_zero() {
                    Retention::All
                } else {
                    Retention::For(kept)
                })
            }
            CompactionMode::Revision => match text.parse::<i64>() {
                // A negative count would compact revisions of the future.
                Ok(count) if count >= 0 => Ok(Retention::Revisions(count)),
                _ => bail!("--auto-compaction-retention: {text:?} is not a number of revisions"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::flags::Flags;
    use clap::Parser;

    fn parse(mode: &str, retention: &str) -> Result<Retention> {
        let mode = format!("--auto-compaction-mode={mode}");
        let retention = format!("--auto-compaction-retention={retention}");
        let flags = Flags::try_parse_from(["kvstore", &mode, &retention])?;
        Retention::parse(&flags.serve)
    }

    #[test]
    fn retention_is_a_span_or_a_number_of_revisions() {
        const HOUR: Duration = Duration::from_secs(3_600);
        for (mode, retention, expect) in [
            ("periodic", "0", Retention::All),
            ("periodic", "", Retention::All),
            ("periodic", "0s", Retention::All),
            ("periodic", "2", Retention::For(2 * HOUR)),
            ("periodic", "30m", Retention::For(HOUR / 2)),
            ("revision", "0", Retention::All),
            ("revision", "1000", Retention::Revisions(1_000)),
        ] {
            assert_eq!(
                parse(mode, retention).unwrap(),
                expect,
                "{mode} {retention:?}"
            );
        }
    }

    #[test]
    fn retention_of_the_other_mode_is_rejected() {
        for (mode, retention) in [
            ("periodic", "soon"),
            ("periodic", "-1h"),
            ("revision", "1h"),
            ("revision", "-1"),
        ] {
            let rejected = parse(mode, retention).unwrap_err().to_string();
            assert!(
                rejected.contains("--auto-compaction-retention"),
                "{mode}: {rejected}"
            );
        }
    }
}
