//! Paths and operations of a group and version, for OpenAPI version 3.

use api_kinds::{ObjectSchema, Resource, Subresource};
use api_schema::Message;
use serde_json::{Map, Value, json};

use crate::content::{FORMATS, PATCHES, STREAMS, list_responses, request_body, schema_reference};
use crate::names::{
    capitalize, group_name, group_version, kind_of, resource_type, root_path, sub_name, type_name,
};
use crate::parameters::{
    self, across_parameters, name_parameter, put_parameters, query_parameters, scope_parameters,
};
use crate::schemas::PATCH;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// Collects paths and the types that they use.
pub(crate) struct Operations {
    group: &'static str,
    version: &'static str,
    pub(crate) paths: Map<String, Value>,
    pub(crate) messages: Vec<&'static Message>,
}

impl Operations {
    /// Collects all paths of a served version.
    pub(crate) fn new(group: &'static str, version: &'static str) -> Self {
        let mut operations = Self {
            group,
            version,
            paths: Map::new(),
            messages: Vec::new(),
        };
        operations.add_root();
        for resource in api_kinds::served()
            .filter(|resource| resource.group == group && resource.version == version)
        {
            operations.add_resource(resource);
            for subresource in &resource.subresources {
                operations.add_subresource(resource, subresource);
            }
        }
        operations
    }

    fn group_tag(&self) -> String {
        format!("{}_{}", group_name(self.group), self.version)
    }

    fn operation_id(&self, verb: &str, rest: &str) -> String {
        format!("{verb}{}{rest}", group_version(self.group, self.version))
    }

