//! The controller: caches, events and writes.

use std::collections::HashSet;
use std::sync::Arc;

use api_semantics::devices::{FINALIZER, claims_of_pod, is_allocated, known_claim_names};
use async_trait::async_trait;
use client::{Client, Error, Event};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{
    ResourceClaim, ResourceClaimConsumerReference, ResourceClaimTemplate,
};

use controllers_runtime::{Action, Cache, Drive, Executor, Meta, Queue, Setup, split_key};

use crate::claim::{Plan, is_done, owning_pod, plan_claim, reserving_pods};
use crate::pod::{PodView, reconcile_pod};

/// Name of the service account.
const NAME: &str = "resource-claim-controller";
/// Index of pods by the claims that they use.
const BY_CLAIM: &str = "resource-claim";
/// Index of pods by the templates that they name.
const BY_TEMPLATE: &str = "resource-claim-template";
/// Index of claims by the UID of their controller.
const BY_OWNER: &str = "owner";

const POD: &str = "pod:";
const CLAIM: &str = "claim:";

struct Claims {
    pods: Cache<Pod>,
    claims: Cache<ResourceClaim>,
    templates: Cache<ResourceClaimTemplate>,
}

fn pod_key(namespace: &str, name: &str) -> String {
    format!("{POD}{namespace}/{name}")
}

fn claim_key(namespace: &str, name: &str) -> String {
    format!("{CLAIM}{namespace}/{name}")
}

fn claims_used_by(pod: &Pod) -> Vec<String> {
    known_claim_names(pod)
        .map(|name| format!("{}/{name}", pod.namespace()))
        .collect()
}

fn templates_named_by(pod: &Pod) -> Vec<String> {
    let names = claims_of_pod(pod)
        .iter()
        .filter_map(|entry| entry.resource_claim_template_name.as_deref());
    names
        .map(|name| format!("{}/{name}", pod.namespace()))
        .collect()
}

fn owner_of(claim: &ResourceClaim) -> Vec<String> {
    claim
        .controller()
        .map(|owner| owner.uid.clone())
        .into_iter()
        .collect()
}

/// Returns the keys that a change of a pod affects.
fn keys_of_pod_event(event: &Event<Pod>, owned: &dyn Fn(&str) -> Vec<String>) -> Vec<String> {
    let pod = event.object();
    if claims_of_pod(pod).is_empty() {
        return Vec::new();
    }
    let deleted = matches!(event, Event::Deleted(_));
    let mut keys = Vec::new();
    if deleted || is_done(pod) {
        let names = known_claim_names(pod).map(str::to_owned);
        // Those that the status does not name as well.
        let all: HashSet<String> = names.chain(owned(pod.uid())).collect();
        keys.extend(all.iter().map(|name| claim_key(pod.namespace(), name)));
    }
    if !deleted {
        keys.push(pod_key(pod.namespace(), pod.name()));
    }
    keys
}

/// Sets up the controller of ResourceClaims.
pub fn add_resource_claim_controller(setup: &mut Setup, workers: usize) {
    let queue = Queue::new();
    let informers = &mut setup.informers;
    let claims = informers.for_kind::<ResourceClaim>();
    let claims = claims.index(BY_OWNER, owner_of).cache();
    let pods = informers.for_kind::<Pod>();
    let pods = pods
        .index(BY_CLAIM, claims_used_by)
        .index(BY_TEMPLATE, templates_named_by);
    let (owned, waiting) = (claims.clone(), queue.clone());
    let pods = pods.on_event(move |event| {
        let names = |uid: &str| {
            let all = owned.by_index(BY_OWNER, uid);
            all.iter().map(|claim| claim.name().to_owned()).collect()
        };
        add_all(&waiting, keys_of_pod_event(event, &names));
    });
    let pods = pods.cache();
    let (users, waiting) = (pods.clone(), queue.clone());
    informers
        .for_kind::<ResourceClaim>()
        .on_event(move |event| {
            let claim = event.object();
            if let Event::Applied { new, .. } = event {
                waiting.add(claim_key(new.namespace(), new.name()));
            }
            // The pass after a creation records the name in the pod's status.
            if let Some(owner) = owning_pod(claim) {
                waiting.add(pod_key(claim.namespace(), &owner.name));
            }
            add_all(&waiting, pod_keys(&users.by_index(BY_CLAIM, &claim.key())));
        });
    let (users, waiting) = (pods.clone(), queue.clone());
    let templates = informers.for_kind::<ResourceClaimTemplate>();
    let templates = templates.on_event(move |event| {
        let key = event.object().key();
        add_all(&waiting, pod_keys(&users.by_index(BY_TEMPLATE, &key)));
    });
    let templates = templates.cache();
    let logic = Claims {
        pods,
        claims,
        templates,
    };
    setup.add_driver(NAME, workers, queue, logic);
}

