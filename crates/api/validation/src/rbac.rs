//! Roles and bindings.

use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::selector;
use api_meta::names;
use api_meta::tree::{get, has, list, same, text};
use serde_json::Value;

const GROUP: &str = "rbac.authorization.k8s.io";

const fn path_named_rules(
    create: crate::kind_rules::Create,
    update: crate::kind_rules::Update,
) -> Rules {
    Rules {
        name: NameRule::PathSegment,
        create,
        update,
        sub: accept_subresource,
    }
}

pub const ROLE: Rules = path_named_rules(
    |o, e| validate_role(o, true, false, e),
    |new, _, e| validate_role(new, true, false, e),
);
pub const CLUSTER_ROLE: Rules = path_named_rules(
    |o, e| validate_role(o, false, false, e),
    |new, old, e| validate_role(new, false, has_invalid_selector(old), e),
);
pub const ROLE_BINDING: Rules = path_named_rules(
    |o, e| validate_role_binding(o, &["Role", "ClusterRole"], e),
    |new, old, e| validate_role_binding_update(new, old, &["Role", "ClusterRole"], e),
);
pub const CLUSTER_ROLE_BINDING: Rules = path_named_rules(
    |o, e| validate_role_binding(o, &["ClusterRole"], e),
    |new, old, e| validate_role_binding_update(new, old, &["ClusterRole"], e),
);

/// Returns whether an old role has a value in a selector that is no label value.
fn has_invalid_selector(role: &Value) -> bool {
    list(get(role, "aggregationRule"), "clusterRoleSelectors")
        .iter()
        .any(selector::has_invalid_values)
}

fn validate_role(object: &Value, namespaced: bool, invalid_values: bool, errors: &mut Errors) {
    // Whether a client may grant these rights is decided by the registry, not here: an update by a
    // controller may keep them.
    let path = Path::ROOT.child("rules");
    for (i, rule) in list(object, "rules").iter().enumerate() {
        validate_policy_rule(rule, namespaced, &path.index(i), errors);
    }
    if !has(object, "aggregationRule") {
        return;
    }
    let at = Path::ROOT.child("aggregationRule");
    let at = at.child("clusterRoleSelectors");
    let selectors = list(get(object, "aggregationRule"), "clusterRoleSelectors");
    // The controller would otherwise empty the rules of such a role.
    if selectors.is_empty() {
        errors.required(
            &at,
            "at least one clusterRoleSelector required if aggregationRule is non-nil",
        );
    }
    // Cluster roles are aggregated from all that match, so a broken selector would silently remove
    // rights.
    for (i, one) in selectors.iter().enumerate() {
        selector::validate_selector_leniently(one, invalid_values, &at.index(i), errors);
        if selector::compile_selector(one).is_err() {
            errors.invalid(&at.index(i), one.clone(), "invalid label selector.");
        }
    }
}

fn validate_policy_rule(rule: &Value, namespaced: bool, path: &Path<'_>, errors: &mut Errors) {
    // A rule without verbs grants nothing, which the author of a role can't have meant.
    if list(rule, "verbs").is_empty() {
        errors.required(
            &path.child("verbs"),
            "verbs must contain at least one value",
        );
    }
    let urls = list(rule, "nonResourceURLs");
    let (groups, resources) = (list(rule, "apiGroups"), list(rule, "resources"));
    if !urls.is_empty() {
        let at = path.child("nonResourceURLs");
        // A namespaced role must not grant access to paths that belong to the whole server.
        if namespaced {
            errors.invalid(
                &at,
                urls.to_vec(),
                "namespaced rules cannot apply to non-resource URLs",
            );
        }
        // A path and a resource are authorized by different attributes of a request.
        if !groups.is_empty() || !resources.is_empty() || !list(rule, "resourceNames").is_empty() {
            errors.invalid(
                &at,
                urls.to_vec(),
                "rules cannot apply to both regular resources and non-resource URLs",
            );
        }
        return;
    }
    // The core group is the empty text in the list. An empty list would grant nothing.
    if groups.is_empty() {
        errors.required(
            &path.child("apiGroups"),
            "resource rules must supply at least one api group",
        );
    }
    if resources.is_empty() {
        errors.required(
            &path.child("resources"),
            "resource rules must supply at least one resource",
        );
    }
}

fn validate_role_binding(object: &Value, kinds: &[&str], errors: &mut Errors) {
    let (role, path) = (get(object, "roleRef"), Path::ROOT.child("roleRef"));
    // Other groups are kept for other authorizers' roles, so a typo must not be read as the
    // default.
    let group = text(role, "apiGroup");
    if group != GROUP {
        errors.not_supported(&path.child("apiGroup"), group, &[GROUP]);
    }
    let kind = text(role, "kind");
    if !kinds.contains(&kind) {
        errors.not_supported(&path.child("kind"), kind, kinds);
    }
    // The role need not exist, so that roles and bindings can be applied in any order.
    let name = text(role, "name");
    if name.is_empty() {
        errors.required(&path.child("name"), "");
    } else {
        errors.invalid_each(&path.child("name"), name, names::path_segment(name));
    }
    let at = Path::ROOT.child("subjects");
    // Only role bindings may refer to both kinds.
    let namespaced = kinds.len() > 1;
    for (i, subject) in list(object, "subjects").iter().enumerate() {
        validate_subject(subject, namespaced, &at.index(i), errors);
    }
}

fn validate_subject(subject: &Value, namespaced: bool, path: &Path<'_>, errors: &mut Errors) {
    let (name, group) = (text(subject, "name"), text(subject, "apiGroup"));
    if name.is_empty() {
        errors.required(&path.child("name"), "");
    }
    match text(subject, "kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                errors.invalid_each(&path.child("name"), name, names::dns1123_subdomain(name));
            }
            // Service accounts are objects of the core group, while users and groups are only
            // names.
            if !group.is_empty() {
                errors.not_supported(&path.child("apiGroup"), group, &[""]);
            }
            // In a RoleBinding the registry fills in the namespace of the binding.
            if !namespaced && text(subject, "namespace").is_empty() {
                errors.required(&path.child("namespace"), "");
            }
        }
        // Their names come from the authenticator, so they have no syntax here.
        "User" | "Group" => {
            if group != GROUP {
                errors.not_supported(&path.child("apiGroup"), group, &[GROUP]);
            }
        }
        other => errors.not_supported(
            &path.child("kind"),
            other,
            &["ServiceAccount", "User", "Group"],
        ),
    }
}

fn validate_role_binding_update(new: &Value, old: &Value, kinds: &[&str], errors: &mut Errors) {
    validate_role_binding(new, kinds, errors);
    // Users who may change the subjects of a binding must not be able to grant them another role.
    if !same(new, old, "roleRef") {
        errors.invalid(
            &Path::ROOT.child("roleRef"),
            get(new, "roleRef").clone(),
            "cannot change roleRef",
        );
    }
}
