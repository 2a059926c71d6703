//! A common view of ReplicaSet and ReplicationController, whose types differ only in name.

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{
    PodTemplateSpec, ReplicationController, ReplicationControllerCondition,
    ReplicationControllerStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use controllers_runtime::{Object, labels};

/// A kind that keeps a number of equal pods.
pub trait PodSet: Object {
    /// Returns the desired number of pods.
    fn replicas(&self) -> i32;
    /// Returns the selector of its pods.
    fn pod_selector(&self) -> LabelSelector;
    /// Returns the template of its pods.
    fn pod_template(&self) -> PodTemplateSpec;
    /// Returns `minReadySeconds`.
    fn min_ready(&self) -> i32;
    /// Returns the status.
    fn status(&self) -> ReplicaSetStatus;
    /// Returns the object with another status.
    fn with_status(&self, status: ReplicaSetStatus) -> Self;
}

impl PodSet for ReplicaSet {
    fn replicas(&self) -> i32 {
        self.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1)
    }

    fn pod_selector(&self) -> LabelSelector {
        self.spec
            .as_ref()
            .map(|s| s.selector.clone())
            .unwrap_or_default()
    }

    fn pod_template(&self) -> PodTemplateSpec {
        self.spec
            .as_ref()
            .and_then(|s| s.template.clone())
            .unwrap_or_default()
    }

    fn min_ready(&self) -> i32 {
        self.spec
            .as_ref()
            .and_then(|s| s.min_ready_seconds)
            .unwrap_or_default()
    }

    fn status(&self) -> ReplicaSetStatus {
        self.status.clone().unwrap_or_default()
    }

    fn with_status(&self, status: ReplicaSetStatus) -> Self {
        Self {
            status: Some(status),
            ..self.clone()
        }
    }
}

impl PodSet for ReplicationController {
    fn replicas(&self) -> i32 {
        self.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1)
    }

    fn pod_selector(&self) -> LabelSelector {
        labels::from_map(self.spec.as_ref().and_then(|s| s.selector.as_ref()))
    }

    fn pod_template(&self) -> PodTemplateSpec {
        self.spec
            .as_ref()
            .and_then(|s| s.template.clone())
            .unwrap_or_default()
    }

    fn min_ready(&self) -> i32 {
        self.spec
            .as_ref()
            .and_then(|s| s.min_ready_seconds)
            .unwrap_or_default()
    }

    fn status(&self) -> ReplicaSetStatus {
        let status = self.status.clone().unwrap_or_default();
        ReplicaSetStatus {
            available_replicas: status.available_replicas,
            conditions: status
                .conditions
                .map(|all| all.into_iter().map(set_condition).collect()),
            fully_labeled_replicas: status.fully_labeled_replicas,
            observed_generation: status.observed_generation,
            ready_replicas: status.ready_replicas,
            replicas: status.replicas,
            // The status of a ReplicationController has no such field.
            terminating_replicas: None,
        }
    }

    fn with_status(&self, status: ReplicaSetStatus) -> Self {
        let status = ReplicationControllerStatus {
            available_replicas: status.available_replicas,
            conditions: status
                .conditions
                .map(|all| all.into_iter().map(rc_condition).collect()),
            fully_labeled_replicas: status.fully_labeled_replicas,
            observed_generation: status.observed_generation,
            ready_replicas: status.ready_replicas,
            replicas: status.replicas,
        };
        Self {
            status: Some(status),
            ..self.clone()
        }
    }
}

fn set_condition(c: ReplicationControllerCondition) -> ReplicaSetCondition {
    ReplicaSetCondition {
        last_transition_time: c.last_transition_time,
        message: c.message,
        reason: c.reason,
        status: c.status,
        type_: c.type_,
    }
}

fn rc_condition(c: ReplicaSetCondition) -> ReplicationControllerCondition {
    ReplicationControllerCondition {
        last_transition_time: c.last_transition_time,
        message: c.message,
        reason: c.reason,
        status: c.status,
        type_: c.type_,
    }
}
