//! ImageLocality: prefers nodes that have the pod's images, less so for images on few nodes.

use std::sync::Arc;

use scheduler_framework::{
    Cluster, CycleState, MAX_NODE_SCORE, NodeInfo, Plugin, PodInfo, Points, Score, Snapshot,
};
use serde_json::Value;

const MEBIBYTE: i64 = 1024 * 1024;
const LEAST: i64 = 23 * MEBIBYTE;
const MOST_PER_CONTAINER: i64 = 1000 * MEBIBYTE;

pub(crate) struct ImageLocality;

impl Plugin for ImageLocality {
    const NAME: &'static str = "ImageLocality";

    fn new(_: &Value, _: &Arc<dyn Cluster>) -> Result<Self, String> {
        Ok(Self)
    }

    fn extend(self: Arc<Self>, points: &mut Points) {
        points.score(&self);
    }
}

/// Returns the name as nodes report it: with a tag.
fn normalized(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    if last.contains(':') || last.contains('@') {
        image.to_owned()
    } else {
        format!("{image}:latest")
    }
}

impl Score for ImageLocality {
    fn score(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo, snapshot: &Snapshot) -> i64 {
        let Some(spec) = pod.spec() else { return 0 };
        let nodes = i64::try_from(snapshot.nodes.len())
            .unwrap_or(i64::MAX)
            .max(1);
        let (mut sum, mut containers) = (0_i64, 0_i64);
        for container in spec
            .init_containers
            .iter()
            .flatten()
            .chain(&spec.containers)
        {
            containers += 1;
            let Some(image) = &container.image else {
                continue;
            };
            let name = normalized(image);
            let Some(state) = node.images.get(name.as_str()) else {
                continue;
            };
            let having = snapshot
                .image_spread
                .get(name.as_str())
                .copied()
                .unwrap_or(0);
            sum += (state.size as f64 * (having as f64 / nodes as f64)) as i64;
        }
        let most = MOST_PER_CONTAINER * containers.max(1);
        MAX_NODE_SCORE * (sum.clamp(LEAST, most) - LEAST) / (most - LEAST)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::testing::pod;
    use serde_json::json;

    #[test]
    fn names_get_a_tag() {
        assert_eq!(normalized("a.b:5000/c"), "a.b:5000/c:latest");
        assert_eq!(normalized("c:1"), "c:1");
        assert_eq!(normalized("c@sha256:0"), "c@sha256:0");
    }

    #[test]
    fn large_images_that_are_there_count() {
        let node = |name: &str, images: Value| {
            let mut info = NodeInfo::new(name);
            let object = json!({"metadata": {"name": name}, "status": {"images": images}});
            info.set_node(Arc::new(serde_json::from_value(object).unwrap()));
            info
        };
        let has = json!([{"names": ["x:latest"], "sizeBytes": 800 * MEBIBYTE}]);
        let snapshot = Snapshot::of(vec![
            node("a", has.clone()),
            node("b", has),
            node("c", json!([])),
        ]);
        let pod = pod(json!({"containers": [{"name": "c", "image": "x"}]}));
        let score = |at: usize| {
            ImageLocality.score(&CycleState::default(), &pod, &snapshot.nodes[at], &snapshot)
        };
        assert_eq!((score(0), score(2)), (52, 0));
    }
}
