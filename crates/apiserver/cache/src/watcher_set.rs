//! The watchers of a kind, indexed by what they select.
//!
//! Each watcher is registered under the one requirement of its selection that the fewest objects
//! tend to meet: a key, a field, a label, a namespace, or none. An event visits the watchers that
//! are registered under a value of the object before or after the change, and no others.

use crate::attribute::{Attribute, required_values};
use crate::watcher::Watcher;
use crate::{CacheEvent, Entry, SharedFrames};
use std::collections::HashMap;
use std::sync::Arc;

/// Number of added watchers below which closed ones are not removed.
const MIN_ADDED: usize = 64;

type Group = Vec<Arc<Watcher>>;
type GroupsByValue = HashMap<Box<str>, Group>;

/// The watchers of one kind.
#[derive(Debug, Default)]
pub(crate) struct WatcherSet {
    unselective: Group,
    by_key: GroupsByValue,
    by_namespace: GroupsByValue,
    /// By the field's name, then by its value.
    by_field: HashMap<Box<str>, GroupsByValue>,
    /// By the label's key, then by its value.
    by_label: HashMap<Box<str>, GroupsByValue>,
    /// Watchers that were added since closed ones were removed.
    added: usize,
    /// Watchers that were open then.
    open: usize,
    events: u64,
}

impl WatcherSet {
    /// Returns whether no watcher was ever added, or all were closed at once.
    pub(crate) fn is_empty(&self) -> bool {
        let maps = [&self.by_key, &self.by_namespace];
        self.unselective.is_empty()
            && maps.iter().all(|map| map.is_empty())
            && self.by_field.is_empty()
            && self.by_label.is_empty()
    }

    /// Adds a watcher of a kind of namespaced or cluster scope.
    pub(crate) fn add_watcher(&mut self, watcher: Watcher, is_namespaced: bool) {
        // Events remove the closed watchers that they visit. The others would accumulate.
        if self.added >= self.open + MIN_ADDED {
            self.remove_closed();
        }
        self.added += 1;
        let watcher = Arc::new(watcher);
        let selection = watcher.selection();
        let scope = selection.key_scope(is_namespaced);
        if scope.is_key {
            return push_watcher(&mut self.by_key, &scope.prefix, &watcher);
        }
        // A requirement without values is never met, and the watcher must be registered to stay
        // open.
        let required = required_values(selection)
            .into_iter()
            .find(|required| !required.values.is_empty());
        if let Some(required) = required {
            let groups = match required.attribute {
                Attribute::Field(name) => self.by_field.entry(name).or_default(),
                Attribute::Label(key) => self.by_label.entry(key).or_default(),
            };
            for value in required.values {
                push_watcher(groups, value, &watcher);
            }
            return;
        }
        match scope.prefix.strip_suffix('/') {
            Some(namespace) => push_watcher(&mut self.by_namespace, namespace, &watcher),
            None => self.unselective.push(watcher),
        }
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        let groups = [&self.by_key, &self.by_namespace].into_iter();
        let groups = groups
            .chain(self.by_field.values())
            .chain(self.by_label.values());
        self.unselective.len()
            + groups
                .flat_map(HashMap::values)
                .map(Vec::len)
                .sum::<usize>()
    }

    /// Removes all watchers, which ends their streams.
    pub(crate) fn close_all(&mut self) {
        *self = WatcherSet {
            events: self.events,
            ..WatcherSet::default()
        };
    }

    /// Returns whether an open watcher may select the entry.
    pub(crate) fn is_watched(&mut self, entry: &Entry) -> bool {
        let mut found = false;
        self.visit_groups(&[entry], &mut |group| {
            found = found || group.iter().any(|watcher| watcher.is_open());
        });
        found
    }

    /// Sends an event to the watchers that select it, and removes those that are closed or too
    /// slow.
    pub(crate) fn deliver_event(&mut self, event: &CacheEvent) {
        self.events += 1;
        let number = self.events;
        let states = [event.old.as_deref(), event.new.as_deref()];
        let states: Vec<&Entry> = states.into_iter().flatten().collect();
        let frames = Arc::new(SharedFrames::default());
        self.visit_groups(&states, &mut |group| {
            group.retain(|watcher| watcher.deliver(event, number, &frames));
        });
    }

    /// Visits the watchers that may select one of the states of an object.
    fn visit_groups(&mut self, states: &[&Entry], visit: &mut dyn FnMut(&mut Group)) {
        let Some(any) = states.first() else {
            return;
        };
        visit(&mut self.unselective);
        visit_group(&mut self.by_key, &any.key, visit);
        visit_group(&mut self.by_namespace, any.namespace(), visit);
        for entry in states {
            for (name, groups) in &mut self.by_field {
                // An absent field equals its zero value.
                visit_group(groups, entry.field(name).unwrap_or_default(), visit);
            }
            if self.by_label.is_empty() {
                continue;
            }
            for (key, value) in entry.labels() {
                if let Some(groups) = self.by_label.get_mut(key) {
                    visit_group(groups, value, visit);
                }
            }
        }
    }

    fn remove_closed(&mut self) {
        let mut open = 0;
        let mut keep_open = |group: &mut Group| {
            group.retain(|watcher| watcher.is_open());
            open += group.len();
            !group.is_empty()
        };
        keep_open(&mut self.unselective);
        self.by_key.retain(|_, group| keep_open(group));
        self.by_namespace.retain(|_, group| keep_open(group));
        for by_value in [&mut self.by_field, &mut self.by_label] {
            by_value.retain(|_, groups| {
                groups.retain(|_, group| keep_open(group));
                !groups.is_empty()
            });
        }
        (self.open, self.added) = (open, 0);
    }
}

fn push_watcher(groups: &mut GroupsByValue, value: &str, watcher: &Arc<Watcher>) {
    groups
        .entry(value.into())
        .or_default()
        .push(watcher.clone());
}

fn visit_group(groups: &mut GroupsByValue, value: &str, visit: &mut dyn FnMut(&mut Group)) {
    if let Some(group) = groups.get_mut(value) {
        visit(group);
    }
}
