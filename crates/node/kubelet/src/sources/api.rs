//! Pods that are bound to this node.

use super::{MIRROR, apply_pod, read_annotation, remove_pod};
use crate::context::KubeletContext;
use client::{Client, Event, Informer, ListParams, Store};
use k8s_openapi::api::core::v1::Pod;
use std::sync::{Arc, Weak};

/// Follows the pods of this node. Mirror pods only represent static pods and start no worker.
pub(crate) fn follow_pods(node: &Arc<KubeletContext>, client: &Client) -> Store<Pod> {
    let params =
        ListParams::new().with_fields(format!("spec.nodeName={}", node.settings.node_name));
    let weak: Weak<KubeletContext> = Arc::downgrade(node);
    Informer::<Pod>::new(client.api(), params)
        .on_event(move |event| {
            let Some(node) = weak.upgrade() else { return };
            let mirror = |pod: &Pod| read_annotation(pod, MIRROR).is_some();
            match event {
                Event::Applied { new, .. } if mirror(&new) => {
                    super::mirror::reconcile_mirror(&node, &new)
                }
                Event::Deleted(last) if mirror(&last) => {
                    super::mirror::recreate_mirror(&node, &last)
                }
                Event::Applied { old, new } => {
                    // The name was used again between two relists: this is another pod.
                    if let Some(old) = old.filter(|o| o.metadata.uid != new.metadata.uid) {
                        remove_pod(&node, &old);
                    }
                    apply_pod(&node, new, false);
                }
                Event::Deleted(last) => remove_pod(&node, &last),
            }
        })
        .spawn(&node.tasks)
}
