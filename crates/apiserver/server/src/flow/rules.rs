//! A rule of a FlowSchema: subjects, and the resources or paths they request.

use apiserver_request::Attributes;
use serde_json::Value;

enum Subject {
    User(String),
    Group(String),
    /// Namespace and name; `*` is every name.
    Account(String, String),
}

struct Resources {
    verbs: Vec<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    namespaces: Vec<String>,
    cluster_scope: bool,
}

struct Paths {
    verbs: Vec<String>,
    urls: Vec<String>,
}

/// A rule.
pub(super) struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<Resources>,
    paths: Vec<Paths>,
}

fn string_list(value: &Value, field: &str) -> Vec<String> {
    let list = value
        .get(field)
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn matches_item(list: &[String], item: &str) -> bool {
    list.iter().any(|x| x == "*" || x == item)
}

fn map_items<T>(value: &Value, field: &str, read: impl Fn(&Value) -> T) -> Vec<T> {
    value
        .get(field)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(read)
        .collect()
}

impl Rule {
    /// Parses the rules of a schema.
    pub(super) fn parse_rules(rules: Option<&Value>) -> Vec<Rule> {
        rules
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(Rule::parse_rule)
            .collect()
    }

    fn parse_rule(rule: &Value) -> Rule {
        Rule {
            subjects: map_items(rule, "subjects", Subject::parse_subject)
                .into_iter()
                .flatten()
                .collect(),
            resources: map_items(rule, "resourceRules", |one| Resources {
                verbs: string_list(one, "verbs"),
                groups: string_list(one, "apiGroups"),
                resources: string_list(one, "resources"),
                namespaces: string_list(one, "namespaces"),
                cluster_scope: one
                    .get("clusterScope")
                    .and_then(Value::as_bool)
                    .unwrap_or_default(),
            }),
            paths: map_items(rule, "nonResourceRules", |one| Paths {
                verbs: string_list(one, "verbs"),
                urls: string_list(one, "nonResourceURLs"),
            }),
        }
    }

    /// Returns whether the rule matches the request.
    pub(super) fn matches_request(&self, a: &Attributes) -> bool {
        // A rule may have both kinds of rules; a request is compared with those of its own kind
        // only.
        let about = match a.is_resource {
            true => self.resources.iter().any(|rule| rule.matches_request(a)),
            false => self.paths.iter().any(|rule| rule.matches_request(a)),
        };
        about && self.subjects.iter().any(|subject| subject.matches_user(a))
    }
}

impl Subject {
    fn parse_subject(subject: &Value) -> Option<Subject> {
        let text = |pointer: &str| Some(subject.pointer(pointer)?.as_str()?.to_owned());
        match subject.get("kind")?.as_str()? {
            "User" => text("/user/name").map(Subject::User),
            "Group" => text("/group/name").map(Subject::Group),
            "ServiceAccount" => Some(Subject::Account(
                text("/serviceAccount/namespace")?,
                text("/serviceAccount/name")?,
            )),
            _ => None,
        }
    }

    fn matches_user(&self, a: &Attributes) -> bool {
        match self {
            Subject::User(name) => name == "*" || *name == a.user.name,
            Subject::Group(name) => name == "*" || a.user.in_group(name),
            Subject::Account(namespace, name) => {
                // Only the name has a wildcard: the namespace of a service account subject must be
                // exact.
                let account = a
                    .user
                    .name
                    .strip_prefix("system:serviceaccount:")
                    .and_then(|rest| rest.split_once(':'));
                account.is_some_and(|(ns, own)| ns == namespace && (name == "*" || own == name))
            }
        }
    }
}

impl Resources {
    fn matches_request(&self, a: &Attributes) -> bool {
        // `namespaces: ["*"]` does not include cluster-scoped requests: only `clusterScope` does.
        let scope = match a.namespace.is_empty() {
            true => self.cluster_scope,
            false => matches_item(&self.namespaces, &a.namespace),
        };
        let resource = |name: &String| match name.split_once('/') {
            // `*` includes subresources; a plain name does not.
            None => name == "*" || (a.subresource.is_empty() && *name == a.resource),
            Some((own, sub)) => own == a.resource && sub == a.subresource,
        };
        scope
            && matches_item(&self.verbs, &a.verb)
            && matches_item(&self.groups, &a.group)
            && self.resources.iter().any(resource)
    }
}

impl Paths {
    fn matches_request(&self, a: &Attributes) -> bool {
        let url = |url: &String| match url.strip_suffix('*') {
            Some(prefix) => a.path.starts_with(prefix),
            None => *url == a.path,
        };
        matches_item(&self.verbs, &a.verb) && self.urls.iter().any(url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apiserver_request::User;
    use serde_json::json;

    fn matches(rule: Value, request: &Attributes) -> bool {
        let rules = Rule::parse_rules(Some(&json!([rule])));
        rules.iter().any(|rule| rule.matches_request(request))
    }

    /// Returns a read of a pod's log by a service account.
    fn log_request() -> Attributes {
        Attributes {
            user: User {
                name: "system:serviceaccount:kube-system:agent".into(),
                groups: vec!["system:serviceaccounts".into()],
                ..User::default()
            },
            verb: "get".into(),
            namespace: "d".into(),
            resource: "pods".into(),
            subresource: "log".into(),
            is_resource: true,
            ..Attributes::default()
        }
    }

    #[test]
    fn subject_is_a_user_a_group_or_a_service_account() {
        let account = |namespace: &str, name: &str| {
            json!({"kind": "ServiceAccount",
                "serviceAccount": {"namespace": namespace, "name": name}})
        };
        for (subject, expect) in [
            (json!({"kind": "User", "user": {"name": "*"}}), true),
            (json!({"kind": "User", "user": {"name": "agent"}}), false),
            (
                json!({"kind": "Group", "group": {"name": "system:serviceaccounts"}}),
                true,
            ),
            (json!({"kind": "Group", "group": {"name": "nodes"}}), false),
            (account("kube-system", "agent"), true),
            (account("kube-system", "*"), true),
            (account("default", "*"), false),
            (json!({"kind": "Robot"}), false),
        ] {
            let rule = json!({"subjects": [subject], "resourceRules": [{"verbs": ["*"],
                "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}]});
            assert_eq!(matches(rule, &log_request()), expect, "{subject}");
        }
    }

    #[test]
    fn resource_rule_matches_subresources_and_scopes_explicitly() {
        let rule = |resource: &str, namespaces: Value, cluster: bool| {
            json!({"subjects": [{"kind": "User", "user": {"name": "*"}}],
                "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": [resource],
                    "namespaces": namespaces, "clusterScope": cluster}]})
        };
        let anywhere = || json!(["*"]);
        assert!(matches(rule("pods/log", anywhere(), false), &log_request()));
        assert!(!matches(rule("pods", anywhere(), false), &log_request()));
        assert!(matches(rule("*", json!(["d"]), false), &log_request()));
        assert!(!matches(rule("*", json!(["e"]), true), &log_request()));
        let cluster = Attributes {
            namespace: String::new(),
            ..log_request()
        };
        assert!(!matches(rule("*", anywhere(), false), &cluster));
        assert!(matches(rule("*", json!([]), true), &cluster));
    }

    #[test]
    fn path_rule_is_exact_or_a_prefix() {
        let request = Attributes {
            is_resource: false,
            path: "/healthz/etcd".into(),
            ..log_request()
        };
        for (url, expect) in [
            ("/healthz/etcd", true),
            ("/healthz/*", true),
            ("*", true),
            ("/healthz", false),
            ("/livez/*", false),
        ] {
            let rule = json!({"subjects": [{"kind": "User", "user": {"name": "*"}}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": [url]}]});
            assert_eq!(matches(rule, &request), expect, "{url}");
        }
    }
}
