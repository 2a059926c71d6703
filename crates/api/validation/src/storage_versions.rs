//! StorageVersions and StorageVersionMigrations.

use crate::api_version::find_api_version_problems;
use crate::conditions::validate_conditions;
use crate::field::{Errors, Path};
use crate::kind_rules::Rules;
use crate::metadata::{NameRule, validate_own_names};
use crate::rules;
use api_meta::names;
use api_meta::resource_version::is_resource_version;
use api_meta::tree::{get, list, opt_text, text, texts};
use serde_json::Value;
use std::cell::LazyCell;
use std::collections::{HashMap, HashSet};

/// Errors of a status after which the rest of its lists is not validated. Each shows a value that
/// may be as long as the request.
const MOST_ERRORS: usize = 100;
/// Bytes of a list that a message repeats for each element that is not in it.
const SHOWN_LIST: usize = 1024;

pub const STORAGE_VERSION: Rules = Rules {
    name: NameRule::Own,
    create: validate_storage_version,
    // The spec has no fields, and the status is that of the old object.
    update: |_, _, _| {},
    sub: |_, new, _, errors| validate_storage_version_status(get(new, "status"), errors),
};

pub const MIGRATION: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_migration,
    update: validate_migration_update,
    sub: validate_migration_status,
};

fn validate_storage_version(object: &Value, errors: &mut Errors) {
    validate_own_names(object, errors, |name, _| {
        find_storage_version_name_problems(name)
    });
    validate_storage_version_status(get(object, "status"), errors);
}

fn find_storage_version_name_problems(name: &str) -> Vec<String> {
    let Some((group, resource)) = name.rsplit_once('.') else {
        return vec!["name must be in the form of <group>.<resource>".to_owned()];
    };
    let group = names::dns1123_subdomain(group).into_iter();
    let resource = names::dns1035_label(resource).into_iter();
    group
        .map(|problem| format!("the group segment {problem}"))
        .chain(resource.map(|problem| format!("the resource segment {problem}")))
        .collect()
}

fn validate_storage_version_status(status: &Value, errors: &mut Errors) {
    let path = Path::ROOT.child("status");
    let all = list(status, "storageVersions");
    let at = path.child("storageVersions");
    let mut seen = HashSet::new();
    for (i, server) in all.iter().enumerate() {
        if errors.len() >= MOST_ERRORS {
            break;
        }
        let at = at.index(i);
        let id = text(server, "apiServerID");
        if !seen.insert(id) {
            errors.duplicate(&at.child("apiServerID"), id);
        }
        validate_server(server, &at, errors);
    }
    validate_common_version(status, all, &path, errors);
    // The paths of conditions lack the name of the list, as upstream.
    let mut first: HashMap<&str, usize> = HashMap::new();
    for (i, condition) in list(status, "conditions").iter().enumerate() {
        if errors.len() >= MOST_ERRORS {
            break;
        }
        let at = path.index(i);
        let kind = text(condition, "type");
        if let Some(earlier) = first.insert(kind, i) {
            let detail = format!(
                "the type of the condition is not unique, it also appears in conditions[{earlier}]"
            );
            errors.invalid(&at.child("type"), kind, detail);
        }
        for field in ["type", "status"] {
            let value = text(condition, field);
            errors.invalid_each(&at.child(field), value, names::qualified_name(value));
        }
        for field in ["reason", "message"] {
            if text(condition, field).is_empty() {
                errors.required(&at.child(field), "");
            }
        }
    }
}

