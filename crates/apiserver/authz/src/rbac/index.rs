//! The indexes of RBAC.

use super::Rule;
use api_meta::Meta;
use apiserver_request::User;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// The API group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";

/// A user or group in bindings; ServiceAccounts are users by their full name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Subject {
    User(String),
    Group(String),
}

/// One subject of one binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The binding's name.
    pub binding: String,
    /// Namespace, empty for a ClusterRoleBinding.
    pub namespace: String,
    /// `Role` or `ClusterRole`.
    pub role_kind: String,
    /// The role's name.
    pub role: String,
    /// `User "jane"`, for reasons.
    pub subject: String,
}

impl Grant {
    /// Formats `RoleBinding "b/n" of Role "r" to User "u"`.
    pub fn describe_binding(&self) -> String {
        let (kind, name) = if self.namespace.is_empty() {
            ("ClusterRoleBinding", self.binding.clone())
        } else {
            (
                "RoleBinding",
                // Name before namespace, as upstream prints it.
                format!("{}/{}", self.binding, self.namespace),
            )
        };
        format!(
            "{kind} {name:?} of {} {:?} to {}",
            self.role_kind, self.role, self.subject
        )
    }

    /// Formats the message about a missing role.
    pub fn missing_role(&self) -> String {
        let kind = if self.role_kind == "ClusterRole" {
            "clusterrole"
        } else {
            "role"
        };
        crate::message::not_found_message(GROUP, kind, &self.role)
    }
}

type BySubject = HashMap<Subject, Vec<Arc<Grant>>>;

/// Roles by name and grants by namespace (empty: cluster) and subject.
#[derive(Default)]
pub struct Index {
    roles: HashMap<(String, String), Arc<[Rule]>>,
    grants: HashMap<String, BySubject>,
    /// Subjects of each binding, to remove it from the index.
    bound: HashMap<(String, String), Vec<Subject>>,
}

impl Index {
    /// Returns the rules of a role; `namespace` matters for kind `Role` only.
    pub fn find_role(&self, kind: &str, namespace: &str, name: &str) -> Option<&Arc<[Rule]>> {
        // Both kinds share one map: cluster roles have no namespace.
        let namespace = if kind == "ClusterRole" { "" } else { namespace };
        self.roles.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// Calls `see` with each grant of the user, cluster-wide ones first, until it returns false.
    pub fn visit_grants(&self, user: &User, namespace: &str, mut see: impl FnMut(&Grant) -> bool) {
        // Cluster-wide grants first: they are few and apply everywhere.
        let mut scopes = vec![""];
        if !namespace.is_empty() {
            scopes.push(namespace);
        }
        for by_subject in scopes.iter().filter_map(|s| self.grants.get(*s)) {
            let subjects = std::iter::once(Subject::User(user.name.clone()))
                .chain(user.groups.iter().map(|g| Subject::Group(g.clone())));
            for grant in subjects.filter_map(|s| by_subject.get(&s)).flatten() {
                if !see(grant) {
                    return;
                }
            }
        }
    }

    /// Records a changed role or binding.
    pub fn apply_object(&mut self, resource: &str, object: &Value) {
        let key = (object.namespace().to_owned(), object.name().to_owned());
        // Bindings name roles by name, so that a changed role needs no change of them.
        if resource.ends_with("roles") {
            let rules = Rule::parse_list(object.get("rules").unwrap_or(&Value::Null));
            self.roles.insert(key, rules.into());
            return;
        }
        // Subjects and role may both have changed.
        self.unbind_subjects(&key);
        self.bind_subjects(key, object);
    }

    /// Removes a deleted role or binding.
    pub fn delete_object(&mut self, resource: &str, object: &Value) {
        let key = (object.namespace().to_owned(), object.name().to_owned());
        if resource.ends_with("roles") {
            self.roles.remove(&key);
        } else {
            self.unbind_subjects(&key);
        }
    }

    fn bind_subjects(&mut self, key: (String, String), object: &Value) {
        let str_of = |v: &Value, field: &str| {
            v.get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let role = object.get("roleRef").unwrap_or(&Value::Null);
        let scope = self.grants.entry(key.0.clone()).or_default();
        let mut subjects = Vec::new();
        for s in object
            .get("subjects")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let (kind, name) = (str_of(s, "kind"), str_of(s, "name"));
            let Some((subject, description)) =
                parse_subject(&kind, &name, &str_of(s, "namespace"), &key.0)
            else {
                continue;
            };
            let grant = Grant {
                binding: key.1.clone(),
                namespace: key.0.clone(),
                role_kind: str_of(role, "kind"),
                role: str_of(role, "name"),
                subject: description,
            };
            scope
                .entry(subject.clone())
                .or_default()
                .push(Arc::new(grant));
            subjects.push(subject);
        }
        self.bound.insert(key, subjects);
    }

    fn unbind_subjects(&mut self, key: &(String, String)) {
        let Some(subjects) = self.bound.remove(key) else {
            return;
        };
        let Some(scope) = self.grants.get_mut(&key.0) else {
            return;
        };
        for subject in subjects {
            if let Some(grants) = scope.get_mut(&subject) {
                // Other bindings may grant to the same subject.
                grants.retain(|g| g.binding != key.1);
                if grants.is_empty() {
                    scope.remove(&subject);
                }
            }
        }
        if scope.is_empty() {
            self.grants.remove(&key.0);
        }
    }
}

fn parse_subject(
    kind: &str,
    name: &str,
    namespace: &str,
    binding_namespace: &str,
) -> Option<(Subject, String)> {
    match kind {
        "User" => Some((Subject::User(name.to_owned()), format!("User {name:?}"))),
        "Group" => Some((Subject::Group(name.to_owned()), format!("Group {name:?}"))),
        "ServiceAccount" => {
            let namespace = if namespace.is_empty() {
                binding_namespace
            } else {
                namespace
            };
            // A ClusterRoleBinding must say in which namespace the account is.
            if namespace.is_empty() {
                // Skipped instead of rejected: one invalid subject must not disable the others.
                return None;
            }
            let user = format!("system:serviceaccount:{namespace}:{name}");
            Some((
                Subject::User(user),
                format!("ServiceAccount {:?}", format!("{name}/{namespace}")),
            ))
        }
        _ => None,
    }
}
