//! The state of the loop over definitions. Everything in it can be derived again from the watch
//! cache. It holds no schema: those of hundreds of definitions would take hundreds of megabytes as
//! trees.

use crate::definition::{accepted_names, group, is_terminating};
use crate::names::{AcceptedNames, TakenNames, accept_names, has_all_names};
use crate::structure::structure_condition;
use api_kinds::Resource;
use api_meta::Meta;
use api_meta::tree::{get, text};
use api_strategy::definition::Condition;
use serde_json::Value;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// State of the definitions, by their names.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) names: HashMap<String, KnownNames>,
    pub(crate) installed: HashMap<String, Installed>,
    /// The condition of the schemas, and the hash of the spec that it was found for.
    structures: HashMap<String, (u64, Option<Condition>)>,
}

/// The accepted names of a definition.
#[derive(Clone, Debug)]
pub(crate) struct KnownNames {
    pub(crate) group: Box<str>,
    pub(crate) accepted: Value,
    /// Has all names that it requests.
    pub(crate) settled: bool,
}

impl KnownNames {
    pub(crate) fn read(definition: &Value) -> Self {
        Self {
            group: group(definition).into(),
            accepted: accepted_names(definition).clone(),
            settled: has_all_names(definition),
        }
    }
}

/// The source of the installed resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Installed {
    pub(crate) group: Box<str>,
    pub(crate) plural: Box<str>,
    pub(crate) uid: Box<str>,
    /// Hash of the spec. The generation does not count changes between an absent and an empty list.
    spec: u64,
    /// Hash of the accepted names.
    names: u64,
    terminating: bool,
}

impl Installed {
    pub(crate) fn describe(definition: &Value) -> Self {
        let names = accepted_names(definition);
        Installed {
            group: group(definition).into(),
            plural: text(names, "plural").into(),
            uid: definition.uid().into(),
            spec: hash_value(get(definition, "spec")),
            names: hash_value(names),
            terminating: is_terminating(definition),
        }
    }
}

fn hash_value(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Known {
    /// Forgets a deleted definition; returns its names.
    pub(crate) fn forget(&mut self, name: &str) -> Option<KnownNames> {
        self.structures.remove(name);
        self.names.remove(name)
    }

    pub(crate) fn add_names(&mut self, definition: &Value) {
        let names = KnownNames::read(definition);
        self.names.insert(definition.name().to_owned(), names);
    }

    /// Decides about the names of a definition that does not have them all, and reserves them.
    pub(crate) fn decide_names(&mut self, definition: &Value) -> Option<AcceptedNames> {
        let name = definition.name();
        // As upstream, there is no decision if requested and accepted names are the same.
        if self.names.get(name).is_none_or(|names| names.settled) {
            return None;
        }
        let mut taken = TakenNames::default();
        let group = group(definition);
        for names in self.names.values().filter(|names| *names.group == *group) {
            taken.add_names(&names.accepted);
        }
        let accepted = accept_names(definition, &taken);
        if let Some(names) = self.names.get_mut(name) {
            // Before the write: definitions of the same round must not get one name twice.
            names.accepted = accepted.names.clone();
        }
        Some(accepted)
    }

    /// Returns the condition of the schemas, which are parsed again only if the spec has changed.
    pub(crate) fn check_structure(
        &mut self,
        definition: &Value,
        described: &Installed,
        built: &[Arc<Resource>],
    ) -> Option<Condition> {
        if let Some((spec, condition)) = self.structures.get(definition.name())
            && *spec == described.spec
        {
            return condition.clone();
        }
        let condition = structure_condition(definition, built);
        let found = (described.spec, condition.clone());
        self.structures.insert(definition.name().to_owned(), found);
        condition
    }
}
