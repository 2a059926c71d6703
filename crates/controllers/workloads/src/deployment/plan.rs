//! The working state of one reconcile of a Deployment.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet};
use serde_json::Value;

use controllers_runtime::{Action, Meta, Write, object_reference, to_tree};

use super::{bounds, replica_set};
use crate::set::PodSet;

/// A ReplicaSet and its changes.
pub struct Work {
    /// Desired state.
    pub rs: ReplicaSet,
    /// Observed state; None for a set to be created.
    pub before: Option<Arc<ReplicaSet>>,
    /// Events about its scaling.
    pub events: Vec<Action>,
}

impl Work {
    /// Returns the set's desired number of pods.
    pub fn replicas(&self) -> i32 {
        self.rs.replicas()
    }

    /// Returns the set's reported number of available pods.
    pub fn available(&self) -> i32 {
        self.rs
            .status
            .as_ref()
            .and_then(|s| s.available_replicas)
            .unwrap_or(0)
    }
}

/// One reconcile of a Deployment.
pub struct Plan<'a> {
    /// The Deployment with the desired status and annotations.
    pub d: Deployment,
    original: &'a Deployment,
    /// The status before this reconcile.
    pub old_status: DeploymentStatus,
    /// The set of the current template.
    pub new: Option<Work>,
    /// All other sets, oldest first.
    pub old: Vec<Work>,
    /// Actions decided so far.
    pub actions: Vec<Action>,
    /// Sets to delete.
    pub deletions: Vec<Action>,
    /// Requeue delay.
    pub requeue: Option<std::time::Duration>,
    /// Current time.
    pub now: Timestamp,
}

impl<'a> Plan<'a> {
    /// Sorts the owned sets into new and old.
    pub fn new(d: &'a Deployment, sets: &[Arc<ReplicaSet>], now: Timestamp) -> Self {
        let mut sorted = sets.to_vec();
        // If several sets have the template, the oldest is the new one, as upstream: it is the same
        // choice in every reconcile.
        sorted.sort_by(|a, b| {
            a.created_at()
                .cmp(&b.created_at())
                .then_with(|| a.name().cmp(b.name()))
        });
        let new_uid = sorted
            .iter()
            .find(|rs| replica_set::has_template(rs, d))
            .map(|rs| rs.uid().to_owned());
        let mut plan = Self {
            d: d.clone(),
            original: d,
            old_status: d.status.clone().unwrap_or_default(),
            new: None,
            old: Vec::new(),
            actions: Vec::new(),
            deletions: Vec::new(),
            requeue: None,
            now,
        };
        for rs in sorted {
            let work = Work {
                rs: rs.as_ref().clone(),
                before: Some(rs.clone()),
                events: Vec::new(),
            };
            if new_uid.as_deref() == Some(rs.uid()) {
                plan.new = Some(work);
            } else {
                plan.old.push(work);
            }
        }
        plan
    }

    /// Returns the desired number of pods.
    pub fn desired_replicas(&self) -> i32 {
        bounds::desired_replicas(&self.d)
    }

    /// Yields all sets.
    pub fn all_sets(&self) -> impl Iterator<Item = &Work> {
        self.old.iter().chain(&self.new)
    }

    /// Returns the sum of the sets' desired pods.
    pub fn total_replicas(&self) -> i32 {
        self.all_sets().map(Work::replicas).sum()
    }

    /// Scales the new set; returns true if that changes anything.
    pub fn scale_new(&mut self, replicas: i32) -> bool {
        let Some(mut work) = self.new.take() else {
            return false;
        };
        let changed = self.scale_set(&mut work, replicas);
        self.new = Some(work);
        changed
    }

    /// Scales one old set; returns true if that changes anything.
    pub fn scale_old(&mut self, index: usize, replicas: i32) -> bool {
        if index >= self.old.len() {
            return false;
        }
        let mut work = self.old.remove(index);
        let changed = self.scale_set(&mut work, replicas);
        self.old.insert(index, work);
        changed
    }

    fn scale_set(&self, work: &mut Work, replicas: i32) -> bool {
        let from = work.replicas();
        if from != replicas {
            if let Some(spec) = &mut work.rs.spec {
                spec.replicas = Some(replicas);
            }
            let way = if from < replicas { "up" } else { "down" };
            let text = format!(
                "Scaled {way} replica set {} from {from} to {replicas}",
                work.rs.name()
            );
            work.events.push(Action::event(
                &object_reference(self.original),
                "ScalingReplicaSet",
                text,
            ));
        }
        // The annotations are written even if the size stays: a later change of the Deployment's
        // size is recognized by comparing with them.
        if from != replicas || replicas > 0 {
            replica_set::set_size_annotations(&mut work.rs, &self.d);
        }
        from != replicas
    }

    /// Returns the writes, each object once.
    pub fn into_actions(mut self) -> Vec<Action> {
        // The new set first: in a rolling update its pods are created before old ones are removed,
        // also if the second write fails.
        let works: Vec<_> = self.new.take().into_iter().chain(self.old).collect();
        for work in works {
            match &work.before {
                None => self.actions.push(create_set(self.original, &work)),
                Some(before) if before.as_ref() != &work.rs => {
                    self.actions.push(Action::update(&work.rs))
                }
                Some(_) => {}
            }
            self.actions.extend(work.events);
        }
        self.actions.extend(self.deletions);
        if &self.d != self.original {
            self.actions.push(Action::update_status(&self.d));
        }
        self.actions.extend(self.requeue.map(Action::Requeue));
        self.actions
    }
}

/// Builds the create of a set; if the name belongs to another object, it counts a collision
/// instead.
fn create_set(d: &Deployment, work: &Work) -> Action {
    let mut write = Write::create(&work.rs).notes(
        &object_reference(d),
        ("", ""),
        (
            "ReplicaSetCreateError",
            "Failed to create new replica set: {error}",
        ),
    );
    write.notes.success = None;
    // The name is a hash of the template and of the collision count. A higher count gives another
    // name in the next reconcile.
    let mut bumped = to_tree(d);
    let count = d
        .status
        .as_ref()
        .and_then(|s| s.collision_count)
        .unwrap_or(0);
    if let Some(status) = bumped.as_object_mut() {
        let entry = status
            .entry("status")
            .or_insert_with(|| Value::Object(serde_json::Map::new()));
        entry["collisionCount"] = Value::from(count + 1);
    }
    let mut status = Write::new(
        controllers_runtime::Verb::UpdateStatus,
        controllers_runtime::Target::of(d),
        bumped,
    );
    // The cached Deployment may be old. The event of its newer version starts the next reconcile
    // anyway.
    status.tolerate.conflict = true;
    write.if_exists = vec![status.into()];
    write.into()
}
