//! Revisions: creates or updates the set of the current template.

use controllers_runtime::{Action, Meta, object_reference};

use super::plan::{Plan, Work};
use super::replica_set::{self, revision_of};
use super::{bounds, status};

/// Sets revision and annotations of the new set; creates the set if it is missing and `create` is
/// true.
pub fn sync_revision(plan: &mut Plan<'_>, create: bool) {
    let next = plan
        .old
        .iter()
        .map(|w| revision_of(&w.rs))
        .max()
        .unwrap_or(0)
        + 1;
    if let Some(mut work) = plan.new.take() {
        replica_set::set_annotations(&mut work.rs, &plan.d, next, true);
        if let Some(spec) = &mut work.rs.spec {
            let wanted = plan
                .d
                .spec
                .as_ref()
                .and_then(|s| s.min_ready_seconds)
                .filter(|s| *s != 0);
            if spec.min_ready_seconds.filter(|s| *s != 0) != wanted {
                spec.min_ready_seconds = wanted;
            }
        }
        let revision = revision_of(&work.rs);
        let text = format!("Found new replica set \"{}\"", work.rs.name());
        plan.new = Some(work);
        record_revision(plan, revision);
        status::mark_found(plan, "FoundNewReplicaSet", text, false);
    } else if create {
        plan_new_set(plan, next);
    }
}

fn plan_new_set(plan: &mut Plan<'_>, revision: i64) {
    let mut rs = replica_set::build_set(&plan.d);
    replica_set::set_annotations(&mut rs, &plan.d, revision, false);
    // Upstream's NewRSNewReplicas: the surge bounds the sum over all sets, because old pods still
    // exist.
    let room = plan.desired_replicas() + bounds::max_surge(&plan.d) - plan.total_replicas();
    let count = if bounds::is_rolling(&plan.d) {
        room.min(plan.desired_replicas()).max(0)
    } else {
        plan.desired_replicas()
    };
    if let Some(spec) = &mut rs.spec {
        spec.replicas = Some(count);
    }
    replica_set::set_size_annotations(&mut rs, &plan.d);
    let name = rs.name().to_owned();
    let mut events = Vec::new();
    if count > 0 {
        let text = format!("Scaled up replica set {name} from 0 to {count}");
        events.push(Action::event(
            &object_reference(&plan.d),
            "ScalingReplicaSet",
            text,
        ));
    }
    plan.new = Some(Work {
        rs,
        before: None,
        events,
    });
    record_revision(plan, revision);
    status::mark_found(
        plan,
        "NewReplicaSetCreated",
        format!("Created new replica set \"{name}\""),
        true,
    );
}

/// Writes the revision of the new set into the Deployment's annotations.
fn record_revision(plan: &mut Plan<'_>, revision: i64) {
    let notes = plan.d.metadata.annotations.get_or_insert_default();
    notes.insert(replica_set::REVISION.to_owned(), revision.to_string());
}
