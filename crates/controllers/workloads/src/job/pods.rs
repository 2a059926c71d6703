//! Creates and deletes a Job's pods.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use serde_json::json;

use controllers_runtime::{Action, Meta, Target, Write, object_reference, pods as pod_state};

use super::count::Tally;
use super::failures::{self, Failures};
use super::indexes::{INDEX, Indexes, completion_index};
use super::retry;
use super::view::{TRACKING, View};
use crate::template;

/// Maximum number of creations in one reconcile.
const BURST: usize = 500;

/// The result of creating and deleting pods.
#[derive(Default)]
pub struct Moved {
    /// Number of active pods once the actions are performed.
    pub active: usize,
    /// Creations and deletions.
    pub actions: Vec<Action>,
    /// Requeue delay.
    pub requeue: Option<Duration>,
}

/// Brings the number of active pods to the desired number.
pub fn manage_pods(view: &View<'_>, tally: &Tally, indexes: Option<&Indexes>) -> Moved {
    let active = view.active_pods();
    if view.is_suspended() {
        // A suspended Job continues later with its numbers, so the pods that it stops are not
        // counted.
        return Moved {
            active: 0,
            actions: stop_pods(view, &active, true),
            requeue: None,
        };
    }
    let wanted = desired_pods(view, tally, indexes, active.len());
    let useless = find_useless_pods(view, indexes, &active);
    let surplus = (active.len() - useless.len()).saturating_sub(wanted);
    if surplus > 0 || !useless.is_empty() {
        let gone = select_removals(&active, &useless, surplus);
        let left = active.len() - gone.len();
        return Moved {
            active: left,
            actions: stop_pods(view, &gone, true),
            requeue: None,
        };
    }
    // A terminating pod still runs. Its replacement waits, otherwise parallelism would be exceeded.
    let waiting = if view.replaces_only_failed() {
        view.count_terminating()
    } else {
        0
    };
    let missing = wanted.saturating_sub(active.len() + waiting).min(BURST);
    if missing == 0 {
        return Moved {
            active: active.len(),
            ..Moved::default()
        };
    }
    create_pods(view, indexes, active.len(), missing)
}

fn desired_pods(view: &View<'_>, tally: &Tally, indexes: Option<&Indexes>, active: usize) -> usize {
    let Some(completions) = view.completions() else {
        // A work queue with a success starts no further pods.
        return if tally.succeeded > 0 {
            active.min(view.parallelism())
        } else {
            view.parallelism()
        };
    };
    // A failed index needs no further pods, although it never completes.
    let given_up = indexes.map_or(0, |i| i.failed.len());
    completions
        .saturating_sub(tally.succeeded + given_up)
        .min(view.parallelism())
}

/// Returns pods whose index is complete, out of range or used twice.
fn find_useless_pods(
    view: &View<'_>,
    indexes: Option<&Indexes>,
    active: &[Arc<Pod>],
) -> Vec<Arc<Pod>> {
    let Some(indexes) = indexes else {
        return Vec::new();
    };
    let total = view.completions().unwrap_or(0);
    let mut seen = BTreeSet::new();
    let idle = |p: &&Arc<Pod>| {
        let number = completion_index(p).filter(|i| {
            *i < total && !indexes.succeeded.contains(*i) && !indexes.failed.contains(*i)
        });
        // A lagging cache may have led to two pods of one index: the first one stays.
        number.is_none_or(|i| !seen.insert(i))
    };
    active.iter().filter(idle).cloned().collect()
}

fn select_removals(active: &[Arc<Pod>], useless: &[Arc<Pod>], surplus: usize) -> Vec<Arc<Pod>> {
    let gone: HashSet<&str> = useless.iter().map(|p| p.uid()).collect();
    let mut rest: Vec<_> = active
        .iter()
        .filter(|p| !gone.contains(p.uid()))
        .cloned()
        .collect();
    // Pods that have done the least are removed first: unbound, not ready, young.
    rest.sort_by_key(|p| {
        (
            !pod_state::node_name(p).is_empty(),
            pod_state::is_ready(p),
            std::cmp::Reverse(p.created_at()),
        )
    });
    useless
        .iter()
        .cloned()
        .chain(rest.into_iter().take(surplus))
        .collect()
}

