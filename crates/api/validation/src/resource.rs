//! ResourceClaims, DeviceClasses, ResourceSlices, DeviceTaintRules and ResourcePoolStatusRequests.

mod capacity;
mod claim;
mod device;
mod pool_status;
mod slice;
mod status;
mod taint_rule;
mod values;

pub use claim::{CLAIM, DEVICE_CLASS, TEMPLATE};
pub use pool_status::POOL_STATUS;
pub use slice::SLICE;
pub use taint_rule::TAINT_RULE;

use crate::field::{Errors, FieldError, Path};
use api_meta::Kind;
use api_meta::tree::{get, list};
use serde_json::Value;

/// Label of namespaces whose claims may request access to devices in use.
pub const ADMIN_ACCESS_LABEL: &str = "resource.kubernetes.io/admin-access";

/// Checks that a ResourceClaim or a template of one in a namespace without [`ADMIN_ACCESS_LABEL`]
/// does not request administrative access. Other kinds pass.
pub fn validate_admin_access(kind: Kind<'_>, object: &Value) -> Vec<FieldError> {
    let spec = match (kind.group, kind.kind) {
        ("resource.k8s.io", "ResourceClaim") => get(object, "spec"),
        ("resource.k8s.io", "ResourceClaimTemplate") => get(get(object, "spec"), "spec"),
        _ => return Vec::new(),
    };
    let path = Path::ROOT.child("spec");
    let at = path.child("devices");
    let at = at.child("requests");
    let mut errors = Errors::default();
    for (i, request) in list(get(spec, "devices"), "requests").iter().enumerate() {
        // Administrative access reaches devices that other pods have allocated (KEP-5018).
        if get(get(request, "exactly"), "adminAccess") == &Value::Bool(true) {
            let detail = format!(
                "admin access to devices requires the `{ADMIN_ACCESS_LABEL}: true` label on the containing namespace"
            );
            errors.forbidden(&at.index(i).child("adminAccess"), detail);
        }
    }
    errors.0
}

/// Rejects metadata of a template that only the server sets.
#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_for_administrative_access_are_found() {
        let kind = |kind| Kind {
            group: "resource.k8s.io",
            version: "v1",
            kind,
            namespaced: true,
        };
        let request = |admin: bool| json!({"name": "r", "exactly": {"adminAccess": admin}});
        let spec = json!({"devices": {"requests": [request(false), request(true)]}});
        for (name, object, expect) in [
            (
                "ResourceClaim",
                json!({"spec": spec}),
                &["spec.devices.requests[1].adminAccess"][..],
            ),
            (
                "ResourceClaimTemplate",
                json!({"spec": {"spec": spec}}),
                &["spec.devices.requests[1].adminAccess"],
            ),
            ("ResourceClaim", json!({"spec": {}}), &[]),
            ("DeviceClass", json!({"spec": spec}), &[]),
        ] {
            let found = validate_admin_access(kind(name), &object);
            assert_eq!(
                found
                    .iter()
                    .map(|error| error.field.as_str())
                    .collect::<Vec<_>>(),
                expect,
                "{name}"
            );
        }
    }
}
