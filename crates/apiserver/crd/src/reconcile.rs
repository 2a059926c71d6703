//! Brings status and served resources of definitions into line with what they say.

use crate::backlog::{Backlog, Due};
use crate::cleanup::Cleanup;
use crate::conditions::find_next_status;
use crate::definition::{GROUP, PLURAL, group, is_true, needs_cleanup};
use crate::known::{Installed, Known};
use crate::resources::{BuildError, build_resources};
use api_kinds::{Converter, Resource};
use api_meta::tree::set;
use api_meta::{ApiError, Meta, Reason};
use apiserver_cache::InstallError;
use apiserver_registry::{Mode, Registry, Update, Write};
use apiserver_request::{GroupResource, Objects};
use base_task::{CancellationToken, Tasks};
use futures::FutureExt;
use futures::stream::{self, StreamExt};
use serde_json::Value;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Concurrent status writes; the store commits them together. Each has several trees of a
/// definition, which take ten times the memory of its JSON.
const AT_ONCE: usize = 8;

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

/// Decision about one definition. It has no copy of the schemas, so that many can be decided
/// together.
struct Decision {
    name: String,
    uid: String,
    /// The resourceVersion that was decided about.
    version: String,
    /// The group of a definition whose names were decided.
    offered: Option<String>,
    /// The next status, if it changes.
    status: Option<Value>,
    /// The status presumes that the resources are served.
    presumes_install: bool,
    needs_cleanup: bool,
}

/// Resources to install together.
#[derive(Default)]
struct Installs {
    resources: Vec<Arc<Resource>>,
    each: Vec<(String, Installed, Vec<Arc<Resource>>)>,
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
        // Before the first list, so that each definition is decoded once for all observers.
        let resource = GroupResource::new(GROUP, PLURAL);
        let caches = definitions.registry.caches();
        caches.observe(&resource, definitions.backlog.clone());
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
            self.registry.caches().wait_ready().await;
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

    /// Handles these definitions together: one install, and concurrent writes. One definition at a
    /// time is decoded.
    async fn reconcile(&self, known: &mut Known, due: Due) {
        let caches = self.registry.caches();
        let mut present = Vec::new();
        for (name, names) in due {
            let entry = caches
                .find_cache(GROUP, PLURAL)
                .and_then(|cache| cache.get(&name));
            if entry.is_none() {
                self.forget(known, &name).await;
                continue;
            }
            // The names of all changed definitions are known before the first decision, which
            // depends on them.
            if let Some(names) = names {
                known.names.insert(name.clone(), names);
            }
            present.push(name);
        }
        let resource = GroupResource::new(GROUP, PLURAL);
        let mut decisions = Vec::new();
        let mut installs = Installs::default();
        for name in present {
            // One that was deleted meanwhile is due again.
            if let Some(definition) = caches.cached_object(&resource, "", &name) {
                known.add_names(&definition);
                let decision = self.decide(known, &definition, &mut installs).await;
                decisions.push(decision);
            }
            // Hundreds of schemas take longer than a task may run.
            tokio::task::yield_now().await;
        }
        self.install(known, installs).await;
        for decision in decisions.iter_mut().filter(|d| d.presumes_install) {
            self.check_presumption(known, decision);
        }
        // After the install: the status must not announce resources that this server does not
        // serve.
        self.write_all(known, &decisions).await;
        for decision in decisions.iter().filter(|d| d.needs_cleanup) {
            self.cleanup.start(&decision.name, &decision.uid);
        }
    }

    async fn forget(&self, known: &mut Known, name: &str) {
        self.backlog.forget_failures(name);
        if let Some(names) = known.forget(name) {
            self.offer_names(known, &names.group, &[]);
        }
        self.uninstall(known, name).await;
    }

    /// Adds the other definitions of a group that wait for names.
    fn offer_names(&self, known: &Known, group: &str, decided: &[Decision]) {
        let decided: HashSet<&str> = decided.iter().map(|d| d.name.as_str()).collect();
        for (name, names) in &known.names {
            // Upstream requeues the group as well: any of its definitions may wait for a released
            // name.
            if *names.group == *group && !names.settled && !decided.contains(name.as_str()) {
                self.backlog.add_due(name);
            }
        }
    }

