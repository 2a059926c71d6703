//! ABAC: the policies of a file, one a line.

mod policy;

use apiserver_request::{Attributes, Decision, LocalAuthorizer, User, UserRules};
use policy::Policy;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A policy file that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyFileError {
    /// The file can't be read.
    #[error("can't read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// A line is no policy.
    #[error("error reading policy file {path}, line {line}: {why}")]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// The problem.
        why: String,
    },
}

/// The policies of a file. Any of them allows a request.
#[derive(Debug)]
pub struct Abac(Vec<Policy>);

impl Abac {
    /// Reads a file.
    ///
    /// # Errors
    /// The file can't be read, or a line is no policy.
    pub fn read_file(path: &Path) -> Result<Self, PolicyFileError> {
        let text = std::fs::read_to_string(path).map_err(|source| PolicyFileError::Read {
            path: path.into(),
            source,
        })?;
        Self::parse(&text).map_err(|(line, why)| PolicyFileError::Line {
            path: path.into(),
            line,
            why,
        })
    }

    /// Parses the lines of a file; the error has the number of the line.
    fn parse(text: &str) -> Result<Self, (usize, String)> {
        let mut policies = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            policies.push(Policy::parse(line).map_err(|why| (index + 1, why))?);
        }
        Ok(Abac(policies))
    }
}

impl LocalAuthorizer for Abac {
    fn decide(&self, attributes: &Attributes) -> Decision {
        if self.0.iter().any(|policy| policy.allows(attributes)) {
            Decision::Allow(String::new())
        } else {
            Decision::NoOpinion("No policy matched.".to_owned())
        }
    }

    fn list_rules(&self, user: &User, namespace: &str) -> UserRules {
        let mut rules = UserRules::default();
        for policy in self
            .0
            .iter()
            .filter(|policy| policy.applies(user, namespace))
        {
            let verbs: Value = match policy.readonly {
                true => json!(["get", "list", "watch"]),
                false => json!(["*"]),
            };
            if !policy.resource.is_empty() {
                rules
                    .resources
                    .push(json!({"verbs": verbs, "apiGroups": [policy.api_group],
                    "resources": [policy.resource]}));
            }
            if !policy.non_resource_path.is_empty() {
                let path = &policy.non_resource_path;
                rules
                    .paths
                    .push(json!({"verbs": verbs, "nonResourceURLs": [path]}));
            }
        }
        rules
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const FILE: &str = r#"
# comment
{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"user": "jane", "namespace": "n", "resource": "pods", "apiGroup": ""}}
{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"group": "dev", "namespace": "*", "resource": "*", "apiGroup": "apps", "readonly": true}}
{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"user": "mary", "group": "ops", "nonResourcePath": "/logs/*"}}
{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"user": "*", "nonResourcePath": "/healthz", "readonly": true}}
{"user": "old", "resource": "secrets", "readonly": true}
{"user": "older"}
"#;

    fn user(name: &str, group: &str) -> User {
        User {
            name: name.into(),
            groups: vec![group.into()],
            ..User::default()
        }
    }

    fn allows(user: User, verb: &str, group: &str, place: &str) -> bool {
        let mut attributes = Attributes {
            user,
            verb: verb.into(),
            group: group.into(),
            ..Attributes::default()
        };
        match place.split_once(' ') {
            Some((namespace, resource)) => {
                attributes.is_resource = true;
                (attributes.namespace, attributes.resource) = (namespace.into(), resource.into());
            }
            None => attributes.path = place.into(),
        }
        let decision = Abac::parse(FILE).unwrap().decide(&attributes);
        matches!(decision, Decision::Allow(_))
    }

    #[test]
    fn policy_allows_its_user_and_group_what_it_names() {
        for (name, group, verb, api_group, place, expect) in [
            ("jane", "", "delete", "", "n pods", true),
            ("jane", "", "delete", "", "other pods", false),
            ("jane", "", "delete", "", "n secrets", false),
            ("jane", "", "delete", "apps", "n pods", false),
            ("joe", "", "get", "", "n pods", false),
            ("joe", "dev", "list", "apps", "any deployments", true),
            ("joe", "dev", "create", "apps", "any deployments", false),
            ("joe", "dev", "get", "", "any pods", false),
            ("joe", "dev", "get", "", "/logs/x", false),
            ("mary", "ops", "post", "", "/logs/x", true),
            ("mary", "ops", "get", "", "/log", false),
            ("mary", "dev", "get", "", "/logs/x", false),
            ("joe", "ops", "get", "", "/logs/x", false),
            ("mary", "ops", "get", "", "", false),
            ("x", "system:authenticated", "get", "", "/healthz", true),
            ("x", "system:authenticated", "post", "", "/healthz", false),
            ("x", "system:unauthenticated", "get", "", "/healthz", false),
            ("old", "", "watch", "any", "any secrets", true),
            ("old", "", "update", "", "any secrets", false),
            ("old", "", "get", "", "/x", false),
            ("older", "", "delete", "g", "any things", true),
            ("older", "", "delete", "", "/x", true),
        ] {
            let user = user(name, group);
            let found = allows(user, verb, api_group, place);
            assert_eq!(found, expect, "{name} {group} {verb} {place}");
        }
    }

    #[test]
    fn old_policy_without_a_subject_is_of_all_authenticated_users() {
        for line in [
            r#"{"resource": "pods"}"#,
            r#"{"user": "*", "resource": "pods"}"#,
        ] {
            let abac = Abac::parse(line).unwrap();
            for (group, expect) in [("system:authenticated", true), ("dev", false)] {
                let attributes = Attributes {
                    user: user("x", group),
                    resource: "pods".into(),
                    is_resource: true,
                    ..Attributes::default()
                };
                let allowed = matches!(abac.decide(&attributes), Decision::Allow(_));
                assert_eq!(allowed, expect, "{line} {group}");
            }
        }
    }

    #[test]
    fn rules_are_those_of_the_users_policies() {
        let rules = Abac::parse(FILE)
            .unwrap()
            .list_rules(&user("joe", "dev"), "n");
        let resource = json!({"verbs": ["get", "list", "watch"], "apiGroups": ["apps"],
            "resources": ["*"]});
        assert_eq!((rules.resources, rules.incomplete), (vec![resource], false));
    }

    #[test]
    fn line_that_is_no_policy_is_refused_with_its_number() {
        for line in [
            "x",
            "[]",
            r#"{"user": "a", "readOnly": true}"#,
            r#"{"user": 1}"#,
            r#"{"user": "a", "readonly": true, "readonly": false}"#,
            r#"{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"user": "a", "readonly": true, "readonly": false}}"#,
            r#"{"apiVersion": "abac.authorization.kubernetes.io/v1", "kind": "Policy", "spec": {}}"#,
            r#"{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Role", "spec": {}}"#,
            r#"{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "user": "a"}"#,
        ] {
            let error = Abac::parse(&format!("# comment\n{line}")).unwrap_err();
            assert_eq!(error.0, 2, "{line}");
        }
    }
}
