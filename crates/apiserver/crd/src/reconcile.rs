//! Brings status and served resources of definitions into line with what they say.

use crate::backlog::Backlog;
use crate::cleanup::Cleanup;
use crate::conditions::update_conditions;
use crate::definition::{
    GROUP, PLURAL, accepted_names, group, is_terminating, is_true, needs_cleanup,
};
use crate::names::{AcceptedNames, TakenNames, accept_names, has_all_names};
use crate::resources::build_resources;
use api_kinds::{Converter, Resource};
use api_meta::tree::{get, text};
use api_meta::{ApiError, Meta, Reason};
use apiserver_cache::InstallError;
use apiserver_registry::{Mode, Registry, Update, Write};
use apiserver_request::{GroupResource, Objects};
use base_task::{CancellationToken, Tasks};
use futures::FutureExt;
use futures::stream::{self, StreamExt};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Concurrent status writes; the store commits them together.
const AT_ONCE: usize = 32;

/// Builds the converter of a definition, if it has one.
pub type BuildConverter = Box<dyn Fn(&Value) -> Option<Arc<dyn Converter>> + Send + Sync>;

/// The parts of a definition's resources that the definition does not have.
pub struct DefinitionOptions {
    /// Builds the converters.
    pub converters: BuildConverter,
    /// Objects are written to the store as CBOR instead of JSON.
    pub stores_cbor: bool,
}

/// The definitions of a server.
pub struct Definitions {
    registry: Arc<Registry>,
    options: DefinitionOptions,
    backlog: Arc<Backlog>,
    cleanup: Arc<Cleanup>,
    synced: AtomicBool,
}

/// The state of the loop. Everything in it can be derived again from the watch cache.
#[derive(Default)]
struct Known {
    /// By name of the definition.
    names: HashMap<String, KnownNames>,
    installed: HashMap<String, Installed>,
}

struct KnownNames {
    group: String,
    accepted: Value,
    /// Has all names that it requests.
    settled: bool,
}

/// The source of the installed resources.
#[derive(Clone, PartialEq)]
struct Installed {
    group: String,
    plural: String,
    uid: String,
    /// Hash of the spec. The generation does not count changes between an absent and an empty list.
    spec: u64,
    names: Value,
    terminating: bool,
}

impl Installed {
    fn describe(definition: &Value) -> Self {
        Installed {
            group: group(definition).to_owned(),
            plural: text(accepted_names(definition), "plural").to_owned(),
            uid: definition.uid().to_owned(),
            spec: hash_text(&get(definition, "spec").to_string()),
            names: accepted_names(definition).clone(),
            terminating: is_terminating(definition),
        }
    }
}

