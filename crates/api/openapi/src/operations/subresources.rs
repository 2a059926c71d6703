//! Paths of subresources.

use super::Operations;
use super::object_type::ObjectType;
use crate::content::{list_responses, media_types};
use crate::names::{
    capitalize, group_version, kind_of, resource_type, root_path, sub_name, type_name,
};
use crate::parameters::{self, name_parameter, query_parameters, scope_parameters};
use api_kinds::{ObjectSchema, Resource, Subresource};
use serde_json::{Value, json};

impl Operations<'_> {
    pub(super) fn add_subresource(&mut self, resource: &Resource, subresource: &Subresource) {
        let scope = if resource.namespaced {
            "Namespaced"
        } else {
            ""
        };
        // Subresources have no paths across namespaces: they always belong to one object.
        let folder = if resource.namespaced {
            "namespaces/{namespace}/"
        } else {
            ""
        };
        let path = format!(
            "{}/{folder}{}/{{name}}/{}",
            root_path(self.group, self.version),
            resource.plural,
            subresource.name
        );
        let rest = format!("{scope}{}{}", resource.kind, sub_name(&subresource.name));
        // Upstream marks all operations of a custom resource with its own kind.
        let (gvk, kind) = if resource.is_custom() {
            (kind_of(resource), &resource.kind)
        } else {
            let gvk = json!({"group": subresource.group, "version": subresource.version, "kind": subresource.kind});
            (gvk, &subresource.kind)
        };
        let mut parameters = vec![name_parameter(kind)];
        parameters.extend(scope_parameters(resource));
        if subresource.name == "log" {
            parameters.extend(query_parameters(parameters::connection_parameters(
                "log",
                &resource.plural,
            )));
            let operation = self.log_operation(&rest, resource, &gvk);
            self.insert_path(path, parameters, vec![("get", operation)]);
        } else if matches!(
            &*subresource.name,
            "exec" | "attach" | "portforward" | "proxy"
        ) {
            self.add_connection(resource, subresource, path, &rest, &gvk, parameters);
        } else {
            self.add_object_subresource(resource, subresource, path, &rest, gvk, parameters);
        }
    }

    fn log_operation(&self, rest: &str, resource: &Resource, gvk: &Value) -> Value {
        // The log itself is text. The other types are those of a Status.
        let formats: Vec<&str> = media_types(resource, self.serves_cbor)
            .responses
            .iter()
            .chain(&["text/plain"])
            .copied()
            .collect();
        json!({
            "description": format!("read log of the specified {}", resource.kind),
            "operationId": self.operation_id("read", rest),
            "responses": list_responses(&["200"], &formats, &json!({"type": "string"})),
            "tags": [self.group_tag()],
            "x-kubernetes-action": "get",
            "x-kubernetes-group-version-kind": gvk,
        })
    }

    fn add_object_subresource(
        &mut self,
        resource: &Resource,
        subresource: &Subresource,
        path: String,
        rest: &str,
        gvk: Value,
        mut parameters: Vec<Value>,
    ) {
        let name = match &subresource.schema {
            Some(ObjectSchema::BuiltIn(message)) => {
                self.messages.push(message);
                type_name(message)
            }
            Some(ObjectSchema::Custom(_)) => resource_type(resource),
            None => return,
        };
        let object = ObjectType {
            name,
            gvk,
            ..ObjectType::of_resource(resource, self.serves_cbor)
        };
        let of = format!("{} of the specified", subresource.name);
        let mut operations = self.read_and_write(&subresource.verbs, rest, &of, &object);
        if subresource.verbs.contains(&"create") {
            let text = format!("create {} of a {}", subresource.name, resource.kind);
            let id = self.operation_id("create", rest);
            let operation = self.write_operation("post", id, text, &[], &object);
            operations.push(("post", operation));
        }
        // As for collections, the parameters of a lone operation (bindings, evictions, tokens)
        // stand at the path.
        if operations.len() == 1 {
            parameters.splice(0..0, query_parameters(parameters::WRITE));
        }
        parameters.extend(query_parameters(&["pretty"]));
        self.insert_path(path, parameters, operations);
    }

    fn add_connection(
        &mut self,
        resource: &Resource,
        subresource: &Subresource,
        path: String,
        rest: &str,
        gvk: &Value,
        mut parameters: Vec<Value>,
    ) {
        // Streams are opened with POST by SPDY clients and with GET by WebSocket clients. A proxy
        // passes any method to its backend.
        let methods: &[&'static str] = match &*subresource.name {
            "proxy" => &["delete", "get", "head", "options", "patch", "post", "put"],
            _ => &["get", "post"],
        };
        let operations = |suffix: &str| -> Vec<(&'static str, Value)> {
            let operation = |method: &&'static str| {
                let id = format!(
                    "connect{}{}{rest}{suffix}",
                    group_version(self.group, self.version),
                    capitalize(method)
                );
                let text = format!(
                    "connect {} requests to {} of {}",
                    method.to_uppercase(),
                    subresource.name,
                    resource.kind
                );
                (
                    *method,
                    json!({
                        "description": text,
                        "operationId": id,
                        "responses": list_responses(&["200"], &["*/*"], &json!({"type": "string"})),
                        "tags": [self.group_tag()],
                        "x-kubernetes-action": "connect",
                        "x-kubernetes-group-version-kind": gvk,
                    }),
                )
            };
            methods.iter().map(operation).collect()
        };
        let plain = operations("");
        // A proxied request has a path of its own behind that of the subresource.
        let with_path = (subresource.name == "proxy").then(|| operations("WithPath"));
        parameters.extend(query_parameters(parameters::connection_parameters(
            &subresource.name,
            &resource.plural,
        )));
        self.insert_path(path.clone(), parameters.clone(), plain);
        if let Some(with_path) = with_path {
            parameters.push(crate::parameters::path_parameter(
                "path",
                "path to the resource".to_owned(),
            ));
            self.insert_path(format!("{path}/{{path}}"), parameters, with_path);
        }
    }
}
