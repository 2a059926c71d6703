//! The deprecated paths that begin with `/watch/`.

use super::{META, Operations};
use crate::content::{BUILT_IN, list_responses, schema_reference};
use crate::names::kind_of;
use crate::parameters::{across_parameters, name_parameter, scope_parameters};
use api_kinds::Resource;
use serde_json::{Value, json};

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
        let event = format!("{META}WatchEvent");
        let mut watch =
            |path: String, rest: String, action: &str, text: &str, parameters: Vec<Value>| {
                let formats: Vec<&str> = BUILT_IN
                    .responses
                    .iter()
                    .chain(BUILT_IN.streams)
                    .copied()
                    .collect();
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
}