fn pod_keys(pods: &[Arc<Pod>]) -> Vec<String> {
    let keys = pods.iter().map(|pod| pod_key(pod.namespace(), pod.name()));
    keys.collect()
}

fn add_all(queue: &Queue, keys: Vec<String>) {
    keys.into_iter().for_each(|key| queue.add(key));
}

/// The caches, limited to a namespace.
struct NamespaceView<'a> {
    caches: &'a Claims,
    namespace: &'a str,
}

impl PodView for NamespaceView<'_> {
    fn claim(&self, name: &str) -> Option<Arc<ResourceClaim>> {
        self.caches.claims.get_by_name(self.namespace, name)
    }

    fn owned_claims(&self, uid: &str) -> Vec<Arc<ResourceClaim>> {
        let mut owned = self.caches.claims.by_index(BY_OWNER, uid);
        // A reference from another namespace names no owner, whatever its UID.
        owned.retain(|claim| claim.namespace() == self.namespace);
        owned
    }

    fn template(&self, name: &str) -> Option<Arc<ResourceClaimTemplate>> {
        self.caches.templates.get_by_name(self.namespace, name)
    }
}

#[async_trait]
impl Drive for Claims {
    async fn reconcile(&self, key: &str, executor: &Executor) -> Result<Vec<Action>, Error> {
        if let Some(key) = key.strip_prefix(POD) {
            let (namespace, _) = split_key(key);
            let view = NamespaceView {
                caches: self,
                namespace,
            };
            let pod = self.pods.get(key);
            return Ok(pod.map_or_else(Vec::new, |pod| reconcile_pod(&pod, &view)));
        }
        let claim = key.strip_prefix(CLAIM).and_then(|key| self.claims.get(key));
        match claim {
            Some(claim) => self.reconcile_claim(&claim, executor).await,
            None => Ok(Vec::new()),
        }
    }
}

impl Claims {
    async fn reconcile_claim(
        &self,
        claim: &ResourceClaim,
        executor: &Executor,
    ) -> Result<Vec<Action>, Error> {
        let mut ended = HashSet::new();
        for consumer in reserving_pods(claim) {
            if self
                .has_ended(claim.namespace(), consumer, executor)
                .await?
            {
                ended.insert(consumer.uid.clone());
            }
        }
        // If the pod is not in the cache, the garbage collector finds out whether it exists.
        let owner_done = owning_pod(claim).is_some_and(|owner| {
            let pod = self.pods.get_by_name(claim.namespace(), &owner.name);
            pod.is_some_and(|pod| pod.uid() == owner.uid && is_done(&pod))
        });
        let plan = plan_claim(claim, &ended, owner_done);
        if plan.status.is_some() || plan.releases {
            free_claim(claim, &plan, &executor.client().await?).await?;
        }
        Ok(if plan.deletes {
            vec![Action::delete(claim)]
        } else {
            Vec::new()
        })
    }

    /// Returns whether a reserving pod was deleted or has ended.
    async fn has_ended(
        &self,
        namespace: &str,
        consumer: &ResourceClaimConsumerReference,
        executor: &Executor,
    ) -> Result<bool, Error> {
        let cached = self.pods.get_by_name(namespace, &consumer.name);
        if let Some(pod) = cached.filter(|pod| pod.uid() == consumer.uid) {
            return Ok(is_done(&pod));
        }
        // The cache may not show the pod yet. Its reservation must not be removed while the
        // scheduler binds it.
        let client = executor.client().await?;
        let pods = client.namespaced::<Pod>(namespace);
        let found = pods.get_opt(&consumer.name).await?;
        Ok(found.is_none_or(|pod| pod.uid() != consumer.uid || is_done(&pod)))
    }
}

/// Writes the status, then removes the finalizer from exactly the written state: a scheduler that
/// allocates the claim in between makes the second write fail.
async fn free_claim(claim: &ResourceClaim, plan: &Plan, client: &Client) -> Result<(), Error> {
    let claims = client.namespaced::<ResourceClaim>(claim.namespace());
    let mut current = match &plan.status {
        Some(status) => claims.update_status(status).await?,
        None => claim.clone(),
    };
    if !plan.releases || is_allocated(&current) || !current.has_finalizer(FINALIZER) {
        return Ok(());
    }
    if let Some(all) = &mut current.metadata.finalizers {
        all.retain(|finalizer| finalizer != FINALIZER);
    }
    claims.update(&current).await.map(drop)
}