fn hash_text(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

impl Definitions {
    /// Serves the definitions that the watch cache shows, until shutdown. `backlog` is the one of
    /// the [`TerminatingGuard`](crate::TerminatingGuard).
    pub fn start(
        registry: Arc<Registry>,
        backlog: Arc<Backlog>,
        options: DefinitionOptions,
        tasks: &Tasks,
    ) -> Arc<Self> {
        let definitions = Arc::new(Definitions {
            cleanup: Arc::new(Cleanup::new(registry.clone(), tasks.clone())),
            registry,
            options,
            backlog,
            synced: AtomicBool::new(false),
        });
        let shutdown = tasks.shutdown().clone();
        // Critical: without it, new definitions would never be served.
        tasks.spawn_critical("custom-resources", definitions.clone().run(shutdown));
        definitions
    }

    /// Returns whether the definitions that existed at the start are served.
    pub fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Relaxed)
    }

    async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let mut known = Known::default();
        let work = async {
            let caches = self.registry.caches();
            caches.wait_ready().await;
            caches.observe(&GroupResource::new(GROUP, PLURAL), self.backlog.clone());
            // All definitions, or none.
            let mut due = self.backlog.take_due();
            loop {
                self.reconcile(&mut known, due).await;
                self.synced.store(true, Ordering::Relaxed);
                due = self.backlog.wait_due().await;
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = work => {}
        }
    }

    /// Handles the definitions with these names together: one install, and concurrent writes.
    async fn reconcile(&self, known: &mut Known, due: BTreeSet<String>) {
        let resource = GroupResource::new(GROUP, PLURAL);
        let caches = self.registry.caches();
        let mut present: Vec<Arc<Value>> = Vec::new();
        let mut gone = Vec::new();
        for name in due {
            match caches.cached_object(&resource, "", &name) {
                Some(definition) => present.push(definition),
                None => gone.push(name),
            }
        }
        for name in gone {
            self.backlog.forget_failures(&name);
            if let Some(names) = known.names.remove(&name) {
                self.offer_names(known, &names.group);
            }
            self.uninstall(known, &name).await;
        }
        for definition in &present {
            known.add_names(definition);
        }
        let decided: Vec<_> = present.iter().map(|d| known.decide_names(d)).collect();
        self.install(known, &present).await;
        self.write_all(known, &present, &decided).await;
        for definition in present
            .iter()
            .filter(|definition| needs_cleanup(definition))
        {
            self.cleanup.start(definition.name(), definition.uid());
        }
    }

    /// Adds the definitions of a group that wait for names.
    fn offer_names(&self, known: &Known, group: &str) {
        for (name, names) in &known.names {
            if names.group == group && !names.settled {
                self.backlog.add_due(name);
            }
        }
    }

    async fn install(&self, known: &mut Known, present: &[Arc<Value>]) {
        let mut resources: Vec<Arc<Resource>> = Vec::new();
        let mut installs: Vec<(String, Installed, Vec<Arc<Resource>>)> = Vec::new();
        for definition in present {
            let name = definition.name();
            let wanted = Installed::describe(definition);
            let old = known.installed.get(name);
            if !is_served(definition, &wanted) || old.is_some_and(|old| *old == wanted) {
                continue;
            }
            if old.is_some_and(|old| old.uid != wanted.uid) {
                // Deleted and created again: watches of the old one must end.
                self.uninstall(known, name).await;
            }
            let converter = (self.options.converters)(definition);
            let stores_cbor = self.options.stores_cbor;
            match build_resources(definition, converter.as_ref(), stores_cbor) {
                Ok(built) if built.iter().any(|resource| resource.served) => {
                    resources.extend(built.iter().cloned());
                    installs.push((name.to_owned(), wanted, built));
                }
                Ok(_) => {
                    self.uninstall(known, name).await;
                    // Upstream establishes a definition without served versions, too.
                    known.installed.insert(name.to_owned(), wanted);
                }
                Err(error) => tracing::error!(name, %error, "the definition can't be served"),
            }
        }
        if resources.is_empty() {
            return;
        }
        let caches = self.registry.caches();
        let together = caches.install(resources).await;
        for (name, wanted, built) in installs {
            let result = match &together {
                Ok(()) => Ok(()),
                // One of them is refused, and with it all.
                Err(_) => caches.install(built).await,
            };
            match result {
                Ok(()) => drop(known.installed.insert(name, wanted)),
                Err(error) => self.report_refusal(&name, &error),
            }
        }
    }

    fn report_refusal(&self, name: &str, error: &InstallError) {
        tracing::error!(name, %error, "the resources of the definition can't be installed");
        self.backlog.retry(name);
    }

    async fn uninstall(&self, known: &mut Known, name: &str) {
        let Some(old) = known.installed.remove(name) else {
            return;
        };
        if let Err(error) = self.registry.caches().remove(&old.group, &old.plural).await {
            tracing::error!(name, %error, "failed to remove the resources of a definition");
        }
    }

    async fn write_all(
        &self,
        known: &mut Known,
        present: &[Arc<Value>],
        decided: &[Option<AcceptedNames>],
    ) {
        let mut writes = Vec::new();
        for (definition, names) in present.iter().zip(decided) {
            let wanted = Installed::describe(definition);
            // A definition whose name belongs to a built-in resource has nothing to install.
            let installed = known.installed.contains_key(definition.name())
                || api_kinds::is_built_in(&wanted.group, &wanted.plural);
            match update_conditions(definition, names.as_ref(), installed) {
                Some(new) => writes.push(self.write_one(definition.name(), new).boxed()),
                None => self.backlog.forget_failures(definition.name()),
            }
        }
        if writes.is_empty() {
            return;
        }
        let revisions: Vec<i64> = stream::iter(writes).buffered(AT_ONCE).collect().await;
        let newest = revisions.into_iter().max().unwrap_or(0);
        // The next decisions must see these, or they would give one name to two definitions.
        if let Err(error) = self.registry.caches().wait_for(newest).await {
            tracing::warn!(%error, "the watch cache is behind the status of definitions");
        }
        let groups: BTreeSet<&str> = present
            .iter()
            .zip(decided)
            .filter(|(_, names)| names.is_some())
            .map(|(definition, _)| group(definition))
            .collect();
        for group in groups {
            self.offer_names_of_others(known, group, present);
        }
    }

    /// As [`Self::offer_names`], without the definitions that were just decided.
    fn offer_names_of_others(&self, known: &Known, group: &str, decided: &[Arc<Value>]) {
        let decided: BTreeSet<&str> = decided.iter().map(|definition| definition.name()).collect();
        for (name, names) in &known.names {
            if names.group == group && !names.settled && !decided.contains(name.as_str()) {
                self.backlog.add_due(name);
            }
        }
    }

    /// Writes the status; returns the new revision, or 0.
    async fn write_one(&self, name: &str, new: Value) -> i64 {
        let Some(resource) = api_kinds::find(GROUP, "v1", PLURAL) else {
            return 0;
        };
        let mut write = Write::internal(resource, "", name);
        write.subresource = "status".into();
        let change = |_: &Value| -> Result<Value, ApiError> { Ok(new.clone()) };
        let update = Update {
            change: &change,
            replaces: true,
            mode: Mode::Full,
        };
        match self.registry.update(&mut write, &update).await {
            Ok(written) => {
                self.backlog.forget_failures(name);
                written.resource_version().parse().unwrap_or(0)
            }
            // Changed or deleted meanwhile: the watch cache will show it.
            Err(error) if matches!(error.reason, Reason::Conflict | Reason::NotFound) => 0,
            Err(error) => {
                tracing::warn!(name, %error, "failed to write the status of a definition");
                self.backlog.retry(name);
                0
            }
        }
    }
}

