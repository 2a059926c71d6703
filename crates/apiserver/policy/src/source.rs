//! Policies with their bindings, kept current by the watch cache.

use crate::matching::MatchResources;
use api_meta::Meta;
use api_meta::tree::{get, has, text, texts};
use apiserver_request::{GroupResource, ObjectEvent, Objects, Observer};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The API group of policies.
pub const GROUP: &str = "admissionregistration.k8s.io";

/// A binding of a policy.
pub struct Binding {
    /// Name.
    pub name: String,
    /// The policy's name.
    pub policy: String,
    /// The requests that it applies to; none for all of the policy.
    pub resources: Option<MatchResources>,
    /// `paramRef`, or null.
    pub param_ref: Value,
    /// `validationActions`
    pub actions: Vec<String>,
}

impl Binding {
    fn parse(object: &Value) -> Self {
        let spec = get(object, "spec");
        let actions = texts(spec, "validationActions");
        Binding {
            name: object.name().to_owned(),
            policy: text(spec, "policyName").to_owned(),
            resources: has(spec, "matchResources")
                .then(|| MatchResources::parse(get(spec, "matchResources"))),
            param_ref: get(spec, "paramRef").clone(),
            actions: actions.into_iter().map(str::to_owned).collect(),
        }
    }
}

/// A policy that has bindings.
pub struct Hook<P> {
    /// The policy.
    pub policy: Arc<P>,
    /// The bindings by name.
    pub bindings: Vec<Arc<Binding>>,
}

/// The policies of one kind.
pub struct PolicySource<P> {
    compile: fn(&Value) -> P,
    policies: &'static str,
    state: Mutex<State<P>>,
    hooks: ArcSwap<Vec<Hook<P>>>,
}

struct State<P> {
    policies: BTreeMap<String, Arc<P>>,
    bindings: BTreeMap<String, Arc<Binding>>,
}

impl<P: Send + Sync + 'static> PolicySource<P> {
    /// Observes policies and bindings.
    pub fn observe(
        objects: &dyn Objects,
        policies: &'static str,
        bindings: &str,
        compile: fn(&Value) -> P,
    ) -> Arc<Self> {
        let source = Arc::new(PolicySource {
            compile,
            policies,
            state: Mutex::new(State {
                policies: BTreeMap::new(),
                bindings: BTreeMap::new(),
            }),
            hooks: ArcSwap::default(),
        });
        for resource in [policies, bindings] {
            objects.observe(&GroupResource::new(GROUP, resource), source.clone());
        }
        source
    }

    /// Returns the policies that have bindings, by name.
    pub fn current_hooks(&self) -> Arc<Vec<Hook<P>>> {
        self.hooks.load_full()
    }

    fn apply_policy(&self, event: &ObjectEvent) {
        match event {
            ObjectEvent::Applied(object) => {
                // Outside of the lock: compiling takes long, and the bindings of another cache need
                // not wait.
                let compiled = Arc::new((self.compile)(object));
                let mut state = self.state.lock();
                state.policies.insert(object.name().to_owned(), compiled);
            }
            ObjectEvent::Deleted(object) => {
                self.state.lock().policies.remove(object.name());
            }
        }
    }

    fn apply_binding(&self, event: &ObjectEvent) {
        let mut state = self.state.lock();
        match event {
            ObjectEvent::Applied(object) => {
                let binding = Arc::new(Binding::parse(object));
                state.bindings.insert(object.name().to_owned(), binding);
            }
            ObjectEvent::Deleted(object) => {
                state.bindings.remove(object.name());
            }
        }
    }
}

impl<P: Send + Sync + 'static> Observer for PolicySource<P> {
    fn object_changed(&self, resource: &GroupResource, event: &ObjectEvent) {
        if resource.resource == self.policies {
            self.apply_policy(event);
        } else {
            self.apply_binding(event);
        }
        // Two caches report at once: the state is read and published under one lock.
        let state = self.state.lock();
        let mut by_policy: BTreeMap<&str, Vec<Arc<Binding>>> = BTreeMap::new();
        for binding in state.bindings.values() {
            let bindings = by_policy.entry(&binding.policy).or_default();
            bindings.push(binding.clone());
        }
        let hooks = state.policies.iter().filter_map(|(name, policy)| {
            Some(Hook {
                policy: policy.clone(),
                // As upstream, a policy without bindings has no effect.
                bindings: by_policy.remove(name.as_str())?,
            })
        });
        self.hooks.store(Arc::new(hooks.collect()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apiserver_request::testing::FakeObjects;
    use serde_json::json;

    fn names(source: &PolicySource<String>) -> Vec<String> {
        let hooks = source.current_hooks();
        let describe = |hook: &Hook<String>| {
            let bindings: Vec<&str> = hook.bindings.iter().map(|b| b.name.as_str()).collect();
            format!("{}:{}", hook.policy, bindings.join(","))
        };
        hooks.iter().map(describe).collect()
    }

    fn change(source: &PolicySource<String>, resource: &str, object: Value, deleted: bool) {
        let object = Arc::new(object);
        let event = match deleted {
            true => ObjectEvent::Deleted(object),
            false => ObjectEvent::Applied(object),
        };
        source.object_changed(&GroupResource::new(GROUP, resource), &event);
    }

    fn policy(name: &str) -> Value {
        json!({"metadata": {"name": name}})
    }

    fn binding(name: &str, policy: &str) -> Value {
        json!({"metadata": {"name": name}, "spec": {"policyName": policy}})
    }

    #[test]
    fn policy_is_effective_while_it_has_a_binding() {
        let objects = FakeObjects::new([]);
        let compile = |object: &Value| object.name().to_owned();
        let source = PolicySource::observe(&objects, "policies", "bindings", compile);
        change(&source, "policies", policy("p"), false);
        assert!(names(&source).is_empty());
        change(&source, "bindings", binding("b", "p"), false);
        change(&source, "bindings", binding("a", "p"), false);
        change(&source, "bindings", binding("c", "other"), false);
        assert_eq!(names(&source), ["p:a,b"]);
        change(&source, "bindings", binding("a", "other"), false);
        assert_eq!(names(&source), ["p:b"]);
        change(&source, "policies", policy("other"), false);
        assert_eq!(names(&source), ["other:a,c", "p:b"]);
        change(&source, "policies", policy("p"), true);
        change(&source, "bindings", binding("c", "other"), true);
        assert_eq!(names(&source), ["other:a"]);
    }
}
