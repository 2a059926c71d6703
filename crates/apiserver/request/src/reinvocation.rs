//! The second pass of the mutating plugins.
//!
//! A webhook or policy may change what an earlier plugin has decided about. The mutating plugins
//! then run once more. In-tree plugins run again unconditionally, webhooks only if their
//! `reinvocationPolicy` allows it and the object was changed after their call.

use serde_json::Value;
use std::collections::BTreeSet;

/// State of the passes of one request.
#[derive(Debug, Default)]
pub struct Reinvocation {
    requested: bool,
    second_pass: bool,
    /// Webhooks of the two passes.
    pub webhooks: Invocations,
    /// Mutating policies of the two passes.
    pub policies: Invocations,
}

impl Reinvocation {
    /// Requests a second pass, because a plugin has changed the object after others have run.
    pub fn request(&mut self) {
        self.requested = true;
    }

    /// Returns whether a plugin with such an effect has changed the object.
    pub fn is_requested(&self) -> bool {
        self.requested
    }

    /// Returns whether this is the second pass.
    pub fn is_second_pass(&self) -> bool {
        self.second_pass
    }

    /// Begins the second pass; returns false if there is none. There is no third one, or two
    /// webhooks that undo each other's changes would never end.
    pub fn begin_second_pass(&mut self) -> bool {
        let begins = self.requested && !self.second_pass;
        self.second_pass |= begins;
        begins
    }
}

/// Calls of one plugin's webhooks, or evaluations of its policies, in the two passes.
#[derive(Debug, Default)]
pub struct Invocations {
    invoked: BTreeSet<String>,
    due: BTreeSet<String>,
    last_output: Option<Value>,
}

impl Invocations {
    /// Records the call of a webhook that may be called again.
    pub fn record_invoked(&mut self, id: &str) {
        self.invoked.insert(id.to_owned());
    }

    /// Makes all webhooks recorded so far due in the second pass.
    pub fn require_reinvocation(&mut self) {
        self.due.append(&mut self.invoked);
    }

    /// Returns whether a webhook is due in the second pass.
    pub fn is_due(&self, id: &str) -> bool {
        self.due.contains(id)
    }

    /// Records the object as the plugin leaves it.
    pub fn record_output(&mut self, object: &Value) {
        self.last_output = Some(object.clone());
    }

    /// Returns whether other plugins have changed the object since the last output.
    pub fn is_changed_since(&self, object: &Value) -> bool {
        self.last_output.as_ref() != Some(object)
    }
}