/// Returns whether the resources of a definition are served. As upstream, from the acceptance of its
/// names on, so that other servers are ready when it is established.
fn is_served(definition: &Value, wanted: &Installed) -> bool {
    let accepted = is_true(definition, "NamesAccepted") || is_true(definition, "Established");
    // A built-in resource of that name wins.
    accepted && !api_kinds::is_built_in(&wanted.group, &wanted.plural)
}

impl Known {
    fn add_names(&mut self, definition: &Value) {
        let names = KnownNames {
            group: group(definition).to_owned(),
            accepted: accepted_names(definition).clone(),
            settled: has_all_names(definition),
        };
        self.names.insert(definition.name().to_owned(), names);
    }

    /// Decides about the names of a definition that does not have them all, and reserves them.
    fn decide_names(&mut self, definition: &Value) -> Option<AcceptedNames> {
        let name = definition.name();
        if self.names.get(name).is_none_or(|names| names.settled) {
            return None;
        }
        let mut taken = TakenNames::default();
        for names in self.names.values().filter(|n| n.group == group(definition)) {
            taken.add_names(&names.accepted);
        }
        let accepted = accept_names(definition, &taken);
        if let Some(names) = self.names.get_mut(name) {
            names.accepted = accepted.names.clone();
        }
        Some(accepted)
    }
}
