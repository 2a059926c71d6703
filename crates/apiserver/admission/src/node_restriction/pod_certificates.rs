//! Certificates that a kubelet requests for its pods.

use super::NodeRestriction;
use crate::context::{forbidden_error, string_at};
use api_meta::{ApiError, Meta};
use apiserver_request::{AdmissionRequest, Operation};
use serde_json::Value;
use std::sync::Arc;

impl NodeRestriction {
    /// Checks that a request is for a pod on the node, its service account and the node itself,
    /// each by its UID. A signer issues the pod's identity for it.
    pub(super) async fn check_pod_certificate(
        &self,
        request: &AdmissionRequest<'_>,
        node: &str,
    ) -> Result<(), ApiError> {
        if request.operation != Operation::Create {
            let why = format!("unexpected operation {}", request.operation.as_str());
            return Err(forbidden_error(request, why));
        }
        if !request.subresource.is_empty() {
            let why = format!("unexpected subresource {}", request.subresource);
            return Err(forbidden_error(request, why));
        }
        let spec = |field: &str| string_at(&request.object, &format!("/spec/{field}"));
        let wanted = spec("nodeName");
        if wanted != node {
            let why = format!(
                "PodCertificateRequest.Spec.NodeName={wanted:?}, which is not the requesting node {node:?}"
            );
            return Err(forbidden_error(request, why));
        }
        self.find_named(request, "nodes", "", wanted, spec("nodeUID"))
            .await?;
        let namespace = request.namespace;
        let pod = self
            .find_named(request, "pods", namespace, spec("podName"), spec("podUID"))
            .await?;
        check_pod(request, &pod, node)?;
        let account = spec("serviceAccountName");
        self.find_named(
            request,
            "serviceaccounts",
            namespace,
            account,
            spec("serviceAccountUID"),
        )
        .await?;
        Ok(())
    }

    /// Returns an object that the request names. If it is missing or has another UID, the caches of
    /// this server may lag. The error is one after which the kubelet tries again.
    async fn find_named(
        &self,
        request: &AdmissionRequest<'_>,
        resource: &str,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<Arc<Value>, ApiError> {
        let pod = format!(
            "{namespace}/{}",
            string_at(&request.object, "/spec/podName")
        );
        let found = self.0.find_object("", resource, namespace, name).await?;
        let Some(object) = found else {
            return Err(ApiError::internal(format!(
                "PodCertificateRequest for pod {pod:?} names {resource} {name:?}, which was not found"
            )));
        };
        if object.uid() != uid {
            return Err(ApiError::internal(format!(
                "PodCertificateRequest for pod {pod:?} names {resource} {name:?} with UID {uid:?}, but this server knows it with UID {:?}",
                object.uid()
            )));
        }
        Ok(object)
    }
}

fn check_pod(request: &AdmissionRequest<'_>, pod: &Value, node: &str) -> Result<(), ApiError> {
    let name = format!("{}/{}", request.namespace, pod.name());
    let reject = |why: String| Err(forbidden_error(request, why));
    if string_at(pod, "/spec/nodeName") != node {
        return reject(format!(
            "pod {name:?} is not running on node {node:?} named in the PodCertificateRequest"
        ));
    }
    // A kubelet makes mirror pods, so it could choose their service account.
    if pod.annotation("kubernetes.io/config.mirror").is_some() {
        return reject(format!("pod {name:?} is a mirror pod"));
    }
    let account = string_at(pod, "/spec/serviceAccountName");
    let wanted = string_at(&request.object, "/spec/serviceAccountName");
    if wanted != account {
        return reject(format!(
            "PodCertificateRequest for pod {name:?} contains serviceAccountName ({wanted:?}) that differs from running pod ({account:?})"
        ));
    }
    Ok(())
}
