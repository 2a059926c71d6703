//! The deprecated paths that begin with `/watch/`.

use super::{META, Operations};
use crate::content::{list_responses, media_types, schema_reference};
use crate::names::kind_of;
use crate::parameters::{across_parameters, name_parameter, scope_parameters};
use api_kinds::Resource;
use serde_json::{Value, json};

const WATCH_LIST: &str =
    "watch individual changes to a list of objects; the watch parameter of a list does the same";
const WATCH_OBJECT: &str =
    "watch changes to an object; a list with watch and a field selector does the same";

/// A path with one operation.
struct WatchPath {
    path: String,
    /// The operation's id without the verb.
    id: String,
    action: &'static str,
    description: &'static str,
    parameters: Vec<Value>,
}

impl Operations<'_> {
    pub(super) fn add_watches(
        &mut self,
        resource: &Resource,
        base: &str,
        scope: &str,
        folder: &str,
    ) {
        // Upstream documents no such paths for custom resources.
        if !resource.has_verb("watch") || resource.is_custom() {
            return;
        }
        let kind = &*resource.kind;
        let with_scope = || {
            let mut parameters = scope_parameters(resource);
            parameters.extend(across_parameters());
            parameters
        };
        let path = format!("{base}/watch/{folder}{}", resource.plural);
        let list = WatchPath {
            path: path.clone(),
            id: format!("{scope}{kind}List"),
            action: "watchlist",
            description: WATCH_LIST,
            parameters: with_scope(),
        };
        self.insert_watch(resource, list);
        let mut parameters = with_scope();
        parameters.push(name_parameter(kind));
        let object = WatchPath {
            path: format!("{path}/{{name}}"),
            id: format!("{scope}{kind}"),
            action: "watch",
            description: WATCH_OBJECT,
            parameters,
        };
        self.insert_watch(resource, object);
        if resource.namespaced {
            let across = WatchPath {
                path: format!("{base}/watch/{}", resource.plural),
                id: format!("{kind}ListForAllNamespaces"),
                action: "watchlist",
                description: WATCH_LIST,
                parameters: across_parameters(),
            };
            self.insert_watch(resource, across);
        }
    }

    fn insert_watch(&mut self, resource: &Resource, watch: WatchPath) {
        let event = format!("{META}WatchEvent");
        let types = media_types(resource, self.serves_cbor);
        let formats: Vec<&str> = types
            .responses
            .iter()
            .chain(types.streams)
            .copied()
            .collect();
        // Generators tell a watch of a list from that of one object by the action, not by the path.
        let operation = json!({
            "description": watch.description,
            "operationId": self.operation_id("watch", &watch.id),
            "responses": list_responses(&["200"], &formats, &schema_reference(&event)),
            "tags": [self.group_tag()],
            "x-kubernetes-action": watch.action,
            "x-kubernetes-group-version-kind": kind_of(resource),
        });
        self.insert_path(watch.path, watch.parameters, vec![("get", operation)]);
    }
}
