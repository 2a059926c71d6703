//! Binding: assigns a pod to a node, once.

use crate::registry::Registry;
use crate::update::{Mode, Update};
use crate::write::Write;
use api_meta::{ApiError, Meta, Reason, meta, time};
use apiserver_request::Operation;
use serde_json::{Value, json};

impl Registry {
    /// Handles POST of a Binding.
    pub async fn bind_pod(&self, write: &mut Write, binding: Value) -> Result<(), ApiError> {
        check_binding(&binding)?;
        let name = write.name.clone();
        let mut request = write.admission_request(Operation::Create, &name, binding, None);
        self.run_mutating(&mut request).await?;
        self.run_validating(&request).await?;
        let binding = request.object;
        let pod_name = name.clone();
        let change = move |pod: &Value| assign_node(&pod_name, pod, &binding);
        self.update(
            write,
            &Update {
                change: &change,
                replaces: true,
                // The strategy of pods makes nodeName immutable, and only this path may set it.
                mode: Mode::Raw,
            },
        )
        .await
        .map(|_| ())
    }
}

fn check_binding(binding: &Value) -> Result<(), ApiError> {
    let wrong = |text: String| Err(ApiError::new(Reason::Unknown(500), text));
    let kind = meta::str_at(binding, &["target", "kind"]);
    if !matches!(kind, "" | "Node") {
        return wrong(format!(
            "target.kind: Unsupported value: {kind:?}: supported values: \"Node\", \"<empty>\""
        ));
    }
    if meta::str_at(binding, &["target", "name"]).is_empty() {
        return wrong("target.name: Required value".into());
    }
    Ok(())
}

fn assign_node(name: &str, pod: &Value, binding: &Value) -> Result<Value, ApiError> {
    let refuse = |why: String| Err(ApiError::conflict("", "pods/binding", name, &why));
    // The scheduler decided for an earlier pod of the same name, with other requests.
    if !binding.uid().is_empty() && binding.uid() != pod.uid() {
        let (wanted, found) = (binding.uid(), pod.uid());
        return refuse(format!(
            "Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
        ));
    }
    // As upstream: a pod that is being deleted takes no room on a node any more.
    if pod.is_being_deleted() {
        return refuse(format!(
            "pod {name} is being deleted, cannot be assigned to a host"
        ));
    }
    let node = meta::str_at(pod, &["spec", "nodeName"]);
    if !node.is_empty() {
        // Two schedulers may choose at once; the second one must not move a pod that may already
        // run.
        return refuse(format!("pod {name} is already assigned to node {node:?}"));
    }
    if pod
        .pointer("/spec/schedulingGates")
        .and_then(Value::as_array)
        .is_some_and(|gates| !gates.is_empty())
    {
        return refuse(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let mut pod = pod.clone();
    let target = meta::str_at(binding, &["target", "name"]);
    meta::object_at(&mut pod, "spec").insert("nodeName".into(), target.into());
    if let Some(annotations) = binding
        .pointer("/metadata/annotations")
        .and_then(Value::as_object)
    {
        let metadata = pod
            .metadata_mut()
            .entry("annotations")
            .or_insert_with(|| json!({}));
        if let Some(all) = metadata.as_object_mut() {
            all.extend(annotations.clone());
        }
    }
    // In the same write as the node, or a watcher could see an assigned pod that is reported as
    // pending.
    set_scheduled(&mut pod);
    Ok(pod)
}

fn set_scheduled(pod: &mut Value) {
    let generation = pod.metadata().and_then(|m| m.get("generation")).cloned();
    let status = meta::object_at(pod, "status");
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else {
        return;
    };
    // The scheduler may have set it to False in an earlier attempt.
    conditions.retain(|c| c.get("type").and_then(Value::as_str) != Some("PodScheduled"));
    let mut condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": time::now()});
    if let (Some(map), Some(generation)) = (condition.as_object_mut(), generation) {
        map.insert("observedGeneration".into(), generation);
    }
    conditions.push(condition);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_pod_is_assigned_once() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {}});
        let binding =
            json!({"metadata": {"name": "p", "annotations": {"a": "b"}}, "target": {"name": "n"}});
        let bound = assign_node("p", &pod, &binding).unwrap();
        assert_eq!(bound["spec"]["nodeName"], "n");
        assert_eq!(bound["metadata"]["annotations"]["a"], "b");
        let again = assign_node("p", &bound, &binding).unwrap_err();
        assert!(
            again.message.contains("is already assigned to node \"n\""),
            "{again}"
        );
    }
}