fn validate_server(server: &Value, path: &Path<'_>, errors: &mut Errors) {
    let id = text(server, "apiServerID");
    errors.invalid_each(&path.child("apiServerID"), id, names::dns1123_subdomain(id));
    let check = |version: &str, at: &Path<'_>, errors: &mut Errors| {
        let problems = find_api_version_problems(version);
        if !problems.is_empty() {
            errors.invalid(at, version, problems.join(","));
        }
    };
    let encoding = text(server, "encodingVersion");
    check(encoding, &path.child("encodingVersion"), errors);
    let decodable = texts(server, "decodableVersions");
    let known: HashSet<&str> = decodable.iter().copied().collect();
    let at = path.child("decodableVersions");
    for (i, version) in decodable.iter().enumerate() {
        if errors.len() >= MOST_ERRORS {
            return;
        }
        check(version, &at.index(i), errors);
    }
    if !known.contains(encoding) {
        let detail = format!("decodableVersions must include encodingVersion {encoding}");
        errors.invalid(&at, get(server, "decodableVersions").clone(), detail);
    }
    let shown = LazyCell::new(|| join_shortened(&decodable));
    let at = path.child("servedVersions");
    for (i, served) in texts(server, "servedVersions").into_iter().enumerate() {
        if errors.len() >= MOST_ERRORS {
            return;
        }
        check(served, &at.index(i), errors);
        if !known.contains(served) {
            let detail = format!(
                "individual served version : {served} must be included in decodableVersions : [{}]",
                *shown
            );
            errors.invalid(&at.index(i), served, detail);
        }
    }
}

/// Joins words by spaces, as Go prints a list. Words after [`SHOWN_LIST`] bytes become `...`.
fn join_shortened(words: &[&str]) -> String {
    let mut joined = String::new();
    for (i, word) in words.iter().enumerate() {
        if i > 0 {
            joined.push(' ');
        }
        if joined.len() + word.len() > SHOWN_LIST {
            joined.push_str("...");
            break;
        }
        joined.push_str(word);
    }
    joined
}

fn validate_common_version(
    status: &Value,
    servers: &[Value],
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let mut versions = servers.iter().map(|server| text(server, "encodingVersion"));
    let first = versions.next();
    let common = first.filter(|first| versions.all(|version| version == *first));
    let at = path.child("commonEncodingVersion");
    match (common, opt_text(status, "commonEncodingVersion")) {
        (None, Some(given)) => {
            let detail = "should be nil if servers do not agree on the same encoding version, or if there is no server reporting the supported versions yet";
            errors.invalid(&at, given, detail);
        }
        (Some(common), None) => {
            let detail = format!("the common encoding version is {common}");
            errors.invalid(&at, Value::Null, detail);
        }
        (Some(common), Some(given)) if common != given => {
            let detail = format!("the actual common encoding version is {common}");
            errors.invalid(&at, given, detail);
        }
        _ => {}
    }
}

fn validate_migration(object: &Value, errors: &mut Errors) {
    let path = Path::ROOT.child("spec");
    let (path, resource) = (path.child("resource"), get(get(object, "spec"), "resource"));
    let (plural, at) = (text(resource, "resource"), path.child("resource"));
    let problems = names::dns1035_label(plural);
    if plural.is_empty() {
        errors.required(&at, "resource is required to be set");
    } else if !problems.is_empty() {
        errors.invalid(&at, plural, problems.join(","));
    }
    let group = text(resource, "group");
    let problems = names::dns1123_subdomain(group);
    if !group.is_empty() && !problems.is_empty() {
        errors.invalid(&path.child("group"), group, problems.join(","));
    }
}

fn validate_migration_update(new: &Value, old: &Value, errors: &mut Errors) {
    validate_migration(new, errors);
    // A controller may be in the middle of the migration.
    rules::validate_immutable(new, old, "spec", &Path::ROOT, errors);
}

