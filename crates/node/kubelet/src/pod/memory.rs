//! What the kubelet remembers of a pod beside what the runtime tells.

use super::Nanos;
use super::backoff::Backoff;
use std::collections::{BTreeMap, BTreeSet};

/// Why a container is not there, for its state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// What is remembered of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContainerMemory {
    /// Why the last start came to nothing.
    pub(crate) waiting: Option<Waiting>,
    /// No start before this time.
    pub(crate) not_before: Nanos,
    /// Between ends and starts.
    pub(crate) restart: Backoff,
    /// Between pulls of its image.
    pub(crate) pull: Backoff,
    /// No pull before this time.
    pub(crate) pull_until: Nanos,
    /// The instance that the three verdicts below are about.
    pub(crate) instance: String,
    /// Its postStart hook ran to its end.
    pub(crate) hooked: bool,
    /// Verdict of the startup probe.
    pub(crate) started: Option<bool>,
    /// Verdict of the readiness probe.
    pub(crate) ready: Option<bool>,
    /// Asked for by a probe or a hook: the instance must end.
    pub(crate) kill: Option<Kill>,
    /// The instance that was ended for a new one, which follows whatever the restart policy says.
    pub(crate) replaced: Option<String>,
}

/// An instance that must end while its pod goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kill {
    pub(crate) id: String,
    /// For the event.
    pub(crate) why: String,
    /// Seconds.
    pub(crate) grace: Option<i64>,
}

/// Work that is going on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    Volumes,
    Sandbox,
    /// A start or a kill of a container.
    Container(String),
}

/// Why a pod ends, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    /// What is written into the status.
    pub(crate) cause: Cause,
    /// Until when containers may take their time.
    pub(crate) deadline: Nanos,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// All containers came to their end.
    Finished,
    /// Deleted through the API.
    Deleted,
    /// No longer wanted here, and nobody to tell.
    Removed,
    /// Ended by the kubelet: reason and message of the status.
    Failed { reason: String, message: String },
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Memory {
    pub(crate) containers: BTreeMap<String, ContainerMemory>,
    pub(crate) busy: BTreeSet<Work>,
    /// Volumes are there.
    pub(crate) volumes_ready: bool,
    /// Next try after a failure.
    pub(crate) volumes_not_before: Nanos,
    pub(crate) sandbox_not_before: Nanos,
    pub(crate) ending: Option<Ending>,
    /// Why a change of resources can't be made on this node.
    pub(crate) infeasible: Option<String>,
    /// Everything ended and was freed.
    pub(crate) ended: bool,
}

impl Memory {
    pub(crate) fn of(&mut self, name: &str) -> &mut ContainerMemory {
        self.containers.entry(name.to_owned()).or_default()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&ContainerMemory> {
        self.containers.get(name)
    }

    pub(crate) fn busy_with(&self, name: &str) -> bool {
        self.busy.contains(&Work::Container(name.to_owned()))
    }

    /// The memory of an instance, if that is the one which was last looked after.
    pub(crate) fn of_instance(&self, name: &str, id: &str) -> Option<&ContainerMemory> {
        self.containers.get(name).filter(|m| m.instance == id)
    }
}
