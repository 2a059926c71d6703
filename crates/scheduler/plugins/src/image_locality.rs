//! ImageLocality: prefers nodes that have the pod's images, less so for images on few nodes.

use std::sync::Arc;

use scheduler_framework::{
    Cluster, CycleState, ExtensionPoints, MAX_NODE_SCORE, NodeInfo, Plugin, PodInfo, Score,
    Snapshot,
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

    fn register_extension_points(self: Arc<Self>, points: &mut ExtensionPoints) {
        points.score(&self);
    }
}

/// Returns the name as nodes report it: with a tag.
fn normalized_image_name(image: &str) -> String {
    // The port of a registry contains a colon as well, so only the last segment is searched for a
    // tag.
    let last = image.rsplit('/').next().unwrap_or(image);
    if last.contains(':') || last.contains('@') {
        image.to_owned()
    } else {
        format!("{image}:latest")
    }
}

/// Returns the size of an image on a node, less if few nodes have it: otherwise the first node with
/// a large image would attract all its pods.
fn scaled_image_size(name: &str, node: &NodeInfo, snapshot: &Snapshot, nodes: i64) -> i64 {
    let Some(state) = node.images.get(name) else {
        return 0;
    };
    let having = snapshot.image_spread.get(name).copied().unwrap_or(0);
    (state.size as f64 * (having as f64 / nodes as f64)) as i64
}

impl Score for ImageLocality {
    fn score(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo, snapshot: &Snapshot) -> i64 {
        let Some(spec) = pod.spec() else { return 0 };
        let nodes = i64::try_from(snapshot.nodes.len())
            .unwrap_or(i64::MAX)
            .max(1);
        let containers = || {
            spec.init_containers
                .iter()
                .flatten()
                .chain(&spec.containers)
        };
        // Volumes of images are pulled like containers' images. They raise the sum, but not the
        // limit, which upstream computes from the number of containers.
        let volumes = spec.volumes.iter().flatten();
        let volume_images = volumes.filter_map(|volume| volume.image.as_ref()?.reference.as_ref());
        let sum: i64 = containers()
            .filter_map(|container| container.image.as_ref())
            .chain(volume_images)
            .map(|image| scaled_image_size(&normalized_image_name(image), node, snapshot, nodes))
            .sum();
        let count = i64::try_from(containers().count()).unwrap_or(i64::MAX);
        // Below 23 MiB a pull takes no noticeable time; above 1000 MiB per container more makes no
        // difference.
        let most = MOST_PER_CONTAINER.saturating_mul(count.max(1));
        MAX_NODE_SCORE * (sum.clamp(LEAST, most) - LEAST) / (most - LEAST)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::testing::build_pod;
    use serde_json::json;

    #[test]
    fn image_name_without_a_tag_means_latest() {
        assert_eq!(normalized_image_name("a.b:5000/c"), "a.b:5000/c:latest");
        assert_eq!(normalized_image_name("c:1"), "c:1");
        assert_eq!(normalized_image_name("c@sha256:0"), "c@sha256:0");
    }

    #[test]
    fn present_images_score_by_size() {
        let node = |name: &str, images: Value| {
            let mut info = NodeInfo::new(name);
            let object = json!({"metadata": {"name": name}, "status": {"images": images}});
            info.set_node(Arc::new(serde_json::from_value(object).unwrap()));
            info
        };
        let has = json!([{"names": ["x:latest"], "sizeBytes": 800 * MEBIBYTE}]);
        let snapshot = Snapshot::from_nodes(vec![
            node("a", has.clone()),
            node("b", has),
            node("c", json!([])),
        ]);
        let pod = build_pod(json!({"containers": [{"name": "c", "image": "x"}]}));
        let score = |at: usize| {
            ImageLocality.score(&CycleState::default(), &pod, &snapshot.nodes[at], &snapshot)
        };
        assert_eq!((score(0), score(2)), (52, 0));
    }

    #[test]
    fn image_volume_counts_like_an_image_of_a_container() {
        let mut info = NodeInfo::new("a");
        let object = json!({"metadata": {"name": "a"}, "status": {"images":
            [{"names": ["v:latest"], "sizeBytes": 500 * MEBIBYTE}]}});
        info.set_node(Arc::new(serde_json::from_value(object).unwrap()));
        let snapshot = Snapshot::from_nodes(vec![info]);
        let score = |volumes: Value| {
            let pod =
                build_pod(json!({"containers": [{"name": "c", "image": "x"}], "volumes": volumes}));
            ImageLocality.score(&CycleState::default(), &pod, &snapshot.nodes[0], &snapshot)
        };
        assert_eq!(score(json!([{"name": "v", "emptyDir": {}}])), 0);
        assert_eq!(
            score(json!([{"name": "v", "image": {"reference": "v"}}])),
            48
        );
    }

    #[test]
    fn image_scores_between_the_thresholds_by_its_size_and_spread() {
        let node = |name: &str, size: i64| {
            let mut info = NodeInfo::new(name);
            let images = json!([{"names": ["x:1"], "sizeBytes": size * MEBIBYTE}]);
            let object = json!({"metadata": {"name": name}, "status": {"images": images}});
            info.set_node(Arc::new(serde_json::from_value(object).unwrap()));
            info
        };
        let pod = build_pod(json!({"containers": [{"name": "c", "image": "x:1"}]}));
        let score = |size: i64, others: usize| {
            let mut nodes = vec![node("a", size)];
            nodes.extend((0..others).map(|at| NodeInfo::new(&format!("other-{at}"))));
            let snapshot = Snapshot::from_nodes(nodes);
            ImageLocality.score(&CycleState::default(), &pod, &snapshot.nodes[0], &snapshot)
        };
        assert_eq!(
            (score(23, 0), score(1000, 0), score(5000, 0)),
            (0, 100, 100)
        );
        // An image on one of two nodes counts half.
        assert_eq!(score(1000, 1), 100 * (500 - 23) / (1000 - 23));
    }
}
