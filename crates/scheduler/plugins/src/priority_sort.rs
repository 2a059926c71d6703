//! PrioritySort: higher priority first, then first in, first out.

use std::sync::Arc;

use scheduler_framework::{Cluster, ExtensionPoints, Plugin, PodInfo, QueueSort, Rank};
use serde_json::Value;

pub(crate) struct PrioritySort;

impl Plugin for PrioritySort {
    const NAME: &'static str = "PrioritySort";

    fn new(_: &Value, _: &Arc<dyn Cluster>) -> Result<Self, String> {
        Ok(Self)
    }

    fn register_extension_points(self: Arc<Self>, points: &mut ExtensionPoints) {
        points.queue_sort(&self);
    }
}

impl QueueSort for PrioritySort {
    fn rank(&self, pod: &PodInfo, since: i128) -> Rank {
        Rank(-i64::from(pod.priority()), since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::build_pod;
    use serde_json::json;

    #[test]
    fn higher_priority_is_first_and_then_the_longer_wait() {
        let high = build_pod(json!({"priority": 5}));
        let low = build_pod(json!({}));
        let rank = |pod, since| PrioritySort.rank(pod, since);
        assert!(rank(&high, 9) < rank(&low, 1));
        assert!(rank(&low, 1) < rank(&low, 2));
    }
}
