//! Usage of ResourceQuotas, recounted after objects are deleted.
//!
//! Admission adds the usage of a created object with the write. This controller reduces usage:
//! after deletions, when pods terminate, and when a quota itself changes.
//!
//! As upstream, a count may be too low: a charge comes before its object, and the cache of quotas
//! may be newer than the others. A write that is charged after the count makes the controller's
//! status a conflict, but an earlier charge can be lost until the next count. So a count that
//! changes the usage is followed by another one.

mod usage;

use std::collections::BTreeMap;
use std::time::Duration;

use api_semantics::quota::pod_usage;
use async_trait::async_trait;
use client::{Client, Error, Event};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota, Service};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;

use controllers_runtime::discovery;
use controllers_runtime::{Action, Cache, Deletions, Drive, Executor, Meta, Queue, Setup, pods};

/// Delay of another count after one that has changed the usage, or has lacked some resources.
const RECOUNT_DELAY: Duration = Duration::from_secs(10);

struct Quotas {
    quotas: Cache<ResourceQuota>,
    pods: Cache<Pod>,
    services: Cache<Service>,
    claims: Cache<PersistentVolumeClaim>,
    client: Client,
}

/// Sets up the quota controller.
pub fn add_quota_controller(setup: &mut Setup, workers: usize, deletions: &Deletions) {
    let queue = Queue::new();
    let quotas = watch_quotas(setup, &queue);
    let requeue = NamespaceRequeue {
        quotas: quotas.clone(),
        queue: queue.clone(),
    };
    let driver = Quotas {
        pods: watch_pods(setup, requeue.clone()),
        services: watch_services(setup, requeue.clone()),
        claims: watch_claims(setup, requeue.clone()),
        client: setup.client.clone(),
        quotas,
    };
    watch_deletions(deletions, requeue);
    setup.add_driver("resourcequota-controller", workers, queue, driver);
}

/// The queue of quotas, with the quotas of each namespace.
#[derive(Clone)]
struct NamespaceRequeue {
    quotas: Cache<ResourceQuota>,
    queue: Queue,
}

impl NamespaceRequeue {
    fn requeue(&self, namespace: &str) {
        for quota in self.quotas.in_namespace(namespace).iter() {
            self.queue.add(quota.key());
        }
    }

    fn requeue_all(&self) {
        for quota in self.quotas.list() {
            self.queue.add(quota.key());
        }
    }
}

fn watch_quotas(setup: &mut Setup, queue: &Queue) -> Cache<ResourceQuota> {
    let waiting = queue.clone();
    let quotas = setup
        .informers
        .for_kind::<ResourceQuota>()
        .index_namespace()
        .on_event(move |event| {
            let Event::Applied { old, new } = event else {
                return;
            };
            if old.as_ref().is_none_or(|o| o.spec != new.spec) || is_status_incomplete(new) {
                waiting.add(new.key());
            }
        });
    quotas.cache()
}

/// Watches pods. Admission charges what is created, so only events that free usage enqueue quotas:
/// the end of a pod, and the end of its resize.
fn watch_pods(setup: &mut Setup, requeue: NamespaceRequeue) -> Cache<Pod> {
    let pods = setup
        .informers
        .for_kind::<Pod>()
        .index_namespace()
        .on_event(move |event| {
            if frees_pod_usage(event) {
                requeue.requeue(event.object().namespace());
            }
        });
    pods.cache()
}

fn watch_services(setup: &mut Setup, requeue: NamespaceRequeue) -> Cache<Service> {
    let services = setup
        .informers
        .for_kind::<Service>()
        .index_namespace()
        .on_event(move |event| {
            if frees_service_usage(event) {
                requeue.requeue(event.object().namespace());
            }
        });
    services.cache()
}

fn watch_claims(setup: &mut Setup, requeue: NamespaceRequeue) -> Cache<PersistentVolumeClaim> {
    let claims = setup
        .informers
        .for_kind::<PersistentVolumeClaim>()
        .index_namespace()
        .on_event(move |event| {
            if let Event::Deleted(claim) = event {
                requeue.requeue(claim.namespace());
            }
        });
    claims.cache()
}

