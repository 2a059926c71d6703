//! Pods that are bound to this node.

use super::{MIRROR, apply_pod, remove_pod};
use crate::context::KubeletContext;
use crate::pod_source::read_annotation;
use client::{Client, Event, Informer, ListParams, Store};
use k8s_openapi::api::core::v1::Pod;
use std::sync::{Arc, Weak};

/// Follows the pods of this node. Mirror pods only represent static pods and start no worker.
pub(crate) fn follow_pods(kubelet: &Arc<KubeletContext>, client: &Client) -> Store<Pod> {
    let params =
        ListParams::new().with_fields(format!("spec.nodeName={}", kubelet.settings.node_name));
    // The informer's task would otherwise keep the context alive after the shutdown.
    let weak: Weak<KubeletContext> = Arc::downgrade(kubelet);
    Informer::<Pod>::new(client.api(), params)
        .on_event(move |event| {
            let Some(kubelet) = weak.upgrade() else {
                return;
            };
            let mirror = |pod: &Pod| read_annotation(pod, MIRROR).is_some();
            match event {
                Event::Applied { new, .. } if mirror(&new) => {
                    super::mirror::reconcile_mirror(&kubelet, &new)
                }
                Event::Deleted(last) if mirror(&last) => {
                    super::mirror::recreate_mirror(&kubelet, &last)
                }
                Event::Applied { old, new } => {
                    // The name was used again between two relists: this is another pod.
                    if let Some(old) = old.filter(|o| o.metadata.uid != new.metadata.uid) {
                        remove_pod(&kubelet, &old);
                    }
                    apply_pod(&kubelet, new, false);
                }
                Event::Deleted(last) => remove_pod(&kubelet, &last),
            }
        })
        .spawn(&kubelet.tasks)
}
