//! Operations that read or change one object.

use super::object_type::ObjectType;
use super::{META, Operations};
use crate::content::{list_responses, media_types, request_body, schema_reference};
use crate::names::{kind_of, resource_type};
use crate::parameters::{self, put_parameters, query_parameters};
use crate::schemas::PATCH;
use api_kinds::Resource;
use serde_json::{Value, json};

impl Operations<'_> {
    pub(super) fn object_operations(
        &mut self,
        resource: &Resource,
        scope: &str,
    ) -> Vec<(&'static str, Value)> {
        let kind = &*resource.kind;
        let object = ObjectType::of_resource(resource, self.serves_cbor);
        let mut operations = self.read_and_write(
            &resource.verbs,
            &format!("{scope}{kind}"),
            "the specified",
            &object,
        );
        if resource.has_verb("delete") {
            let id = self.operation_id("delete", &format!("{scope}{kind}"));
            // 202 is the answer while the object still exists, for example because of finalizers.
            let codes: &[&str] = &["200", "202"];
            let operation = self.delete_operation(
                "delete",
                id,
                format!("delete a {kind}"),
                parameters::DELETE,
                resource,
                codes,
            );
            operations.push(("delete", operation));
        }
        operations
    }

    pub(super) fn read_and_write(
        &mut self,
        verbs: &[&str],
        rest: &str,
        of: &str,
        object: &ObjectType<'_>,
    ) -> Vec<(&'static str, Value)> {
        let (kind, gvk) = (object.owner, &object.gvk);
        let answer = schema_reference(&object.name);
        let mut operations = Vec::new();
        if verbs.contains(&"get") {
            operations.push((
                "get",
                json!({
                    "description": format!("read {of} {kind}"),
                    "operationId": self.operation_id("read", rest),
                    "responses": list_responses(&["200"], object.types.responses, &answer),
                    "tags": [self.group_tag()],
                    "x-kubernetes-action": "get",
                    "x-kubernetes-group-version-kind": gvk,
                }),
            ));
        }
        // The verb of RBAC is update, the method PUT, and the identifier says replace.
        if verbs.contains(&"update") {
            let (id, text) = (
                self.operation_id("replace", rest),
                format!("replace {of} {kind}"),
            );
            operations.push((
                "put",
                self.write_operation("put", id, text, parameters::WRITE, object),
            ));
        }
        if verbs.contains(&"patch") {
            let (id, text) = (
                self.operation_id("patch", rest),
                format!("partially update {of} {kind}"),
            );
            operations.push((
                "patch",
                self.write_operation("patch", id, text, parameters::PATCH, object),
            ));
        }
        operations
    }

    pub(super) fn write_operation(
        &self,
        method: &str,
        id: String,
        text: String,
        parameters: &[&str],
        object: &ObjectType<'_>,
    ) -> Value {
        let types = object.types;
        // Upstream documents 202 for creation, too.
        let codes: &[&str] = if method == "post" {
            &["200", "201", "202"]
        } else if method == "patch" && object.is_custom {
            // As upstream, although an apply creates an absent object here, too.
            &["200"]
        } else {
            // Server-side apply and some kinds create an absent object in a PUT or PATCH, hence
            // 201.
            &["200", "201"]
        };
        let body = match method {
            // The schema of a patch is an empty object: its form depends on the media type.
            "patch" => request_body(types.patches, PATCH),
            _ => request_body(types.bodies, &object.name),
        };
        let mut operation = json!({
            "description": text,
            "operationId": id,
            "requestBody": body,
            "responses": list_responses(codes, types.responses, &schema_reference(&object.name)),
            "tags": [self.group_tag()],
            "x-kubernetes-action": method,
            "x-kubernetes-group-version-kind": object.gvk,
        });
        put_parameters(&mut operation, query_parameters(parameters));
        operation
    }

    pub(super) fn delete_operation(
        &self,
        action: &str,
        id: String,
        text: String,
        parameters: &[&str],
        resource: &Resource,
        codes: &[&str],
    ) -> Value {
        // For pods, services and the like, the response is the object instead of a Status.
        let types = media_types(resource, self.serves_cbor);
        let returns_object = action == "delete"
            && !resource.is_custom()
            && matches!(
                &*resource.kind,
                "Pod"
                    | "Service"
                    | "ServiceAccount"
                    | "PodTemplate"
                    | "PersistentVolume"
                    | "PersistentVolumeClaim"
                    | "ResourceQuota"
                    | "StorageClass"
                    | "CSIDriver"
                    | "CSINode"
                    | "VolumeAttachment"
                    | "VolumeAttributesClass"
            );
        let name = if returns_object {
            resource_type(resource)
        } else {
            format!("{META}Status")
        };
        let mut options = request_body(types.bodies, &format!("{META}DeleteOptions"));
        // Most clients delete without a body, so the options must not be required.
        if let Value::Object(map) = &mut options {
            map.remove("required");
        }
        let mut operation = json!({
            "description": text,
            "operationId": id,
            "requestBody": options,
            "responses": list_responses(codes, types.responses, &schema_reference(&name)),
            "tags": [self.group_tag()],
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind_of(resource),
        });
        put_parameters(&mut operation, query_parameters(parameters));
        operation
    }
}
