//! `kvstore check`: verifies log and state of an unused data directory, and that they belong
//! together.
//!
//! Nothing in the directory is changed. Opening an engine writes files, so a copy of the state is
//! checked.

use crate::print_line;
use anyhow::{Context, Result, bail};
use kv_config::{INSTALLING, RECEIVED_DIR, STATE_DIR, WAL_DIR};
use kv_machine::{Machine, Options, decode_batch};
use kv_wal::{Contents, DataFolder};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const CACHE: u64 = 32 << 20;
/// Advice for a log that can't be trusted.
const LOST: &str = "restore this member from a snapshot (kvstore snapshot restore), or, in a cluster, remove it with \
                    `member remove`, empty its data folder and add it again";
/// Advice for a state that can't be read.
const REBUILD: &str =
    "start the member: it renames the state and rebuilds it from the log or from another member";

/// Summary of a log.
struct Log {
    /// Index up to which entries were purged, because the state contains them.
    purged: u64,
    last: u64,
    entries: usize,
    torn: Option<u64>,
}

/// Summary of a state.
struct State {
    /// Applied index.
    applied: u64,
    /// Set if installing a snapshot was interrupted.
    incomplete: bool,
    summary: String,
}

/// Verifies the data directory. The copy of the state is created in `work`.
pub fn check_folder(path: &Path, work: &Path) -> Result<()> {
    if !path.is_dir() {
        bail!("{} is not a directory", path.display());
    }
    let folder = DataFolder::open_existing(path)?;
    let identity = folder
        .identity()
        .with_context(|| format!("{} is not a data directory of kvstore", path.display()))?;
    print_line(&format!(
        "identity: member {:x} of cluster {:x}",
        identity.member, identity.cluster
    ))?;
    let mut damage = Vec::new();
    let log = look_at_log(&path.join(WAL_DIR));
    report_part("log", log.as_ref().map(Log::summary), &mut damage)?;
    let state = look_at_state(&path.join(STATE_DIR), work);
    report_part(
        "state",
        state.as_ref().map(|state| state.summary.clone()),
        &mut damage,
    )?;
    if let (Ok(log), Ok(state)) = (log, state) {
        let rows = path.join(RECEIVED_DIR).join(INSTALLING);
        let together =
            compare_log_and_state(&log, &state, rows.exists()).map_err(anyhow::Error::msg);
        report_part(
            "log and state",
            together.as_ref().map(Clone::clone),
            &mut damage,
        )?;
    }
    match damage.as_slice() {
        [] => Ok(()),
        parts => bail!("{} is damaged: {}", path.display(), parts.join("; ")),
    }
}

fn report_part(
    part: &str,
    found: Result<String, &anyhow::Error>,
    damage: &mut Vec<String>,
) -> Result<()> {
    match found {
        Ok(found) => print_line(&format!("{part}: {found}")),
        Err(error) => {
            damage.push(format!("{part}: {}", error_chain(error)));
            print_line(&format!("{part}: DAMAGED"))
        }
    }
}

/// Formats an error with those of its causes that its text does not contain yet.
fn error_chain(error: &anyhow::Error) -> String {
    error
        .chain()
        .map(ToString::to_string)
        .fold(String::new(), |text, cause| match text.as_str() {
            "" => cause,
            known if known.contains(&cause) => text,
            _ => format!("{text}: {cause}"),
        })
}

fn look_at_log(folder: &Path) -> Result<Log> {
    let Contents {
        purged,
        entries,
        torn,
        ..
    } = kv_wal::read_log(folder)?;
    let purged = purged.map_or(0, |(index, _)| index);
    let mut next = None;
    for (index, entry) in &entries {
        // Raft never leaves a gap, so records were lost.
        if next.is_some_and(|next| next != *index) {
            bail!("entries are missing before entry {index}; {LOST}");
        }
        next = Some(index + 1);
        let commands = kv_raft::decode_commands(*index, entry)
            .with_context(|| format!("entry {index} is malformed; {LOST}"))?;
        if commands.is_some_and(|commands| decode_batch(commands).is_none()) {
            bail!("the commands of entry {index} can't be decoded; {LOST}");
        }
    }
    if entries
        .front()
        .is_some_and(|(first, _)| *first > purged + 1)
    {
        bail!("entries are missing after entry {purged}; {LOST}");
    }
    let last = entries.back().map_or(purged, |(last, _)| *last);
    Ok(Log {
        purged,
        last,
        entries: entries.len(),
        torn,
    })
}

impl Log {
    fn summary(&self) -> String {
        let torn = self.torn.map_or(String::new(), |bytes| {
            format!(", and {bytes} bytes of a write that was never acknowledged, which the next start cuts off")
        });
        format!(
            "{} entries, from {} to {}{torn}",
            self.entries,
            self.purged + 1,
            self.last
        )
    }
}

/// A directory that is deleted on drop.
struct Copy(PathBuf);

