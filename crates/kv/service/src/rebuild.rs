//! Rebuilds an unreadable state from the log, or else from another member. The old state is kept
//! under another name.
//!
//! The log is unchanged. It contains everything that this member acknowledged or voted, so nothing
//! of that is lost. A state that is behind its log is treated in the same way; that happens if its
//! directory was removed or a rebuild was interrupted.

use crate::raft_state_machine::RaftStateMachine;
use anyhow::{Context, Result, bail};
use kv_config::{RECEIVED_DIR, STATE_DIR};
use kv_engine::{Engine, EngineError};
use kv_machine::{Machine, MachineError, Options};
use kv_raft::{PeerTls, RaftNode, StateMachine};
use kv_wal::{Contents, DataFolder, Identity};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Delay between two rounds of requests to the other members.
const AGAIN: Duration = Duration::from_secs(1);

/// Source for rebuilding a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The log contains all entries since the first.
    Log,
    /// The log was purged: another member has the missing entries.
    Members,
    /// The log was purged and there is no other member.
    Nowhere,
}

fn choose_source(purged: Option<u64>, others: bool) -> Source {
    match purged {
        None => Source::Log,
        Some(_) if others => Source::Members,
        Some(_) => Source::Nowhere,
    }
}

/// Context in which a member's state is opened.
pub(crate) struct RebuildOptions<'a> {
    pub folder: &'a DataFolder,
    pub identity: Identity,
    /// Peer URLs of the other members.
    pub others: Vec<String>,
    pub tls: &'a PeerTls,
    /// Index up to which the log was purged.
    pub purged: Option<u64>,
}

impl RebuildOptions<'_> {
    pub fn purged(contents: &Contents) -> Option<u64> {
        contents.purged.as_ref().map(|(index, _)| *index)
    }

    /// Opens the state, or creates a new one if it is damaged.
    pub async fn machine(
        &self,
        open: &(dyn Fn() -> Result<Arc<dyn Engine>, EngineError> + Sync),
        options: Options,
    ) -> Result<Arc<Machine>> {
        let opened = open()
            .map_err(MachineError::from)
            .and_then(|engine| Machine::open(engine, options.clone()));
        let machine = match opened {
            Ok(machine) => machine,
            // Only damage: after an error of the disk or its permissions, the state may still be
            // right.
            Err(error) if error.is_damage() => {
                self.set_aside(&error)?;
                Machine::open(open()?, options)?
            }
            Err(error) => return Err(error.into()),
        };
        let least = self.purged.unwrap_or_default();
        // An incomplete state is repeated from its rows later, so it is not fetched here.
        if machine.is_incomplete() || machine.applied_index() >= least {
            return Ok(machine);
        }
        // Without another member, the member would answer reads from a state with a gap.
        if choose_source(self.purged, !self.others.is_empty()) == Source::Nowhere {
            let path = self.folder.path().join(STATE_DIR);
            bail!(
                "the state in {} is behind the log, {REMEDY}",
                path.display()
            );
        }
        self.fetch(&machine, least).await?;
        Ok(machine)
    }

    fn set_aside(&self, error: &MachineError) -> Result<()> {
        let state = self.folder.path().join(STATE_DIR);
        let source = choose_source(self.purged, !self.others.is_empty());
        if source == Source::Nowhere {
            bail!("{error}; {REMEDY}");
        }
        let date = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
        let aside = state.with_file_name(format!("state-damaged-{date}"));
        std::fs::rename(&state, &aside).with_context(|| {
            format!("the damaged state can't be renamed to {}", aside.display())
        })?;
        // The new state is created at the former path.
        self.folder.create_subfolder(STATE_DIR)?;
        let from = if source == Source::Log {
            "the log"
        } else {
            "another member"
        };
        tracing::error!(
            %error,
            aside = %aside.display(),
            "the state can't be read; it is renamed, and made again from {from}. Delete the renamed directory when it is not needed any more"
        );
        Ok(())
    }

    /// Installs the state of the first member whose state is recent enough. Retries until there is
    /// one.
    async fn fetch(&self, machine: &Arc<Machine>, least: u64) -> Result<()> {
        let spool = self.folder.create_subfolder(RECEIVED_DIR)?;
        tracing::warn!("the state is behind the log; fetching it from another member");
        for round in 0.. {
            for url in &self.others {
                let identity = (self.identity.cluster, self.identity.member);
                match RaftNode::fetch_state(url, self.tls.clone(), identity, least, &spool).await {
                    Ok(Some(rows)) => return install_rows(machine, &rows).await,
                    Ok(None) => {
                        tracing::debug!(url, "the state of this member is not recent enough either")
                    }
                    Err(error) if round % 10 == 0 => {
                        tracing::warn!(url, %error, "no state from this member yet")
                    }
                    Err(error) => tracing::debug!(url, %error, "no state from this member yet"),
                }
            }
            tokio::time::sleep(AGAIN).await;
        }
        Ok(())
    }
}

const REMEDY: &str = "the log begins later than it ends, and there is no other member to get it from: restore this member from a \
                      snapshot (kvstore snapshot restore)";

async fn install_rows(machine: &Arc<Machine>, rows: &Path) -> Result<()> {
    let installed = RaftStateMachine(machine.clone(), Arc::default())
        .install_state(rows)
        .await;
    installed.map_err(|reason| {
        anyhow::anyhow!("the state of another member can't be installed: {reason}")
    })?;
    tracing::info!(entry = machine.applied_index(), "the state is there again");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_is_rebuilt_from_a_complete_log_or_from_a_member() {
        assert_eq!(choose_source(None, true), Source::Log);
        assert_eq!(choose_source(None, false), Source::Log);
        assert_eq!(choose_source(Some(7), true), Source::Members);
        assert_eq!(choose_source(Some(7), false), Source::Nowhere);
    }
}
