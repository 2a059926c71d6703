//! The form of a kind's rules: a name rule and a function for each kind of write.

use crate::field::Errors;
use crate::metadata::NameRule;
use serde_json::Value;

pub(crate) type Create = fn(&Value, &mut Errors);
pub(crate) type Update = fn(&Value, &Value, &mut Errors);

/// The rules of a kind.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// Rule for names.
    pub name: NameRule,
    /// Validates a new object.
    pub create: Create,
    /// Validates a changed object (new, old), including the checks of `create` that upstream
    /// repeats.
    pub update: Update,
    /// Validates a write to a subresource (subresource, new, old).
    pub sub: fn(&str, &Value, &Value, &mut Errors),
}

fn accept_object(_: &Value, _: &mut Errors) {}
fn accept_change(_: &Value, _: &Value, _: &mut Errors) {}
pub(crate) fn accept_subresource(_: &str, _: &Value, _: &Value, _: &mut Errors) {}

impl Rules {
    /// Rules of kinds with metadata rules only.
    pub const PLAIN: Rules = Rules {
        name: NameRule::Subdomain,
        create: accept_object,
        update: accept_change,
        sub: accept_subresource,
    };
}
