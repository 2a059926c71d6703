//! RollingUpdate: the new set grows within the surge, old sets shrink while enough pods are
//! available.

use super::bounds;
use super::plan::{Plan, Work};

/// Scales the new set towards the desired number; returns true if it changed.
pub fn grow_new(plan: &mut Plan<'_>) -> bool {
    let Some(new) = &plan.new else { return false };
    if new.before.is_none() {
        return new.replicas() > 0;
    }
    let (have, wanted) = (new.replicas(), plan.wanted());
    if have == wanted {
        return false;
    }
    if have > wanted {
        return plan.scale_new(wanted);
    }
    let room = wanted + bounds::max_surge(&plan.d) - plan.total();
    let count = have + room.min(wanted - have).max(0);
    count != have && plan.scale_new(count)
}

/// Scales old sets down as far as availability allows; returns true if any changed.
pub fn shrink_old(plan: &mut Plan<'_>) -> bool {
    if plan.old.iter().all(|w| w.replicas() == 0) {
        return false;
    }
    let floor = plan.wanted() - bounds::max_unavailable(&plan.d);
    let new_unavailable = plan
        .new
        .as_ref()
        .map_or(0, |w| w.replicas() - w.available());
    let room = plan.total() - floor - new_unavailable;
    if room <= 0 {
        return false;
    }
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
    let mut spare = plan.all().map(Work::available).sum::<i32>() - floor;
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
