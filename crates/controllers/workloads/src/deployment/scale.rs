//! Scaling outside of a rollout step: a single active set gets the Deployment's size, several share
//! the change in proportion to their sizes.

use controllers_runtime::Meta;

use super::plan::{Plan, Work};
use super::{bounds, replica_set};

/// Returns whether an active set was scaled for another size of the Deployment.
pub fn is_due(plan: &Plan<'_>) -> bool {
    plan.all_sets().filter(|w| w.replicas() > 0).any(|w| {
        // A changed size is recognized by the annotation. spec.replicas of a set differs from it in
        // every rollout.
        let desired =
            w.rs.annotation(replica_set::DESIRED)
                .and_then(|v| v.parse::<i32>().ok());
        desired.is_some_and(|n| n != plan.desired_replicas())
    })
}

/// Scales all sets to the Deployment's size.
pub fn scale_all(plan: &mut Plan<'_>) {
    let wanted = plan.desired_replicas();
    let active: Vec<_> = plan
        .old
        .iter()
        .enumerate()
        .filter(|(_, w)| w.replicas() > 0)
        .map(|(i, _)| i)
        .collect();
    let new_active = plan.new.as_ref().is_some_and(|w| w.replicas() > 0);
    match (active.as_slice(), new_active) {
        ([], _) if plan.new.is_some() => {
            plan.scale_new(wanted);
        }
        ([], _) => {
            if let Some(last) = plan.old.len().checked_sub(1) {
                plan.scale_old(last, wanted);
            }
        }
        ([only], false) => {
            plan.scale_old(*only, wanted);
        }
        (several, _) => {
            // The rollout is complete, so old sets have no claim to a share of the new size.
            if plan.new.as_ref().is_some_and(|w| is_saturated(w, wanted)) {
                for index in several {
                    plan.scale_old(*index, 0);
                }
            } else if bounds::is_rolling(&plan.d) {
                scale_proportionally(plan);
            }
        }
    }
}

fn is_saturated(new: &Work, wanted: i32) -> bool {
    let desired = new
        .rs
        .annotation(replica_set::DESIRED)
        .and_then(|v| v.parse::<i32>().ok());
    new.replicas() == wanted && desired == Some(wanted) && new.available() == wanted
}

/// Distributes the pods to add or remove over the active sets; the largest gets the remainder.
fn scale_proportionally(plan: &mut Plan<'_>) {
    let wanted = plan.desired_replicas();
    let allowed = if wanted > 0 {
        wanted + bounds::max_surge(&plan.d)
    } else {
        0
    };
    let to_add = allowed - plan.total_replicas();
    let mut active: Vec<(Option<usize>, i32, i64)> = Vec::new();
    active.extend(
        plan.old
            .iter()
            .enumerate()
            .map(|(i, w)| (Some(i), w.replicas(), w.rs.created_at())),
    );
    active.extend(
        plan.new
            .iter()
            .map(|w| (None, w.replicas(), w.rs.created_at())),
    );
    active.retain(|(_, size, _)| *size > 0);
    // The largest set first. Equal sets: a newer one grows first, an older one shrinks first, so
    // that a rollout is not reverted by scaling.
    active.sort_by(|a, b| {
        b.1.cmp(&a.1).then_with(|| {
            if to_add > 0 {
                b.2.cmp(&a.2)
            } else {
                a.2.cmp(&b.2)
            }
        })
    });
    let mut added = 0;
    let mut sizes: Vec<(Option<usize>, i32)> = Vec::new();
    for (slot, size, _) in active {
        let work = slot.map_or(plan.new.as_ref(), |i| plan.old.get(i));
        let part = work.map_or(0, |w| set_proportion(plan, w, to_add, added));
        added += part;
        sizes.push((slot, size + part));
    }
    // Rounding leaves a remainder. Without this the sum would miss the allowed number.
    if let Some(first) = sizes.first_mut() {
        first.1 = (first.1 + to_add - added).max(0);
    }
    for (slot, size) in sizes {
        match slot {
            Some(index) => plan.scale_old(index, size),
            None => plan.scale_new(size),
        };
    }
}

/// Returns one set's part of `to_add` (which may be negative).
fn set_proportion(plan: &Plan<'_>, work: &Work, to_add: i32, added: i32) -> i32 {
    if to_add == 0 || to_add == added {
        return 0;
    }
    let part = replica_set_fraction(plan, work);
    if to_add > 0 {
        part.min(to_add - added)
    } else {
        part.max(to_add - added)
    }
}

fn replica_set_fraction(plan: &Plan<'_>, work: &Work) -> i32 {
    let size = work.replicas();
    if plan.desired_replicas() == 0 {
        return -size;
    }
    let bound = f64::from(plan.desired_replicas() + bounds::max_surge(&plan.d));
    // The share is computed from the bound when the set was last scaled. The present bound would
    // let shares drift in repeated scaling.
    let recorded = work
        .rs
        .annotation(replica_set::MAX)
        .and_then(|v| v.parse::<i32>().ok())
        .filter(|n| *n > 0);
    let before = recorded.or(plan.old_status.replicas).unwrap_or(0);
    if before == 0 {
        return 0;
    }
    (f64::from(size) * bound / f64::from(before)).round() as i32 - size
}