/// Follows deletions of all kinds, which free what `count/` resources limit.
fn watch_deletions(deletions: &Deletions, requeue: NamespaceRequeue) {
    let in_gaps = requeue.clone();
    deletions.subscribe(move |_, _, namespace| requeue.requeue(namespace));
    deletions.subscribe_gaps(move || in_gaps.requeue_all());
}

/// Returns whether a pod ended or uses another amount.
fn frees_pod_usage(event: &Event<Pod>) -> bool {
    match event {
        Event::Deleted(_) => true,
        Event::Applied {
            old: Some(old),
            new,
        } => pods::is_terminal(new) && !pods::is_terminal(old) || pod_usage(new) != pod_usage(old),
        Event::Applied { old: None, .. } => false,
    }
}

fn frees_service_usage(event: &Event<Service>) -> bool {
    match event {
        Event::Deleted(_) => true,
        // A change of the type or of the ports may free node ports and load balancers.
        Event::Applied { old, new } => old.as_ref().is_some_and(|o| o.spec != new.spec),
    }
}

/// Returns whether the status lacks a limit or a count.
fn is_status_incomplete(quota: &ResourceQuota) -> bool {
    let hard = quota
        .spec
        .as_ref()
        .and_then(|s| s.hard.clone())
        .unwrap_or_default();
    let status = quota.status.clone().unwrap_or_default();
    let used = status.used.unwrap_or_default();
    status.hard.unwrap_or_default() != hard || hard.keys().any(|k| !used.contains_key(k))
}

#[async_trait]
impl Drive for Quotas {
    async fn reconcile(&self, key: &str, _executor: &Executor) -> Result<Vec<Action>, Error> {
        let Some(quota) = self.quotas.get(key) else {
            return Ok(Vec::new());
        };
        let namespace = quota.namespace();
        let hard = quota
            .spec
            .as_ref()
            .and_then(|s| s.hard.clone())
            .unwrap_or_default();
        let objects = usage::NamespaceObjects {
            pods: self.pods.in_namespace(namespace),
            services: self.services.in_namespace(namespace),
            claims: self.claims.in_namespace(namespace),
        };
        // The count comes from the caches and not from the old status: it corrects what admission
        // charged for creates that failed later.
        let mut used = usage::compute_usage(&quota, &objects, Timestamp::now());
        let missing: Vec<_> = hard
            .keys()
            .filter(|name| !used.contains_key(*name))
            .cloned()
            .collect();
        let counts = count_objects(&self.client, namespace, missing).await?;
        for (name, error) in &counts.failures {
            tracing::warn!(quota = key, %name, error, "the objects of a quota could not be counted");
        }
        let is_partial = !counts.failures.is_empty();
        add_counts(&mut used, counts, &quota);
        let mut actions = update_usage(&quota, hard, used);
        if is_partial {
            actions.push(Action::Requeue(RECOUNT_DELAY));
        }
        Ok(actions)
    }
}

/// The counts of the resources of a quota.
#[derive(Debug, Default)]
pub struct ObjectCounts {
    /// Objects of each resource.
    pub counts: Vec<(String, Amount)>,
    /// Resources that could not be counted, for instance of an extension server that is down.
    pub failures: Vec<(String, String)>,
}

/// Counts the objects of each plain or `count/` resource; a name that counts nothing is left out.
///
/// # Errors
/// The API server does not answer.
pub async fn count_objects(
    client: &Client,
    namespace: &str,
    names: Vec<String>,
) -> Result<ObjectCounts, Error> {
    let names: Vec<_> = names
        .into_iter()
        .filter(|name| usage::parse_counted_resource(name).is_some())
        .collect();
    if names.is_empty() {
        return Ok(ObjectCounts::default());
    }
    let found = discovery::discover_resources(client).await?;
    let mut counts = ObjectCounts::default();
    for name in names {
        let Some((plural, group)) = usage::parse_counted_resource(&name) else {
            continue;
        };
        let mut all = found.resources.iter().map(|served| &served.resource);
        let count = match all.find(|r| r.plural == plural && r.group == group && r.namespaced) {
            Some(resource) => client.metadata(resource, Some(namespace)).count().await,
            // Its objects exist, although nothing lists them now: zero would lift the limit.
            None if found.has_failed_version(group) => {
                let why = "discovery of the group failed".to_owned();
                counts.failures.push((name, why));
                continue;
            }
            // A resource that is not served, for instance of a deleted CRD, has no objects and must
            // not block the other counts.
            None => Ok(0),
        };
        match count {
            Ok(count) => counts.counts.push((name, Amount(count.to_string()))),
            Err(error) => counts.failures.push((name, error.to_string())),
        }
    }
    Ok(counts)
}