    fn insert_path(
        &mut self,
        path: String,
        parameters: Vec<Value>,
        operations: Vec<(&'static str, Value)>,
    ) {
        // A path without operations would be listed by generators as an empty API.
        if operations.is_empty() {
            return;
        }
        let mut item: Map<String, Value> = operations
            .into_iter()
            .map(|(method, op)| (method.to_owned(), op))
            .collect();
        if !parameters.is_empty() {
            item.insert("parameters".to_owned(), Value::Array(parameters));
        }
        self.paths.insert(format!("/{path}"), Value::Object(item));
    }

    fn add_root(&mut self) {
        let list = format!("{META}APIResourceList");
        let operation = json!({
            "description": "get available resources",
            "operationId": self.operation_id("get", "APIResources"),
            "responses": list_responses(&["200"], FORMATS, &schema_reference(&list)),
            "tags": [self.group_tag()],
        });
        self.insert_path(
            format!("{}/", root_path(self.group, self.version)),
            Vec::new(),
            vec![("get", operation)],
        );
    }

    fn add_resource(&mut self, resource: &'static Resource) {
        self.messages.extend(resource.schema.message());
        let base = root_path(self.group, self.version);
        // Generated clients name their methods by this word: `listNamespacedPod`, but `listNode`.
        let scope = if resource.namespaced {
            "Namespaced"
        } else {
            ""
        };
        // Upstream's paths: all objects of a namespace, one object, and lists across namespaces in
        // `add_across`.
        let folder = if resource.namespaced {
            "namespaces/{namespace}/"
        } else {
            ""
        };
        let mut collection_parameters = scope_parameters(resource);
        let collection = self.collection_operations(resource, scope, &mut collection_parameters);
        self.insert_path(
            format!("{base}/{folder}{}", resource.plural),
            collection_parameters,
            collection,
        );
        let mut parameters = vec![name_parameter(&resource.kind)];
        parameters.extend(scope_parameters(resource));
        parameters.extend(query_parameters(&["pretty"]));
        let named = self.object_operations(resource, scope);
        self.insert_path(
            format!("{base}/{folder}{}/{{name}}", resource.plural),
            parameters,
            named,
        );
        self.add_across(resource, &base);
        // `/watch/` paths are deprecated, but generated clients still have methods for them.
        self.add_watches(resource, &base, scope, folder);
    }

    /// Adds lists across namespaces.
    fn add_across(&mut self, resource: &'static Resource, base: &str) {
        // Cluster-scoped resources have one list, the collection itself.
        if !resource.namespaced || !resource.has_verb("list") {
            return;
        }
        // Names of methods in generated clients are made of these identifiers, so they are a part
        // of the contract.
        let id = self.operation_id("list", &format!("{}ForAllNamespaces", resource.kind));
        let operation = self.list_operation(resource, id, &[]);
        self.insert_path(
            format!("{base}/{}", resource.plural),
            across_parameters(),
            vec![("get", operation)],
        );
    }

    fn add_watches(&mut self, resource: &'static Resource, base: &str, scope: &str, folder: &str) {
        if !resource.has_verb("watch") {
            return;
        }
        let event = format!("{META}WatchEvent");
        let mut watch =
            |path: String, rest: String, action: &str, text: &str, parameters: Vec<Value>| {
                let formats: Vec<&str> = FORMATS.iter().chain(STREAMS).copied().collect();
                // Generators tell a watch of a list from that of one object by the action, not by
                // the path.
                let operation = json!({
                    "description": text,
                    "operationId": self.operation_id("watch", &rest),
                    "responses": list_responses(&["200"], &formats, &schema_reference(&event)),
                    "tags": [self.group_tag()],
                    "x-kubernetes-action": action,
                    "x-kubernetes-group-version-kind": kind_of(resource),
                });
                self.insert_path(path, parameters, vec![("get", operation)]);
            };
        let all = "watch individual changes to a list of objects; the watch parameter of a list does the same";
        let one =
            "watch changes to an object; a list with watch and a field selector does the same";
        let kind = &*resource.kind;
        let with_scope = || {
            let mut parameters = scope_parameters(resource);
            parameters.extend(across_parameters());
            parameters
        };
        let path = format!("{base}/watch/{folder}{}", resource.plural);
        watch(
            path.clone(),
            format!("{scope}{kind}List"),
            "watchlist",
            all,
            with_scope(),
        );
        let mut parameters = with_scope();
        parameters.push(name_parameter(kind));
        watch(
            format!("{path}/{{name}}"),
            format!("{scope}{kind}"),
            "watch",
            one,
            parameters,
        );
        if resource.namespaced {
            let path = format!("{base}/watch/{}", resource.plural);
            watch(
                path,
                format!("{kind}ListForAllNamespaces"),
                "watchlist",
                all,
                across_parameters(),
            );
        }
    }

    fn list_operation(
        &mut self,
        resource: &'static Resource,
        id: String,
        parameters: &[&str],
    ) -> Value {
        let formats: Vec<&str> = FORMATS
            .iter()
            // A list with `watch=true` is a stream, in media types of its own.
            .chain(if resource.has_verb("watch") {
                STREAMS
            } else {
                &[]
            })
            .copied()
            .collect();
        // The type of a list has no row in the table of kinds, only a name that is derived.
        let list = resource_type(resource) + "List";
        let list_message =
            |message: &Message| api_schema::schema().message(&format!("{}List", message.name));
        self.messages
            .extend(resource.schema.message().and_then(list_message));
        let mut operation = json!({
            "description": format!("list or watch objects of kind {}", resource.kind),
            "operationId": id,
            "responses": list_responses(&["200"], &formats, &schema_reference(&list)),
            "tags": [self.group_tag()],
            "x-kubernetes-action": "list",
            "x-kubernetes-group-version-kind": kind_of(resource),
        });
        put_parameters(&mut operation, query_parameters(parameters));
        operation
    }

    fn collection_operations(
        &mut self,
        resource: &'static Resource,
        scope: &str,
        parameters: &mut Vec<Value>,
    ) -> Vec<(&'static str, Value)> {
        let kind = &*resource.kind;
        let (list, create) = (resource.has_verb("list"), resource.has_verb("create"));
        let mut operations = Vec::new();
        if list {
            let id = self.operation_id("list", &format!("{scope}{kind}"));
            // Parameters that all operations of a path share are listed once at the path.
            // Upstream's builder does so, and generators depend on it.
            let own = if create { parameters::LIST } else { &[] };
            operations.push(("get", self.list_operation(resource, id, own)));
        }
        if create {
            let own = if list { parameters::WRITE } else { &[] };
            let id = self.operation_id("create", &format!("{scope}{kind}"));
            let text = format!("create a {kind}");
            operations.push((
                "post",
                self.write_operation(
                    "post",
                    id,
                    text,
                    own,
                    &resource_type(resource),
                    &kind_of(resource),
                ),
            ));
        }
        if resource.has_verb("deletecollection") {
            let id = self.operation_id("delete", &format!("Collection{scope}{kind}"));
            let own = parameters::DELETE_COLLECTION;
            let operation = self.delete_operation(
                "deletecollection",
                id,
                format!("delete collection of {kind}"),
                own,
                resource,
                &["200"],
            );
            operations.push(("delete", operation));
        }
        // With one operation alone, its parameters are those of the path.
        match (list, create) {
            (false, _) => parameters
                .splice(0..0, query_parameters(parameters::WRITE))
                .for_each(drop),
            (true, false) => parameters.extend(query_parameters(parameters::LIST)),
            _ => {}
        }
        parameters.extend(query_parameters(&["pretty"]));
        operations
    }

    fn object_operations(
        &mut self,
        resource: &'static Resource,
        scope: &str,
    ) -> Vec<(&'static str, Value)> {
        let kind = &*resource.kind;
        let (name, gvk) = (resource_type(resource), kind_of(resource));
        let mut operations = self.read_and_write(
            &resource.verbs,
            &format!("{scope}{kind}"),
            "the specified",
            kind,
            &name,
            &gvk,
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

    fn read_and_write(
        &mut self,
        verbs: &[&str],
        rest: &str,
        of: &str,
        kind: &str,
        name: &str,
        gvk: &Value,
    ) -> Vec<(&'static str, Value)> {
        let mut operations = Vec::new();
        if verbs.contains(&"get") {
            operations.push((
                "get",
                json!({
                    "description": format!("read {of} {kind}"),
                    "operationId": self.operation_id("read", rest),
                    "responses": list_responses(&["200"], FORMATS, &schema_reference(name)),
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
                self.write_operation("put", id, text, parameters::WRITE, name, gvk),
            ));
        }
        if verbs.contains(&"patch") {
            let (id, text) = (
                self.operation_id("patch", rest),
                format!("partially update {of} {kind}"),
            );
            operations.push((
                "patch",
                self.write_operation("patch", id, text, parameters::PATCH, name, gvk),
            ));
        }
        operations
    }

    fn write_operation(
        &self,
        method: &str,
        id: String,
        text: String,
        parameters: &[&str],
        name: &str,
        gvk: &Value,
    ) -> Value {
        // Upstream documents 202 for creation, too.
        let codes: &[&str] = if method == "post" {
            &["200", "201", "202"]
        } else {
            // Server-side apply and some kinds create an absent object in a PUT or PATCH, hence
            // 201.
            &["200", "201"]
        };
        let body = match method {
            // The schema of a patch is an empty object: its form depends on the media type.
            "patch" => request_body(PATCHES, PATCH),
            _ => request_body(&["*/*"], name),
        };
        let mut operation = json!({
            "description": text,
            "operationId": id,
            "requestBody": body,
            "responses": list_responses(codes, FORMATS, &schema_reference(name)),
            "tags": [self.group_tag()],
            "x-kubernetes-action": method,
            "x-kubernetes-group-version-kind": gvk,
        });
        put_parameters(&mut operation, query_parameters(parameters));
        operation
    }

    fn delete_operation(
        &self,
        action: &str,
        id: String,
        text: String,
        parameters: &[&str],
        resource: &Resource,
        codes: &[&str],
    ) -> Value {
        // For pods, services and the like, the response is the object instead of a Status.
        let returns_object = action == "delete"
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
        let mut options = request_body(&["*/*"], &format!("{META}DeleteOptions"));
        // Most clients delete without a body, so the options must not be required.
        if let Value::Object(map) = &mut options {
            map.remove("required");
        }
        let mut operation = json!({
            "description": text,
            "operationId": id,
            "requestBody": options,
            "responses": list_responses(codes, FORMATS, &schema_reference(&name)),
            "tags": [self.group_tag()],
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind_of(resource),
        });
        put_parameters(&mut operation, query_parameters(parameters));
        operation
    }

    fn add_subresource(&mut self, resource: &'static Resource, subresource: &'static Subresource) {
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
        let gvk = json!({"group": subresource.group, "version": subresource.version, "kind": subresource.kind});
        let mut parameters = vec![name_parameter(&subresource.kind)];
        parameters.extend(scope_parameters(resource));
        if subresource.name == "log" {
            parameters.extend(query_parameters(parameters::connection_parameters(
                "log",
                &resource.plural,
            )));
            let operation = self.log_operation(&rest, &resource.kind, &gvk);
            self.insert_path(path, parameters, vec![("get", operation)]);
        } else if matches!(
            &*subresource.name,
            "exec" | "attach" | "portforward" | "proxy"
        ) {
            self.add_connection(resource, subresource, path, &rest, &gvk, parameters);
        } else {
            self.add_object_subresource(resource, subresource, path, &rest, &gvk, parameters);
        }
    }

    fn log_operation(&self, rest: &str, kind: &str, gvk: &Value) -> Value {
        // The log itself is text. The other types are those of a Status.
        let formats: Vec<&str> = FORMATS.iter().chain(&["text/plain"]).copied().collect();
        json!({
            "description": format!("read log of the specified {kind}"),
            "operationId": self.operation_id("read", rest),
            "responses": list_responses(&["200"], &formats, &json!({"type": "string"})),
            "tags": [self.group_tag()],
            "x-kubernetes-action": "get",
            "x-kubernetes-group-version-kind": gvk,
        })
    }

    fn add_object_subresource(
        &mut self,
        resource: &'static Resource,
        subresource: &'static Subresource,
        path: String,
        rest: &str,
        gvk: &Value,
        mut parameters: Vec<Value>,
    ) {
        let Some(message) = subresource.schema.as_ref().and_then(ObjectSchema::message) else {
            return;
        };
        self.messages.push(message);
        let (name, of) = (
            type_name(message),
            format!("{} of the specified", subresource.name),
        );
        let mut operations =
            self.read_and_write(&subresource.verbs, rest, &of, &resource.kind, &name, gvk);
        if subresource.verbs.contains(&"create") {
            let text = format!("create {} of a {}", subresource.name, resource.kind);
            let id = self.operation_id("create", rest);
            operations.push((
                "post",
                self.write_operation("post", id, text, &[], &name, gvk),
            ));
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
        resource: &'static Resource,
        subresource: &'static Subresource,
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
