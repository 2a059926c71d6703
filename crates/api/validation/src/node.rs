//! RuntimeClasses.

use crate::dispatch::{Rules, no_sub};
use crate::field::{Errors, Path};
use crate::metadata::{self, NameRule};
use crate::pod;
use crate::rules;
use crate::tree::{get, has, list, text};
use serde_json::{Value, json};

pub const RUNTIME_CLASS: Rules = Rules {
    name: NameRule::Subdomain,
    create: class,
    update: update_class,
    sub: no_sub,
};

fn class(object: &Value, errors: &mut Errors) {
    let handler = text(object, "handler");
    errors.invalid_each(
        &Path::ROOT.child("handler"),
        handler,
        api_meta::names::dns1123_label(handler),
    );
    if has(object, "overhead") {
        let limits = json!({"limits": get(get(object, "overhead"), "podFixed")});
        pod::resource_list(&limits, "limits", &Path::ROOT.child("overhead"), errors);
    }
    if has(object, "scheduling") {
        let (scheduling, path) = (get(object, "scheduling"), Path::ROOT.child("scheduling"));
        metadata::labels(scheduling, "nodeSelector", &path, errors);
        pod::tolerations(
            list(scheduling, "tolerations"),
            &path.child("tolerations"),
            errors,
        );
    }
}

fn update_class(new: &Value, old: &Value, errors: &mut Errors) {
    rules::immutable(new, old, "handler", &Path::ROOT, errors);
}
