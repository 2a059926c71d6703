//! Tokens that a kubelet requests for its pods.

use super::NodeRestriction;
use crate::context::{forbidden_error, list_at, string_at};
use api_meta::{ApiError, Meta};
use apiserver_request::{AdmissionRequest, Attributes, Decision, Operation};
use serde_json::Value;

impl NodeRestriction {
    pub(super) async fn check_token(
        &self,
        request: &AdmissionRequest<'_>,
        node: &str,
    ) -> Result<(), ApiError> {
        // The Node authorizer grants no other write of ServiceAccounts.
        if request.operation != Operation::Create || request.subresource != "token" {
            return Ok(());
        }
        let reference = request
            .object
            .pointer("/spec/boundObjectRef")
            .unwrap_or(&Value::Null);
        // An unbound token would outlive the pod and could be used from anywhere.
        let (name, uid) = (string_at(reference, "/name"), string_at(reference, "/uid"));
        if string_at(reference, "/kind") != "Pod"
            || string_at(reference, "/apiVersion") != "v1"
            || name.is_empty()
        {
            return Err(forbidden_error(
                request,
                "node requested token not bound to a pod",
            ));
        }
        // Without a uid the token would also be valid for a later pod of the same name.
        if uid.is_empty() {
            return Err(forbidden_error(
                request,
                "node requested token with a pod binding without a uid",
            ));
        }
        let pod = self
            .0
            .find_object("", "pods", request.namespace, name)
            .await?;
        let pod = pod.ok_or_else(|| ApiError::not_found("", "pods", name))?;
        // The watch cache may still hold an earlier pod of the same name, on which the node has no
        // more claim.
        if pod.uid() != uid {
            let why = format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            return Err(forbidden_error(request, why));
        }
        // One compromised node would otherwise obtain the identities of all pods in the cluster.
        if string_at(&pod, "/spec/nodeName") != node {
            return Err(forbidden_error(
                request,
                "node requested token bound to a pod scheduled on a different node",
            ));
        }
        self.check_audience(request, &pod).await
    }

    /// Checks the audiences of a token: a node gets those that its pod's volumes request. The empty
    /// one is the API server's.
    async fn check_audience(
        &self,
        request: &AdmissionRequest<'_>,
        pod: &Value,
    ) -> Result<(), ApiError> {
        let audience = match list_at(&request.object, "/spec/audiences") {
            [] => "",
            [audience] => audience.as_str().unwrap_or_default(),
            // A token for several audiences would be accepted by services that the pod did not ask
            // for.
            _ => {
                return Err(forbidden_error(
                    request,
                    "node may only request 0 or 1 audiences",
                ));
            }
        };
        if self.volumes_ask_for(pod, audience).await? || self.may_request(request, audience).await {
            return Ok(());
        }
        let user = &request.user.name;
        let why = format!(
            "audience {audience:?} not found in pod spec volume, {user} is not authorized to request tokens for this audience"
        );
        Err(forbidden_error(request, why))
    }

    async fn volumes_ask_for(&self, pod: &Value, audience: &str) -> Result<bool, ApiError> {
        for volume in list_at(pod, "/spec/volumes") {
            let mut tokens = list_at(volume, "/projected/sources")
                .iter()
                .filter_map(|source| source.get("serviceAccountToken"));
            if tokens.any(|token| !token.is_null() && string_at(token, "/audience") == audience) {
                return Ok(true);
            }
            // A CSI driver can request tokens for its volumes in its CSIDriver object.
            let driver = self.find_driver(pod, volume).await?;
            if driver.is_empty() {
                continue;
            }
            let driver = self
                .0
                .find_object("storage.k8s.io", "csidrivers", "", &driver)
                .await?
                .unwrap_or_default();
            if list_at(&driver, "/spec/tokenRequests")
                .iter()
                .any(|wanted| string_at(wanted, "/audience") == audience)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the CSI driver of a volume; empty without one.
    async fn find_driver(&self, pod: &Value, volume: &Value) -> Result<String, ApiError> {
        let generic = volume
            .get("ephemeral")
            .is_some_and(|source| !source.is_null());
        let claim = match string_at(volume, "/persistentVolumeClaim/claimName") {
            // The name that the ephemeral volume controller gives to the claim.
            "" if generic => format!("{}-{}", pod.name(), string_at(volume, "/name")),
            named => named.to_owned(),
        };
        // Without a claim, only an inline CSI volume can name a driver.
        if claim.is_empty() {
            return Ok(string_at(volume, "/csi/driver").to_owned());
        }
        let claim = self
            .0
            .find_object("", "persistentvolumeclaims", pod.namespace(), &claim)
            .await?
            .unwrap_or_default();
        let name = string_at(&claim, "/spec/volumeName");
        // A claim that is not bound yet has no driver, so that no token can be due.
        if name.is_empty() {
            return Ok(String::new());
        }
        let volume = self
            .0
            .find_object("", "persistentvolumes", "", name)
            .await?
            .unwrap_or_default();
        Ok(string_at(&volume, "/spec/csi/driver").to_owned())
    }

    /// Returns whether a role grants the audience. The check uses the audience as resource and the
    /// account as name.
    async fn may_request(&self, request: &AdmissionRequest<'_>, audience: &str) -> bool {
        // An administrator can grant audiences that no pod spec shows, for drivers that choose them
        // at run time.
        let attributes = Attributes {
            user: request.user.clone(),
            verb: "request-serviceaccounts-token-audience".into(),
            version: "v1".into(),
            namespace: request.namespace.into(),
            resource: audience.into(),
            name: request.name.into(),
            is_resource: true,
            ..Attributes::default()
        };
        let decision = self.0.authorizer.authorize(&attributes).await;
        matches!(decision, Decision::Allow(_))
    }
}
