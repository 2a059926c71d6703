//! RollingUpdate: the new set grows within the surge, old sets shrink while enough pods are
//! available.

use super::bounds;
use super::plan::{Plan, Work};

/// Scales the new set towards the desired number; returns true if it changed.
pub fn grow_new(plan: &mut Plan<'_>) -> bool {
    let Some(new) = &plan.new else { return false };
    // A set that this reconcile creates was sized when it was planned.
    if new.before.is_none() {
        return new.replicas() > 0;
    }
    let (have, wanted) = (new.replicas(), plan.desired_replicas());
    if have == wanted {
        return false;
    }
    if have > wanted {
        return plan.scale_new(wanted);
    }
    let room = wanted + bounds::max_surge(&plan.d) - plan.total_replicas();
    let count = have + room.min(wanted - have).max(0);
    count != have && plan.scale_new(count)
}

/// Scales old sets down as far as availability allows; returns true if any changed.
pub fn shrink_old(plan: &mut Plan<'_>) -> bool {
    if plan.old.iter().all(|w| w.replicas() == 0) {
        return false;
    }
    let floor = plan.desired_replicas() - bounds::max_unavailable(&plan.d);
    // Pods of the new set that are not available yet must not be made up for by removing old ones.
    let new_unavailable = plan
        .new
        .as_ref()
        .map_or(0, |w| w.replicas() - w.available());
    let room = plan.total_replicas() - floor - new_unavailable;
    if room <= 0 {
        return false;
    }
    // Pods that never become ready would otherwise block the rollout that is meant to replace them.
    let unhealthy = drop_unhealthy(plan, room);
    let healthy = drop_healthy(plan, floor);
    unhealthy || healthy
}

/// Removes unavailable pods of old sets first, because that reduces no availability.
fn drop_unhealthy(plan: &mut Plan<'_>, room: i32) -> bool {
    let mut left = room;
    let mut changed = false;
    for index in 0..plan.old.len() {
        let Some(work) = plan.old.get(index) else {
            break;
        };
        let sick = (work.replicas() - work.available()).clamp(0, left);
        if sick > 0 {
            let count = work.replicas() - sick;
            left -= sick;
            changed |= plan.scale_old(index, count);
        }
    }
    changed
}

fn drop_healthy(plan: &mut Plan<'_>, floor: i32) -> bool {
    let mut spare = plan.all_sets().map(Work::available).sum::<i32>() - floor;
    let mut changed = false;
    for index in 0..plan.old.len() {
        let Some(work) = plan.old.get(index) else {
            break;
        };
        let drop = work.replicas().min(spare);
        if drop > 0 {
            let count = work.replicas() - drop;
            spare -= drop;
            changed |= plan.scale_old(index, count);
        }
    }
    changed
}
