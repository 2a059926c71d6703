//! Paths and operations of a group and version, for OpenAPI version 3.

mod bodies;
mod object_type;
mod subresources;
mod watches;

use api_kinds::Resource;
use api_schema::Message;
use serde_json::{Map, Value, json};

use crate::content::{BUILT_IN, list_responses, media_types, schema_reference};
use crate::custom::CustomResources;
use crate::names::{group_name, group_version, kind_of, list_type, root_path, to_identifier};
use crate::parameters::{
    self, across_parameters, name_parameter, put_parameters, query_parameters, scope_parameters,
};
use object_type::ObjectType;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// Collects paths and the types that they use.
pub(crate) struct Operations<'a> {
    group: &'a str,
    version: &'a str,
    pub(crate) paths: Map<String, Value>,
    pub(crate) messages: Vec<&'static Message>,
    pub(crate) has_built_in: bool,
    pub(crate) has_custom: bool,
    serves_cbor: bool,
}

impl<'a> Operations<'a> {
    /// Collects all paths of a served version: of its built-in resources, and of the custom ones.
    pub(crate) fn new(group: &'a str, version: &'a str, custom: &'a CustomResources) -> Self {
        let mut operations = Self {
            group,
            version,
            paths: Map::new(),
            messages: Vec::new(),
            has_built_in: false,
            has_custom: false,
            serves_cbor: custom.serves_cbor(),
        };
        for resource in custom.built_in_of(group, version) {
            operations.has_built_in = true;
            operations.add_with_subresources(resource);
        }
        // As upstream: documents of custom resources lack the path of discovery.
        if operations.has_built_in {
            operations.add_root();
        }
        for version in custom.of_version(group, version) {
            operations.has_custom = true;
            operations.add_with_subresources(&version.resource);
        }
        operations
    }

    fn add_with_subresources(&mut self, resource: &Resource) {
        self.add_resource(resource);
        for subresource in &resource.subresources {
            self.add_subresource(resource, subresource);
        }
    }

    fn group_tag(&self) -> String {
        let version = to_identifier(self.version);
        format!("{}_{version}", group_name(self.group))
    }

    fn operation_id(&self, verb: &str, rest: &str) -> String {
        let rest = to_identifier(rest);
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
        // A custom resource can't replace what a built-in one has.
        let entry = self.paths.entry(format!("/{path}"));
        entry.or_insert(Value::Object(item));
    }

    fn add_root(&mut self) {
        let list = format!("{META}APIResourceList");
        let operation = json!({
            "description": "get available resources",
            "operationId": self.operation_id("get", "APIResources"),
            "responses": list_responses(&["200"], BUILT_IN.responses, &schema_reference(&list)),
            "tags": [self.group_tag()],
        });
        self.insert_path(
            format!("{}/", root_path(self.group, self.version)),
            Vec::new(),
            vec![("get", operation)],
        );
    }

    fn add_resource(&mut self, resource: &Resource) {
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
    fn add_across(&mut self, resource: &Resource, base: &str) {
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

    fn list_operation(&mut self, resource: &Resource, id: String, parameters: &[&str]) -> Value {
        let types = media_types(resource, self.serves_cbor);
        let formats: Vec<&str> = types
            .responses
            .iter()
            // A list with `watch=true` is a stream, in media types of its own.
            .chain(if resource.has_verb("watch") {
                types.streams
            } else {
                &[]
            })
            .copied()
            .collect();
        let list = list_type(resource);
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
        resource: &Resource,
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
            let object = ObjectType::of_resource(resource, self.serves_cbor);
            let operation = self.write_operation("post", id, text, own, &object);
            operations.push(("post", operation));
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
}
