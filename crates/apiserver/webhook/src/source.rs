//! The webhooks of all configurations, kept current by the watch cache.

use crate::conditions::ConditionCompiler;
use crate::hook::{Hook, compile_hooks};
use api_meta::Meta;
use apiserver_request::{GroupResource, ObjectEvent, Observer};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

type Hooks = Vec<Arc<Hook>>;

/// Webhooks in the order of their configurations' names.
pub struct Source {
    by_name: Mutex<BTreeMap<String, Hooks>>,
    hooks: ArcSwap<Hooks>,
    compiler: Arc<dyn ConditionCompiler>,
    skipped: HashSet<String>,
}

impl Source {
    /// Creates a source that leaves out the webhooks of these names.
    pub fn new(compiler: Arc<dyn ConditionCompiler>, skipped: &[String]) -> Self {
        Source {
            by_name: Mutex::default(),
            hooks: ArcSwap::default(),
            compiler,
            skipped: skipped.iter().cloned().collect(),
        }
    }

    /// Returns the webhooks.
    pub fn current_hooks(&self) -> Arc<Hooks> {
        self.hooks.load_full()
    }

    fn is_skipped(&self, hook: &Hook) -> bool {
        let skipped = self.skipped.contains(&hook.name);
        if skipped {
            tracing::warn!(
                webhook = hook.name,
                configuration = hook.configuration,
                "webhook is not called because of --skip-admission-webhooks"
            );
        }
        skipped
    }
}

impl Observer for Source {
    fn object_changed(&self, _: &GroupResource, event: &ObjectEvent) {
        let mut by_name = self.by_name.lock();
        match event {
            ObjectEvent::Applied(object) => {
                // Only the changed configuration is compiled.
                let hooks = compile_hooks(object, &*self.compiler)
                    .into_iter()
                    .filter(|hook| !self.is_skipped(hook))
                    .map(Arc::new)
                    .collect();
                by_name.insert(object.name().to_owned(), hooks);
            }
            ObjectEvent::Deleted(object) => {
                by_name.remove(object.name());
            }
        }
        // Under the lock, so that of two changes at once the later list is published last.
        let all = by_name.values().flatten().cloned().collect();
        self.hooks.store(Arc::new(all));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::NoConditions;
    use serde_json::{Value, json};

    fn ids(source: &Source) -> Vec<String> {
        let hooks = source.current_hooks();
        hooks.iter().map(|hook| hook.id.clone()).collect()
    }

    fn apply(source: &Source, name: &str, hooks: &[&str]) {
        let hooks: Vec<Value> = hooks.iter().map(|hook| json!({"name": hook})).collect();
        let object = json!({"metadata": {"name": name}, "webhooks": hooks});
        let resource = GroupResource::new("g", "r");
        source.object_changed(&resource, &ObjectEvent::Applied(Arc::new(object)));
    }

    #[test]
    fn webhooks_are_ordered_by_configuration_and_then_as_listed() {
        let source = Source::new(Arc::new(NoConditions), &[]);
        apply(&source, "b", &["x", "a"]);
        apply(&source, "a", &["z"]);
        assert_eq!(ids(&source), ["a/z/0", "b/x/0", "b/a/0"]);
        apply(&source, "b", &["y"]);
        assert_eq!(ids(&source), ["a/z/0", "b/y/0"]);
    }

    #[test]
    fn webhooks_of_a_deleted_configuration_are_not_called() {
        let source = Source::new(Arc::new(NoConditions), &[]);
        apply(&source, "a", &["z"]);
        let object = Arc::new(json!({"metadata": {"name": "a"}}));
        source.object_changed(&GroupResource::new("g", "r"), &ObjectEvent::Deleted(object));
        assert!(ids(&source).is_empty());
    }

    #[test]
    fn skipped_webhook_is_left_out_of_every_configuration() {
        let source = Source::new(Arc::new(NoConditions), &["x".to_owned()]);
        apply(&source, "a", &["x", "y"]);
        apply(&source, "b", &["x"]);
        assert_eq!(ids(&source), ["a/y/0"]);
    }
}