    /// Decides about one definition, and adds its resources if they have to be installed.
    async fn decide(
        &self,
        known: &mut Known,
        definition: &Value,
        installs: &mut Installs,
    ) -> Decision {
        let name = definition.name();
        let names = known.decide_names(definition);
        let described = Installed::describe(definition);
        // A definition whose name belongs to a built-in resource has nothing to install.
        let is_built_in = api_kinds::is_built_in(&described.group, &described.plural);
        let (built, failure) = match self.build(known, definition, &described).await {
            Ok(built) => (built, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let structure = known.check_structure(definition, &described, &built);
        let adds = !built.is_empty();
        if adds {
            installs.resources.extend(built.iter().cloned());
            installs.each.push((name.to_owned(), described, built));
        }
        let installed = adds || is_built_in || known.installed.contains_key(name);
        let structure = structure.as_ref();
        Decision {
            name: name.to_owned(),
            uid: definition.uid().to_owned(),
            version: definition.resource_version().to_owned(),
            offered: names.is_some().then(|| group(definition).to_owned()),
            status: find_next_status(
                definition,
                names.as_ref(),
                structure,
                failure.as_ref(),
                installed,
            ),
            presumes_install: adds,
            needs_cleanup: needs_cleanup(definition),
        }
    }

    /// Builds the resources that have to be installed: none if they are, or if none is served.
    ///
    /// # Errors
    /// The definition can't be served. The resources of an earlier spec stay installed.
    async fn build(
        &self,
        known: &mut Known,
        definition: &Value,
        wanted: &Installed,
    ) -> Result<Vec<Arc<Resource>>, BuildError> {
        let name = definition.name();
        let old = known.installed.get(name);
        if !is_served(definition, wanted) || old == Some(wanted) {
            return Ok(Vec::new());
        }
        if old.is_some_and(|old| old.uid != wanted.uid) {
            // Deleted and created again: watches of the old one must end.
            self.uninstall(known, name).await;
        }
        let converter = (self.options.converters)(definition);
        // After an error there is no other attempt: only a change of the definition can repair it.
        let built = build_resources(definition, converter.as_ref(), self.options.stores_cbor)
            .inspect_err(|error| tracing::warn!(name, %error, "the definition can't be served"))?;
        if built.iter().any(|resource| resource.served) {
            return Ok(built);
        }
        self.uninstall(known, name).await;
        // Upstream establishes a definition without served versions, too.
        known.installed.insert(name.to_owned(), wanted.clone());
        Ok(Vec::new())
    }

    async fn install(&self, known: &mut Known, installs: Installs) {
        if installs.resources.is_empty() {
            return;
        }
        let caches = self.registry.caches();
        let together = caches.install(installs.resources).await;
        for (name, wanted, built) in installs.each {
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

    /// Leaves the status to the next attempt if the resources could not be installed.
    fn check_presumption(&self, known: &Known, decision: &mut Decision) {
        if !known.installed.contains_key(&decision.name) {
            decision.status = None;
        }
    }

    fn report_refusal(&self, name: &str, error: &InstallError) {
        tracing::error!(name, %error, "the resources of the definition can't be installed");
        // The watch cache shows no change after a refusal, so that only a timer leads to the next
        // attempt.
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

    async fn write_all(&self, known: &Known, decisions: &[Decision]) {
        let mut writes = Vec::new();
        for decision in decisions {
            match &decision.status {
                Some(status) => writes.push(self.write_one(decision, status).boxed()),
                // The install was refused. Forgetting its failures would reset the back-off.
                None if decision.presumes_install
                    && !known.installed.contains_key(&decision.name) => {}
                None => self.backlog.forget_failures(&decision.name),
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
        let groups: BTreeSet<&str> = decisions
            .iter()
            .filter_map(|d| d.offered.as_deref())
            .collect();
        for group in groups {
            self.offer_names(known, group, decisions);
        }
    }

    /// Writes the status; returns the new revision, or 0.
    async fn write_one(&self, decision: &Decision, status: &Value) -> i64 {
        let name = decision.name.as_str();
        let Some(resource) = api_kinds::find(GROUP, "v1", PLURAL) else {
            return 0;
        };
        let mut write = Write::internal(resource, "", name);
        write.subresource = "status".into();
        let change = |old: &Value| -> Result<Value, ApiError> {
            let mut new = old.clone();
            set(&mut new, "status", status.clone());
            // Of another version, the status may be wrong: a conflict.
            new.set_meta_str("resourceVersion", &decision.version);
            Ok(new)
        };
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

/// Returns whether the resources of a definition are served. As upstream, from the acceptance of
/// its names on, so that other servers are ready when it is established.
fn is_served(definition: &Value, wanted: &Installed) -> bool {
    let accepted = is_true(definition, "NamesAccepted") || is_true(definition, "Established");
    // A built-in resource of that name wins.
    accepted && !api_kinds::is_built_in(&wanted.group, &wanted.plural)
}
