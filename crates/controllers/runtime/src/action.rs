//! What a decision may ask for. Decisions return actions; the executor alone performs them.
//!
//! Actions are carried out in order. The first failure ends the pass and the key is tried again with
//! back-off, so a later action may rely on the earlier ones. Nothing here knows a client.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::{Value, json};

use crate::object::{Meta, Object, Target, tree};

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// Things as they should be.
    Normal,
    /// Somebody may want to look.
    Warning,
}

/// An event to record.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// The object it is about.
    pub regarding: ObjectReference,
    /// Its type.
    pub kind: EventType,
    /// Machine-readable reason.
    pub reason: String,
    /// Text; `{name}` stands for the written object's name, `{error}` for what went wrong.
    pub message: String,
}

/// Events that go with a write: one if it succeeds, one if it fails.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Notes {
    /// Recorded on success.
    pub success: Option<Note>,
    /// Recorded on failure.
    pub failure: Option<Note>,
}

/// How a write goes to the API server.
#[derive(Clone, Debug, PartialEq)]
pub enum Verb {
    /// POST to the collection.
    Create,
    /// PUT of the object.
    Update,
    /// PUT of the status subresource.
    UpdateStatus,
    /// JSON merge patch, of the named subresource where given.
    Merge(Option<&'static str>),
    /// Strategic merge patch, of the named subresource where given.
    Strategic(Option<&'static str>),
    /// DELETE with the body as options.
    Delete,
    /// POST of the body to a subresource.
    Post(&'static str),
    /// PUT of the body to a subresource.
    Put(&'static str),
}

/// Which refusals count as success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tolerate {
    /// The object is not there.
    pub absent: bool,
    /// The object is there already.
    pub exists: bool,
    /// The object has changed or is another one of the same name.
    pub conflict: bool,
    /// Any refusal at all: logged at debug level, the pass goes on.
    pub anything: bool,
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// How.
    pub verb: Verb,
    /// To what.
    pub target: Target,
    /// The object, the patch or the delete options.
    pub body: Value,
    /// Events that report it.
    pub notes: Notes,
    /// Refusals that are fine.
    pub tolerate: Tolerate,
    /// Done instead of failing when a create finds the name taken.
    pub if_exists: Vec<Action>,
}

/// A command from a decision.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// One write.
    Write(Box<Write>),
    /// Writes that do not depend on each other: sent in growing groups, ended by the first group
    /// with a failure.
    Batch(Vec<Write>),
    /// Ends the pass unless the object still exists under its UID and is not being deleted, as the API server has it:
    /// caches of two kinds are not ordered among each other.
    Confirm(Target),
    /// An event on its own.
    Event(Note),
    /// Look at the key again after this long.
    Requeue(Duration),
}

impl Write {
    /// A write of the given kind, without notes.
    pub fn new(verb: Verb, target: Target, body: Value) -> Self {
        Self { verb, target, body, notes: Notes::default(), tolerate: Tolerate::default(), if_exists: Vec::new() }
    }

    /// A create of a typed object.
    pub fn create<K: Object>(object: &K) -> Self {
        Self::new(Verb::Create, Target::of(object), tree(object))
    }

    /// A deletion of exactly this object, in the background.
    pub fn delete<K: Object>(object: &K) -> Self {
        let mut write = Self::new(Verb::Delete, Target::of(object), delete_options(object.uid(), "Background"));
        write.tolerate.absent = true;
        write.tolerate.conflict = true;
        write
    }

    /// Adds the events of success and failure about `regarding`.
    pub fn notes(mut self, regarding: &ObjectReference, success: (&str, &str), failure: (&str, &str)) -> Self {
        self.notes.success = Some(Note::normal(regarding, success.0, success.1));
        self.notes.failure = Some(Note::warning(regarding, failure.0, failure.1));
        self
    }
}

impl Note {
    /// A Normal event.
    pub fn normal(regarding: &ObjectReference, reason: &str, message: &str) -> Self {
        Self {
            regarding: regarding.clone(),
            kind: EventType::Normal,
            reason: reason.to_owned(),
            message: message.to_owned(),
        }
    }

    /// A Warning event.
    pub fn warning(regarding: &ObjectReference, reason: &str, message: &str) -> Self {
        Self { kind: EventType::Warning, ..Self::normal(regarding, reason, message) }
    }
}

/// DeleteOptions with a UID precondition.
pub fn delete_options(uid: &str, propagation: &str) -> Value {
    json!({
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
    /// A create of a typed object.
    pub fn create<K: Object>(object: &K) -> Self {
        Write::create(object).into()
    }

    /// A replacement of a typed object.
    pub fn update<K: Object>(object: &K) -> Self {
        Write::new(Verb::Update, Target::of(object), tree(object)).into()
    }

    /// A replacement of a typed object's status.
    pub fn update_status<K: Object>(object: &K) -> Self {
        Write::new(Verb::UpdateStatus, Target::of(object), tree(object)).into()
    }

    /// A deletion of exactly this object, in the background.
    pub fn delete<K: Object>(object: &K) -> Self {
        Write::delete(object).into()
    }

    /// A JSON merge patch.
    pub fn merge(target: Target, patch: Value) -> Self {
        Write::new(Verb::Merge(None), target, patch).into()
    }

    /// A strategic merge patch.
    pub fn strategic(target: Target, patch: Value) -> Self {
        Write::new(Verb::Strategic(None), target, patch).into()
    }

    /// A strategic merge patch of the status subresource.
    pub fn strategic_status(target: Target, patch: Value) -> Self {
        Write::new(Verb::Strategic(Some("status")), target, patch).into()
    }

    /// A Normal event.
    pub fn event(regarding: &ObjectReference, reason: &str, message: impl AsRef<str>) -> Self {
        Self::Event(Note::normal(regarding, reason, message.as_ref()))
    }

    /// A Warning event.
    pub fn warning(regarding: &ObjectReference, reason: &str, message: impl AsRef<str>) -> Self {
        Self::Event(Note::warning(regarding, reason, message.as_ref()))
    }

    /// Finding the object gone is fine.
    pub fn ignore_absent(self) -> Self {
        self.with(|w| w.tolerate.absent = true)
    }

    /// Finding the object there already is fine.
    pub fn ignore_existing(self) -> Self {
        self.with(|w| w.tolerate.exists = true)
    }

    /// A write that may fail without ending the pass.
    pub fn best_effort(self) -> Self {
        self.with(|w| w.tolerate.anything = true)
    }

    /// Changes the write inside, where there is one.
    pub fn with(mut self, change: impl Fn(&mut Write)) -> Self {
        match &mut self {
            Self::Write(write) => change(write),
            Self::Batch(writes) => writes.iter_mut().for_each(change),
            Self::Confirm(_) | Self::Event(_) | Self::Requeue(_) => {}
        }
        self
    }

    /// The write inside, for tests and traces.
    pub fn as_write(&self) -> Option<&Write> {
        match self {
            Self::Write(write) => Some(write),
            _ => None,
        }
    }
}

/// Actions in a form that tests read: `verb kind name` a line, batches spelled out.
pub fn describe(actions: &[Action]) -> Vec<String> {
    let one = |w: &Write| {
        let name = if w.target.name.is_empty() {
            w.body.pointer("/metadata/generateName").and_then(Value::as_str).unwrap_or_default()
        } else {
            &w.target.name
        };
        let verb = match &w.verb {
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::UpdateStatus => "status",
            Verb::Merge(None) | Verb::Strategic(None) => "patch",
            Verb::Merge(Some(sub)) | Verb::Strategic(Some(sub)) | Verb::Post(sub) | Verb::Put(sub) => sub,
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
