//! Sets overhead and scheduling fields from a pod's RuntimeClass.

use crate::context::{Context, forbidden_error, is_for, list_at, push_item, string_at};
use api_meta::ApiError;
use apiserver_request::{Admission, AdmissionRequest, Operation};
use serde_json::Value;
use std::sync::Arc;

/// Applies RuntimeClasses to pods.
pub struct RuntimeClass(pub Context);

#[async_trait::async_trait]
impl Admission for RuntimeClass {
    fn name(&self) -> &'static str {
        "RuntimeClass"
    }

    async fn admit(&self, request: &mut AdmissionRequest<'_>) -> Result<(), ApiError> {
        // The overhead and the class of a pod are immutable, so that updates have nothing to merge.
        if !is_for(request, "", "pods") || request.operation != Operation::Create {
            return Ok(());
        }
        let Some(class) = self.find_class(request).await? else {
            return Ok(());
        };
        if let Some(overhead) = class.pointer("/overhead/podFixed").filter(|o| !o.is_null()) {
            let given = request.object["spec"]
                .get("overhead")
                .filter(|o| !o.is_null());
            // A client may repeat the class's overhead but not choose its own.
            if given.is_some_and(|s| s != overhead) {
                return Err(forbidden_error(
                    request,
                    "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
                ));
            }
            request.object["spec"]["overhead"] = overhead.clone();
        }
        merge_scheduling(request, &class)
    }

    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        if !is_for(request, "", "pods") || request.operation != Operation::Create {
            return Ok(());
        }
        let class = self.find_class(request).await?;
        // Validated after all mutations: another plugin must not set an overhead either.
        let has = class.is_some_and(|c| {
            c.pointer("/overhead/podFixed")
                .is_some_and(|o| !o.is_null())
        });
        if request.object["spec"]
            .get("overhead")
            .is_some_and(|o| !o.is_null())
            && !has
        {
            let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
            return Err(forbidden_error(request, why));
        }
        Ok(())
    }
}

impl RuntimeClass {
    async fn find_class(
        &self,
        request: &AdmissionRequest<'_>,
    ) -> Result<Option<Arc<Value>>, ApiError> {
        let name = string_at(&request.object, "/spec/runtimeClassName");
        if name.is_empty() {
            return Ok(None);
        }
        match self
            .0
            .find_object("node.k8s.io", "runtimeclasses", "", name)
            .await?
        {
            Some(class) => Ok(Some(class)),
            None => Err(forbidden_error(
                request,
                format!("pod rejected: RuntimeClass {name:?} not found"),
            )),
        }
    }
}

fn merge_scheduling(request: &mut AdmissionRequest<'_>, class: &Value) -> Result<(), ApiError> {
    for (key, value) in class
        .pointer("/scheduling/nodeSelector")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let given = request.object["spec"]["nodeSelector"].get(key);
        // Overwriting the pod's selector would place it on nodes that its author has excluded.
        if let Some(other) = given.filter(|s| *s != value) {
            let shown = |v: &Value| v.as_str().unwrap_or_default().to_owned();
            let why = format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                shown(value),
                shown(other)
            );
            return Err(forbidden_error(request, why));
        }
        request.object["spec"]["nodeSelector"][key.as_str()] = value.clone();
    }
    for toleration in list_at(class, "/scheduling/tolerations") {
        // A recreated pod often carries the tolerations of its first admission already.
        if !list_at(&request.object, "/spec/tolerations").contains(toleration) {
            push_item(
                &mut request.object["spec"],
                "tolerations",
                toleration.clone(),
            );
        }
    }
    Ok(())
}