fn create_pods(view: &View<'_>, indexes: Option<&Indexes>, active: usize, missing: usize) -> Moved {
    let mut moved = Moved {
        active,
        ..Moved::default()
    };
    let per_index = view.spec.backoff_limit_per_index.is_some();
    // With a limit per index each index has a back-off of its own, below.
    let delay = if per_index {
        Duration::ZERO
    } else {
        retry::pod_delay(view)
    };
    if !delay.is_zero() {
        moved.requeue = Some(delay);
        return moved;
    }
    let made = match indexes {
        None => std::iter::repeat_with(|| build_pod(view, None, Failures::default()))
            .take(missing)
            .collect(),
        Some(indexes) => {
            let latest = if per_index {
                retry::latest_by_index(view)
            } else {
                HashMap::new()
            };
            let due = indexes.pending_indexes(view).filter_map(|number| {
                let (wait, failures) = retry::index_delay(view, latest.get(&number).copied());
                if wait.is_zero() {
                    return Some(build_pod(view, Some(number), failures));
                }
                moved.requeue = Some(moved.requeue.map_or(wait, |w| w.min(wait)));
                None
            });
            due.take(missing).collect::<Vec<_>>()
        }
    };
    moved.active += made.len();
    let about = object_reference(view.job);
    let note = |pod: Pod| {
        Write::create(&pod).notes(
            &about,
            ("SuccessfulCreate", "Created pod: {name}"),
            ("FailedCreate", "Error creating: {error}"),
        )
    };
    let writes: Vec<_> = made.into_iter().map(note).collect();
    if !writes.is_empty() {
        moved.actions.push(Action::Batch(writes));
    }
    moved
}

fn build_pod(view: &View<'_>, number: Option<usize>, failures: Failures) -> Pod {
    // The finalizer keeps a terminated pod until it is counted, even if it is deleted by another
    // client before.
    let mut pod = template::build_pod(view.job, &view.spec.template);
    pod.metadata
        .finalizers
        .get_or_insert_default()
        .push(TRACKING.to_owned());
    let Some(number) = number else { return pod };
    let name = view.job.name();
    pod.metadata.generate_name = Some(format!("{name}-{number}-"));
    pod.metadata
        .labels
        .get_or_insert_default()
        .insert(INDEX.to_owned(), number.to_string());
    let notes = pod.metadata.annotations.get_or_insert_default();
    notes.insert(INDEX.to_owned(), number.to_string());
    if view.spec.backoff_limit_per_index.is_some() {
        notes.insert(failures::COUNTED.to_owned(), failures.counted.to_string());
        if failures.ignored > 0 {
            notes.insert(failures::IGNORED.to_owned(), failures.ignored.to_string());
        }
    }
    if let Some(spec) = &mut pod.spec {
        // With a headless Service the pods of an Indexed Job find each other by this name.
        spec.hostname = Some(format!("{name}-{number}"));
        let inits = spec.init_containers.iter_mut().flatten();
        inits.chain(&mut spec.containers).for_each(tell_index);
    }
    pod
}

fn tell_index(container: &mut Container) {
    const NAME: &str = "JOB_COMPLETION_INDEX";
    let env = container.env.get_or_insert_default();
    // A variable of the template takes precedence, as upstream.
    if env.iter().any(|v| v.name == NAME) {
        return;
    }
    let field = ObjectFieldSelector {
        api_version: None,
        field_path: format!("metadata.labels['{INDEX}']"),
    };
    env.push(EnvVar {
        name: NAME.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(field),
            ..EnvVarSource::default()
        }),
    });
}

/// Deletes pods. With `uncounted` the finalizer is removed first, so that they are not counted.
pub fn stop_pods(view: &View<'_>, gone: &[Arc<Pod>], uncounted: bool) -> Vec<Action> {
    let mut actions = Vec::new();
    // Before the deletion: a pod that ended with the finalizer would be counted as a failure.
    if uncounted {
        actions.extend(release_pods(gone.iter()));
    }
    let about = object_reference(view.job);
    let note = |pod: &Arc<Pod>| {
        Write::delete(pod.as_ref()).notes(
            &about,
            ("SuccessfulDelete", "Deleted pod: {name}"),
            ("FailedDelete", "Error deleting: {error}"),
        )
    };
    let writes: Vec<_> = gone.iter().map(note).collect();
    actions.extend((!writes.is_empty()).then_some(Action::Batch(writes)));
    actions
}

/// Removes the tracking finalizer from pods that have it.
pub fn release_pods<'p>(pods: impl Iterator<Item = &'p Arc<Pod>>) -> Option<Action> {
    let writes: Vec<_> = pods
        .filter(|p| p.has_finalizer(TRACKING))
        .map(untrack_pod)
        .collect();
    (!writes.is_empty()).then_some(Action::Batch(writes))
}

fn untrack_pod(pod: &Arc<Pod>) -> Write {
    let meta = json!({ "uid": pod.uid(), "$deleteFromPrimitiveList/finalizers": [TRACKING] });
    let mut write = Write::new(
        controllers_runtime::Verb::Strategic(None),
        Target::of(pod.as_ref()),
        json!({ "metadata": meta }),
    );
    write.tolerate.absent = true;
    write
}
