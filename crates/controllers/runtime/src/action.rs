//! Actions: the result of a reconcile. Reconcilers return actions; only the executor performs them.
//!
//! Actions are performed in order. The first failure stops the reconcile and the key is retried
//! with back-off, so a later action may rely on the earlier ones. This module does not know a
//! client.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::{Value, json};

use crate::object::{Meta, Object, Target, to_tree};

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// An expected event.
    Normal,
    /// A problem that may need attention.
    Warning,
}

/// An event to record.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// The object it is about.
    pub regarding: ObjectReference,
    /// Type of the event.
    pub kind: EventType,
    /// Machine-readable reason.
    pub reason: String,
    /// Text; `{name}` is replaced by the written object's name, `{error}` by the error.
    pub message: String,
}

/// Events that belong to a write: one for success, one for failure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Notes {
    /// Recorded on success.
    pub success: Option<Note>,
    /// Recorded on failure.
    pub failure: Option<Note>,
}

/// The request of a write.
#[derive(Clone, Debug, PartialEq)]
pub enum Verb {
    /// POST to the collection.
    Create,
    /// PUT of the object.
    Update,
    /// PUT of the status subresource.
    UpdateStatus,
    /// JSON merge patch, of the named subresource if given.
    Merge(Option<&'static str>),
    /// Strategic merge patch, of the named subresource if given.
    Strategic(Option<&'static str>),
    /// Server-side apply of the status subresource by the named manager, which takes over the
    /// fields of others.
    ApplyStatus(&'static str),
    /// DELETE with the body as options.
    Delete,
    /// POST of the body to a subresource.
    Post(&'static str),
    /// PUT of the body to a subresource.
    Put(&'static str),
}

/// Errors that count as success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tolerate {
    /// The object does not exist.
    pub absent: bool,
    /// The object already exists.
    pub exists: bool,
    /// The object has changed or is another one of the same name.
    pub conflict: bool,
    /// Any error: logged at debug level, and the reconcile continues.
    pub anything: bool,
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// The request.
    pub verb: Verb,
    /// The object.
    pub target: Target,
    /// The object, the patch or the delete options.
    pub body: Value,
    /// Events that report it.
    pub notes: Notes,
    /// Errors that count as success.
    pub tolerate: Tolerate,
    /// Performed instead of failing when the name of a create exists.
    pub if_exists: Vec<Action>,
}

/// A command of a reconciler.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// One write.
    Write(Box<Write>),
    /// Independent writes: sent in growing groups, stopped at the first group with a failure.
    Batch(Vec<Write>),
    /// Stops the reconcile unless the API server still has the object with its UID and without a
    /// deletion request: caches of two kinds are not ordered with each other.
    Confirm(Target),
    /// An event without a write.
    Event(Note),
    /// Reconcile the key again after this time.
    Requeue(Duration),
}

impl Write {
    /// Creates a write without events.
    pub fn new(verb: Verb, target: Target, body: Value) -> Self {
        Self {
            verb,
            target,
            body,
            notes: Notes::default(),
            tolerate: Tolerate::default(),
            if_exists: Vec::new(),
        }
    }

    /// Creates a typed object.
    pub fn create<K: Object>(object: &K) -> Self {
        Self::new(Verb::Create, Target::of(object), to_tree(object))
    }

    /// Deletes exactly this object, in the background.
    pub fn delete<K: Object>(object: &K) -> Self {
        let mut write = Self::new(
            Verb::Delete,
            Target::of(object),
            delete_options(object.uid(), "Background"),
        );
        // A conflict means that the name belongs to another UID by now: the object to delete is
        // already deleted.
        write.tolerate.absent = true;
        write.tolerate.conflict = true;
        write
    }

    /// Adds the events for success and failure, with `regarding` as their object.
    pub fn notes(
        mut self,
        regarding: &ObjectReference,
        success: (&str, &str),
        failure: (&str, &str),
    ) -> Self {
        self.notes.success = Some(Note::normal(regarding, success.0, success.1));
        self.notes.failure = Some(Note::warning(regarding, failure.0, failure.1));
        self
    }
}

impl Note {
    /// Builds a Normal event.
    pub fn normal(regarding: &ObjectReference, reason: &str, message: &str) -> Self {
        Self {
            regarding: regarding.clone(),
            kind: EventType::Normal,
            reason: reason.to_owned(),
            message: message.to_owned(),
        }
    }

    /// Builds a Warning event.
    pub fn warning(regarding: &ObjectReference, reason: &str, message: &str) -> Self {
        Self {
            kind: EventType::Warning,
            ..Self::normal(regarding, reason, message)
        }
    }
}

/// Builds DeleteOptions with a UID precondition.
pub fn delete_options(uid: &str, propagation: &str) -> Value {
    json!({
        // The precondition protects a new object of the same name, such as a StatefulSet's pod,
        // from a decision about the old one.
        "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation,
        "preconditions": { "uid": uid },
    })
}

impl From<Write> for Action {
    fn from(write: Write) -> Self {
        Self::Write(Box::new(write))
    }
}

impl Action {
    /// Creates a typed object.
    pub fn create<K: Object>(object: &K) -> Self {
        Write::create(object).into()
    }

    /// Replaces a typed object.
    pub fn update<K: Object>(object: &K) -> Self {
        Write::new(Verb::Update, Target::of(object), to_tree(object)).into()
    }

    /// Replaces a typed object's status.
    pub fn update_status<K: Object>(object: &K) -> Self {
        Write::new(Verb::UpdateStatus, Target::of(object), to_tree(object)).into()
    }

    /// Deletes exactly this object, in the background.
    pub fn delete<K: Object>(object: &K) -> Self {
        Write::delete(object).into()
    }

    /// Applies a JSON merge patch.
    pub fn merge(target: Target, patch: Value) -> Self {
        Write::new(Verb::Merge(None), target, patch).into()
    }

    /// Applies a strategic merge patch.
    pub fn strategic(target: Target, patch: Value) -> Self {
        Write::new(Verb::Strategic(None), target, patch).into()
    }

    /// Applies a strategic merge patch to the status subresource.
    pub fn strategic_status(target: Target, patch: Value) -> Self {
        Write::new(Verb::Strategic(Some("status")), target, patch).into()
    }

    /// Builds a Normal event.
    pub fn event(regarding: &ObjectReference, reason: &str, message: impl AsRef<str>) -> Self {
        Self::Event(Note::normal(regarding, reason, message.as_ref()))
    }

    /// Builds a Warning event.
    pub fn warning(regarding: &ObjectReference, reason: &str, message: impl AsRef<str>) -> Self {
        Self::Event(Note::warning(regarding, reason, message.as_ref()))
    }

    /// Makes the error "not found" count as success.
    pub fn ignore_absent(self) -> Self {
        self.with(|w| w.tolerate.absent = true)
    }

    /// Makes the error "already exists" count as success.
    pub fn ignore_existing(self) -> Self {
        self.with(|w| w.tolerate.exists = true)
    }

    /// Lets the write fail without stopping the reconcile.
    pub fn best_effort(self) -> Self {
        self.with(|w| w.tolerate.anything = true)
    }

    /// Changes the contained write, if any.
    pub fn with(mut self, change: impl Fn(&mut Write)) -> Self {
        match &mut self {
            Self::Write(write) => change(write),
            Self::Batch(writes) => writes.iter_mut().for_each(change),
            Self::Confirm(_) | Self::Event(_) | Self::Requeue(_) => {}
        }
        self
    }

    /// Returns the contained write, for tests and traces.
    pub fn as_write(&self) -> Option<&Write> {
        match self {
            Self::Write(write) => Some(write),
            _ => None,
        }
    }
}

/// Formats actions for tests: one `verb kind name` per line, with batches expanded.
pub fn describe_actions(actions: &[Action]) -> Vec<String> {
    let one = |w: &Write| {
        let name = if w.target.name.is_empty() {
            w.body
                .pointer("/metadata/generateName")
                .and_then(Value::as_str)
                .unwrap_or_default()
        } else {
            &w.target.name
        };
        let verb = match &w.verb {
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::UpdateStatus | Verb::ApplyStatus(_) => "status",
            Verb::Merge(None) | Verb::Strategic(None) => "patch",
            Verb::Merge(Some(sub))
            | Verb::Strategic(Some(sub))
            | Verb::Post(sub)
            | Verb::Put(sub) => sub,
            Verb::Delete => "delete",
        };
        format!("{verb} {} {name}", w.target.kind)
    };
    actions
        .iter()
        .flat_map(|action| match action {
            Action::Write(w) => vec![one(w)],
            Action::Batch(all) => all.iter().map(one).collect(),
            Action::Confirm(target) => vec![format!("confirm {} {}", target.kind, target.name)],
            Action::Event(n) => vec![format!("event {} {}", n.reason, n.message)],
            Action::Requeue(after) => vec![format!("requeue {}s", after.as_secs())],
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use k8s_openapi::api::core::v1::Pod;

    fn pod() -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}}))
            .unwrap()
    }

    #[test]
    fn deletion_carries_the_uid_and_tolerates_a_missing_object() {
        let action = Action::delete(&pod());
        let write = action.as_write().unwrap();
        assert_eq!(write.body["preconditions"]["uid"], "u");
        assert!(write.tolerate.absent && write.tolerate.conflict);
        assert!(!write.tolerate.exists && !write.tolerate.anything);
    }

    #[test]
    fn tolerance_is_set_on_every_write_of_a_batch() {
        let batch = Action::Batch(vec![Write::create(&pod()), Write::create(&pod())]);
        let Action::Batch(writes) = batch.ignore_existing() else {
            panic!("a batch stays a batch")
        };
        assert!(writes.iter().all(|w| w.tolerate.exists));
    }
}