/// Adds the counts to the usage; what could not be counted keeps its last value.
fn add_counts(used: &mut BTreeMap<String, Amount>, counts: ObjectCounts, quota: &ResourceQuota) {
    used.extend(counts.counts);
    let last = quota.status.as_ref().and_then(|s| s.used.as_ref());
    for (name, _) in counts.failures {
        if let Some(amount) = last.and_then(|used| used.get(&name)) {
            used.insert(name, amount.clone());
        }
    }
}

fn update_usage(
    quota: &ResourceQuota,
    hard: BTreeMap<String, Amount>,
    used: BTreeMap<String, Amount>,
) -> Vec<Action> {
    let mut fresh = quota.clone();
    let status = fresh.status.get_or_insert_default();
    status.hard = Some(hard);
    status.used = Some(used);
    // Each status write makes admission read the quota again, so equal usage is not written.
    if fresh.status == quota.status {
        return Vec::new();
    }
    let mut actions = vec![Action::update_status(&fresh)];
    // Objects that were charged and not shown yet are counted then; nothing is charged before the
    // first count. Upstream counts all again every five minutes.
    if quota.status.as_ref().is_some_and(|s| s.used.is_some()) {
        actions.push(Action::Requeue(RECOUNT_DELAY));
    }
    actions
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::{Value, json};

    fn quota(hard: Value, status: Value) -> ResourceQuota {
        serde_json::from_value(json!({"metadata": {"name": "q", "namespace": "n"},
            "spec": {"hard": hard}, "status": status}))
        .unwrap()
    }

    #[test]
    fn status_is_incomplete_until_it_has_every_limit_and_count() {
        for (status, expect) in [
            (json!(null), true),
            (json!({"hard": {"pods": "2"}}), true),
            (json!({"hard": {"pods": "1"}, "used": {"pods": "0"}}), true),
            (json!({"hard": {"pods": "2"}, "used": {"pods": "0"}}), false),
        ] {
            let quota = quota(json!({"pods": "2"}), status.clone());
            assert_eq!(is_status_incomplete(&quota), expect, "{status}");
        }
    }

    #[test]
    fn failed_count_keeps_its_last_value_and_blocks_no_other() {
        let quota = quota(
            json!({"count/a.x": "5", "count/b.y": "5", "count/c.y": "5"}),
            json!({"used": {"count/a.x": "1", "count/b.y": "3"}}),
        );
        let failed = |name: &str| (name.to_owned(), "down".to_owned());
        let counts = ObjectCounts {
            counts: vec![("count/a.x".to_owned(), Amount("2".to_owned()))],
            failures: vec![failed("count/b.y"), failed("count/c.y")],
        };
        let mut used = BTreeMap::new();
        add_counts(&mut used, counts, &quota);
        let amount = |name: &str| used.get(name).map(|amount| amount.0.as_str());
        assert_eq!(amount("count/a.x"), Some("2"));
        assert_eq!(amount("count/b.y"), Some("3"));
        assert_eq!(amount("count/c.y"), None);
    }

    #[test]
    fn usage_is_written_and_counted_again_only_if_it_has_changed() {
        let hard = BTreeMap::from([("pods".to_owned(), Amount("2".to_owned()))]);
        let used = BTreeMap::from([("pods".to_owned(), Amount("1".to_owned()))]);
        let current = quota(
            json!({"pods": "2"}),
            json!({"hard": {"pods": "2"}, "used": {"pods": "1"}}),
        );
        assert!(update_usage(&current, hard.clone(), used.clone()).is_empty());
        let new = quota(json!({"pods": "2"}), json!(null));
        let is_counted_again = |quota: &ResourceQuota| {
            let actions = update_usage(quota, hard.clone(), used.clone());
            assert!(matches!(actions.first(), Some(Action::Write(_))));
            matches!(actions.get(1), Some(Action::Requeue(RECOUNT_DELAY)))
        };
        assert!(!is_counted_again(&new));
        let old = quota(json!({"pods": "2"}), json!({"used": {"pods": "2"}}));
        assert!(is_counted_again(&old));
    }
}
