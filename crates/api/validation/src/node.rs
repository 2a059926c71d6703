//! RuntimeClasses.

use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::{self, NameRule};
use crate::pod;
use crate::rules;
use api_meta::tree::{get, has, list, text};
use serde_json::{Value, json};
use std::collections::HashSet;

pub const RUNTIME_CLASS: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_runtime_class,
    update: validate_runtime_class_update,
    sub: accept_subresource,
};

fn validate_runtime_class(object: &Value, errors: &mut Errors) {
    let root = Path::ROOT;
    match text(object, "handler") {
        "" => errors.required(&root.child("handler"), ""),
        handler => errors.invalid_each(
            &root.child("handler"),
            handler,
            api_meta::names::dns1123_label(handler),
        ),
    }
    if has(object, "overhead") {
        let limits = json!({"limits": get(get(object, "overhead"), "podFixed")});
        pod::validate_resource_list(&limits, "limits", &root.child("overhead"), errors);
    }
    if has(object, "scheduling") {
        let (scheduling, path) = (get(object, "scheduling"), root.child("scheduling"));
        metadata::validate_labels(scheduling, "nodeSelector", &path, errors);
        let (all, at) = (list(scheduling, "tolerations"), path.child("tolerations"));
        pod::validate_tolerations(all, &at, errors);
        // They are merged with those of pods by what they tolerate, not by how long.
        let key = |t: &Value| ["key", "operator", "value", "effect"].map(|f| text(t, f).to_owned());
        let mut seen = HashSet::new();
        for (i, toleration) in all.iter().enumerate() {
            if !seen.insert(key(toleration)) {
                errors.duplicate(&at.index(i), toleration.clone());
            }
        }
    }
}

// The handler of a running pod cannot change, and pods refer to the class by name.
fn validate_runtime_class_update(new: &Value, old: &Value, errors: &mut Errors) {
    validate_runtime_class(new, errors);
    rules::validate_immutable(new, old, "handler", &Path::ROOT, errors);
}
