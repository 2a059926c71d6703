//! Status of a StatefulSet: counts by state and by revision.

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::Pod;

use controllers_runtime::{Action, Meta, pods};

use super::identity;
use super::view::View;

/// Returns a status update if the status differs.
pub fn update_status(view: &View<'_>) -> Option<Action> {
    let old = view.set.status.clone().unwrap_or_default();
    let status = compute_status(view, &old);
    if status == old {
        return None;
    }
    Some(Action::update_status(&StatefulSet {
        status: Some(status),
        ..view.set.clone()
    }))
}

fn compute_status(view: &View<'_>, old: &StatefulSetStatus) -> StatefulSetStatus {
    let count = |test: &dyn Fn(&Pod) -> bool| {
        i32::try_from(view.pods.iter().filter(|p| test(p)).count()).unwrap_or(i32::MAX)
    };
    let ready = |p: &Pod| pods::phase(p) == "Running" && pods::is_ready(p);
    let of = |p: &Pod, name: &str| !p.is_deleting() && identity::pod_revision(p) == name;
    let mut status = StatefulSetStatus {
        observed_generation: Some(view.set.generation()),
        replicas: count(&|_| true),
        ready_replicas: Some(count(&ready)),
        available_replicas: Some(count(&|p| {
            ready(p) && pods::is_available(p, view.min_ready(), view.now)
        })),
        current_replicas: Some(count(&|p| of(p, view.current.name()))),
        updated_replicas: Some(count(&|p| of(p, view.update.name()))),
        current_revision: Some(view.current.name().to_owned()),
        update_revision: Some(view.update.name().to_owned()),
        collision_count: Some(old.collision_count.unwrap_or(0)),
        conditions: old.conditions.clone(),
    };
    // An update is complete only if every desired pod exists, is updated and ready; a set without
    // pods must not count.
    let wanted = view.replicas();
    let complete = view.is_rolling()
        && status.replicas == wanted
        && status.updated_replicas == Some(wanted)
        && status.ready_replicas == Some(wanted);
    if complete {
        status.current_revision.clone_from(&status.update_revision);
        status.current_replicas = status.updated_replicas;
    }
    for field in [
        &mut status.ready_replicas,
        &mut status.current_replicas,
        &mut status.updated_replicas,
    ] {
        *field = field.filter(|n| *n != 0);
    }
    status
}
