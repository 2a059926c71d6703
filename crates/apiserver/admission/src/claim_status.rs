//! ResourceClaims: the allocation is written by the scheduler, and the state of a device by its
//! driver.

use crate::context::{Context, list_at, string_at};
use api_meta::status::Cause;
use api_meta::tree::get;
use api_meta::{ApiError, semantic};
use apiserver_request::{Admission, AdmissionRequest, Attributes, Decision, Operation, User};
use serde_json::Value;
use std::collections::BTreeSet;

const GROUP: &str = "resource.k8s.io";
const ADMIN_ACCESS_LABEL: &str = "resource.kubernetes.io/admin-access";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const RESULTS: &str = "/status/allocation/devices/results";

/// Requires rights on the subresources `binding` and `driver`, which only authorization knows, for
/// changes of a ResourceClaim's status. Always on: upstream checks them in the strategy of the
/// kind.
pub struct ClaimStatus(pub Context);

#[async_trait::async_trait]
impl Admission for ClaimStatus {
    fn name(&self) -> &'static str {
        "ResourceClaimStatus"
    }

    // After validation, whose errors come first.
    async fn validate(&self, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
        let writes = (request.resource, request.subresource, request.operation)
            == ("resourceclaims", "status", Operation::Update);
        if request.group != GROUP || !writes {
            return Ok(());
        }
        let old = request.old.as_ref().unwrap_or(&Value::Null);
        let mut causes = Vec::new();
        causes.extend(self.check_admin_access(request, old).await?);
        causes.extend(self.check_binding(request, old).await);
        causes.extend(self.check_drivers(request, old).await);
        if causes.is_empty() {
            return Ok(());
        }
        Err(ApiError::invalid(GROUP, request.kind, request.name, causes))
    }
}

fn forbid(field: String, why: &str) -> Cause {
    Cause {
        reason: "FieldValueForbidden".into(),
        message: format!("Forbidden: {why}"),
        field,
    }
}

/// Returns the verb of the request, `update` or `patch`.
fn verb_of(request: &AdmissionRequest<'_>) -> &'static str {
    match string_at(&request.options, "/kind") {
        "PatchOptions" => "patch",
        _ => "update",
    }
}

/// Returns the index of the first device with administrative access.
fn find_admin_access(claim: &Value) -> Option<usize> {
    let mut results = list_at(claim, RESULTS).iter();
    results.position(|result| get(result, "adminAccess") == &Value::Bool(true))
}

impl ClaimStatus {
    async fn check_admin_access(
        &self,
        request: &AdmissionRequest<'_>,
        old: &Value,
    ) -> Result<Option<Cause>, ApiError> {
        let Some(index) = find_admin_access(&request.object) else {
            return Ok(None);
        };
        // The allocation can't be changed, only removed.
        if find_admin_access(old).is_some() {
            return Ok(None);
        }
        let found = self.0.find_object("", "namespaces", "", request.namespace);
        let namespace = found.await?;
        let labels = namespace
            .as_deref()
            .map(|n| get(get(n, "metadata"), "labels"));
        if labels.is_some_and(|labels| get(labels, ADMIN_ACCESS_LABEL) == "true") {
            return Ok(None);
        }
        let why = format!(
            "admin access to devices requires the `{ADMIN_ACCESS_LABEL}: true` label on the containing namespace"
        );
        let field = format!("status.allocation.devices.results[{index}].adminAccess");
        Ok(Some(forbid(field, &why)))
    }

    async fn check_binding(&self, request: &AdmissionRequest<'_>, old: &Value) -> Option<Cause> {
        let (old, new) = (get(old, "status"), get(&request.object, "status"));
        let same = |field: &str| semantic::equal(get(old, field), get(new, field));
        let verb = verb_of(request);
        if same("allocation") && same("reservedFor") {
            return None;
        }
        if self.grants(request.user, verb, "binding", "", "").await {
            return None;
        }
        let why = format!(
            "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb={verb:?} permission"
        );
        Some(forbid("status.allocation".into(), &why))
    }

    async fn check_drivers(&self, request: &AdmissionRequest<'_>, old: &Value) -> Vec<Cause> {
        let new = &request.object;
        // The states of devices vanish with the allocation.
        if get(get(new, "status"), "allocation").is_null() {
            return Vec::new();
        }
        let verb = verb_of(request);
        let mut verbs = vec![format!("arbitrary-node:{verb}")];
        if is_on_node(request.user, find_node(new)) {
            verbs.insert(0, format!("associated-node:{verb}"));
        }
        let (user, namespace) = (request.user, request.namespace);
        let mut causes = Vec::new();
        'drivers: for driver in list_changed_drivers(old, new) {
            for verb in &verbs {
                if self.grants(user, verb, "driver", namespace, driver).await {
                    continue 'drivers;
                }
            }
            let why = format!(
                "changing status.devices requires resource=\"resourceclaims/driver\", name={driver:?}, verb={verbs:?} permission"
            );
            causes.push(forbid("status.devices".into(), &why));
        }
        causes
    }

    async fn grants(
        &self,
        user: &User,
        verb: &str,
        subresource: &str,
        namespace: &str,
        name: &str,
    ) -> bool {
        let attributes = Attributes {
            user: user.clone(),
            verb: verb.to_owned(),
            group: GROUP.into(),
            version: "v1".into(),
            namespace: namespace.to_owned(),
            resource: "resourceclaims".into(),
            subresource: subresource.to_owned(),
            name: name.to_owned(),
            is_resource: true,
            ..Attributes::default()
        };
        let decision = self.0.authorizer.authorize(&attributes).await;
        matches!(decision, Decision::Allow(_))
    }
}

/// Returns the drivers whose device states differ.
fn list_changed_drivers<'a>(old: &'a Value, new: &'a Value) -> BTreeSet<&'a str> {
    let devices = |claim: &'a Value| list_at(claim, "/status/devices").iter();
    let lacks = |claim: &'a Value, device: &Value| {
        let mut others = devices(claim);
        !others.any(|other| semantic::equal(other, device))
    };
    let added = devices(new).filter(|device| lacks(old, device));
    let removed = devices(old).filter(|device| lacks(new, device));
    let changed = added.chain(removed);
    changed.map(|device| string_at(device, "/driver")).collect()
}

/// Returns the node to which an allocation belongs, if it is one node.
fn find_node(claim: &Value) -> Option<&str> {
    let terms = list_at(claim, "/status/allocation/nodeSelector/nodeSelectorTerms");
    let [term] = terms else { return None };
    let [field] = list_at(term, "/matchFields") else {
        return None;
    };
    let [name] = list_at(field, "/values") else {
        return None;
    };
    let is_by_name =
        string_at(field, "/key") == "metadata.name" && string_at(field, "/operator") == "In";
    let is_alone = list_at(term, "/matchExpressions").is_empty();
    name.as_str().filter(|_| is_by_name && is_alone)
}

/// Returns whether the user is a ServiceAccount of a pod on the node.
fn is_on_node(user: &User, node: Option<&str>) -> bool {
    let names = user.extra.get(NODE_NAME).map(Vec::as_slice);
    let own = match names {
        Some([name]) if user.name.starts_with("system:serviceaccount:") => Some(name.as_str()),
        _ => None,
    };
    own.is_some_and(|own| !own.is_empty() && node == Some(own))
}