impl Drop for Copy {
    fn drop(&mut self) {
        // Leftover files occupy space, but do no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn look_at_state(folder: &Path, work: &Path) -> Result<State> {
    if std::fs::read_dir(folder).map_or(true, |mut names| names.next().is_none()) {
        bail!("there is none in {}; {REBUILD}", folder.display());
    }
    let copy = Copy(work.join(format!("kvstore-check-{}", std::process::id())));
    copy_folder(folder, &copy.0).with_context(|| {
        format!(
            "a copy of the state can't be created in {}; choose another directory with --work-dir",
            work.display()
        )
    })?;
    let readable = || format!("{} can't be read; {REBUILD}", folder.display());
    let engine = kv_engine::open_engine(&copy.0, None, CACHE).with_context(readable)?;
    let options = Options {
        member: 0,
        max_txn_ops: 0,
        max_learners: 0,
        value_cache: 0,
        own_thread: false,
        on_store: Arc::new(|_| {}),
        token_ttl: Duration::ZERO,
        slow_apply: Duration::MAX,
    };
    let machine = Machine::open(engine, options).with_context(readable)?;
    let store = machine.store();
    let (hash, revision, compacted) = store.hash_history(0).with_context(readable)?;
    // The position begins with the index, in big endian.
    let position = machine.applied_position().position;
    let applied = position
        .get(..8)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, u64::from_be_bytes);
    let summary = format!(
        "at entry {applied}, revision {revision} (compacted at {compacted}), {} keys, hash {hash}, {} leases, {} members, \
         {} users and {} roles, authentication {}",
        store.sizes().keys,
        machine.with_leases(|leases| leases.len()),
        machine.with_members(|members| members.list().len()),
        machine.with_auth(|auth| auth.users().count()),
        machine.with_auth(|auth| auth.roles().count()),
        if machine.with_auth(|auth| auth.enabled) {
            "on"
        } else {
            "off"
        },
    );
    Ok(State {
        applied,
        incomplete: machine.is_incomplete(),
        summary,
    })
}

fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

/// Checks that the log continues where the state ends.
fn compare_log_and_state(log: &Log, state: &State, rows: bool) -> Result<String, String> {
    match state.incomplete {
        true if rows => {
            return Ok(
                "the leader's state was being installed; the next start repeats it".to_owned(),
            );
        }
        true => {
            return Err(format!(
                "the leader's state was being installed and is gone; {LOST}"
            ));
        }
        false => {}
    }
    // Entries are purged only after the engine has synced their effects.
    if state.applied < log.purged {
        return Err(format!(
            "the log begins at entry {}, and the state ends at entry {}: what is between them is missing; {LOST}",
            log.purged + 1,
            state.applied
        ));
    }
    // The log is synced before the state changes, so this never happens without a loss of synced
    // data.
    if state.applied > log.last {
        return Err(format!(
            "the state is at entry {}, and the log ends at entry {}: it has lost what was promised; {LOST}",
            state.applied, log.last
        ));
    }
    Ok(format!(
        "they belong together; {} entries are to be applied at the next start",
        log.last - state.applied
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn fits(purged: u64, last: u64, applied: u64, incomplete: bool) -> Result<String, String> {
        let log = Log {
            purged,
            last,
            entries: 0,
            torn: None,
        };
        compare_log_and_state(
            &log,
            &State {
                applied,
                incomplete,
                summary: String::new(),
            },
            false,
        )
    }

    #[test]
    fn state_must_lie_within_its_log() {
        assert_eq!(
            fits(0, 9, 4, false).unwrap_or_default(),
            "they belong together; 5 entries are to be applied at the next start"
        );
        assert!(fits(3, 3, 3, false).is_ok());
        assert!(fits(5, 9, 4, false).is_err_and(|reason| reason.contains("begins at entry 6")));
        assert!(
            fits(5, 9, 10, false).is_err_and(|reason| reason.contains("lost what was promised"))
        );
        assert!(fits(5, 9, 0, true).is_err_and(|reason| reason.contains("being installed")));
    }

    #[test]
    fn interrupted_installation_is_fine_only_with_its_rows() {
        let (log, state) = (
            Log {
                purged: 5,
                last: 9,
                entries: 4,
                torn: None,
            },
            State {
                applied: 0,
                incomplete: true,
                summary: String::new(),
            },
        );
        assert!(compare_log_and_state(&log, &state, true).is_ok());
        assert!(compare_log_and_state(&log, &state, false).is_err());
    }

    #[test]
    fn error_names_each_cause_once() {
        let error = anyhow::anyhow!("disk full")
            .context("can't write: disk full")
            .context("the log");
        assert_eq!(error_chain(&error), "the log: can't write: disk full");
    }

    #[test]
    fn directory_that_is_not_of_a_member_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in [
            (folder.path().join("missing"), "is not a directory"),
            (folder.path().to_owned(), "is not a data directory"),
        ] {
            let rejected = check_folder(&path, folder.path())
                .err()
                .map(|e| format!("{e:#}"));
            let rejected = rejected.unwrap_or_default();
            assert!(rejected.contains(text), "{rejected}");
        }
    }
}