fn validate_migration_status(_: &str, new: &Value, old: &Value, errors: &mut Errors) {
    let (status, before) = (get(new, "status"), get(old, "status"));
    let path = Path::ROOT.child("status");
    let (version, at) = (
        text(status, "resourceVersion"),
        path.child("resourceVersion"),
    );
    if !version.is_empty() && !is_resource_version(version) {
        let detail = format!("resource version is not well formed: {version}");
        errors.invalid(&at, version, detail);
    }
    let at_conditions = path.child("conditions");
    validate_conditions(status, &at_conditions, errors);
    let old_version = text(before, "resourceVersion");
    if !old_version.is_empty() && old_version != version {
        errors.invalid(&at, version, "field is immutable");
    }
    let conditions = || get(status, "conditions").clone();
    let [succeeded, failed] = ["Succeeded", "Failed"].map(|kind| has_condition(status, kind));
    if succeeded && failed {
        let detail = "Both success and failed conditions cannot be true at the same time";
        errors.invalid(&at_conditions, conditions(), detail);
    }
    if has_condition(before, "Succeeded") && !succeeded {
        let detail = "Success condition cannot be set to false once it is true";
        errors.invalid(&at_conditions, conditions(), detail);
    }
    if has_condition(before, "Failed") && !failed {
        let detail = "Failed condition cannot be set to false once it is true";
        errors.invalid(&at_conditions, conditions(), detail);
    }
}

fn has_condition(status: &Value, kind: &str) -> bool {
    let mut all = list(status, "conditions").iter();
    let found = all.find(|condition| text(condition, "type") == kind);
    found.is_some_and(|condition| text(condition, "status") == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn validate(servers: Value) -> Vec<String> {
        let mut errors = Errors::default();
        let status = json!({"storageVersions": servers});
        validate_storage_version_status(&status, &mut errors);
        errors.0.iter().map(ToString::to_string).collect()
    }

    fn many(prefix: &str, count: usize) -> Vec<String> {
        (0..count).map(|n| format!("{prefix}{n}")).collect()
    }

    #[test]
    fn served_version_that_can_not_be_decoded_is_shown_with_the_list() {
        let server = |decodable: Value| {
            json!([{"apiServerID": "a", "encodingVersion": "v1",
                "decodableVersions": decodable, "servedVersions": ["v1", "v3"]}])
        };
        let expected = "status.storageVersions[0].servedVersions[1]: Invalid value: \"v3\": \
            individual served version : v3 must be included in decodableVersions : ";
        let errors = validate(server(json!(["v1", "v2"])));
        assert!(
            errors.contains(&format!("{expected}[v1 v2]")),
            "{errors:#?}"
        );
        let mut long = many("v", 1000);
        long.retain(|version| version != "v3");
        let errors = validate(server(json!(long)));
        let found = errors.iter().find(|error| error.starts_with(expected));
        let length = found.map_or(0, String::len);
        let is_cut = found.is_some_and(|error| error.ends_with(" ...]"));
        assert!(is_cut && length < 2 * SHOWN_LIST, "{errors:#?}");
    }

    #[test]
    fn errors_of_all_lists_are_bounded() {
        let server = |id: String, decodable: Vec<String>, served: Vec<String>| {
            json!({"apiServerID": id, "encodingVersion": "v1", "decodableVersions": decodable,
                "servedVersions": served})
        };
        let (few, lots) = (vec!["v1".to_owned()], many("v", 2000));
        for (case, servers) in [
            ("served", json!([server("a".into(), few.clone(), lots)])),
            (
                "decodable",
                json!([server("a".into(), many("V", 2000), few.clone())]),
            ),
            (
                "servers",
                json!(vec![server("A".into(), few.clone(), few); 2000]),
            ),
        ] {
            let found = validate(servers).len();
            // The last element adds some, and the common version one.
            assert!(
                (MOST_ERRORS..MOST_ERRORS + 10).contains(&found),
                "{case}: {found}"
            );
        }
        let condition = json!({"type": "_", "status": "_"});
        let mut errors = Errors::default();
        let status = json!({"conditions": vec![condition; 2000]});
        validate_storage_version_status(&status, &mut errors);
        assert!(errors.len() < MOST_ERRORS + 10, "{}", errors.len());
    }
}
