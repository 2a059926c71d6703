//! One policy.

use apiserver_request::{Attributes, User};
use serde::Deserialize;
use serde_json::{Map, Value};

const VERSION: &str = "abac.authorization.kubernetes.io/v1beta1";
const OLD_VERSION: &str = "abac.authorization.kubernetes.io/v0";
const KIND: &str = "Policy";
const AUTHENTICATED: &str = "system:authenticated";
const ALL: &str = "*";

/// A policy. Unknown fields are refused: a misspelt `readonly` would allow writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Policy {
    user: String,
    group: String,
    /// Only `get`, `list` and `watch` are allowed.
    pub readonly: bool,
    /// The API group; `*` for all.
    pub api_group: String,
    /// The resource; `*` for all.
    pub resource: String,
    namespace: String,
    /// A path, possibly with a `*` at the end.
    pub non_resource_path: String,
}

/// The fields of a policy without a version.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct OldPolicy {
    user: String,
    group: String,
    readonly: bool,
    resource: String,
    namespace: String,
}

impl Policy {
    /// Parses a line.
    ///
    /// # Errors
    /// The line is no policy.
    pub fn parse(line: &str) -> Result<Self, String> {
        let mut fields: Map<String, Value> =
            serde_json::from_str(line).map_err(|error| error.to_string())?;
        let mut take = |field: &str| match fields.remove(field) {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text),
            Some(_) => Err(format!("{field} is not a string")),
        };
        let (version, kind) = (take("apiVersion")?, take("kind")?);
        let read = |error: serde_json::Error| error.to_string();
        match (version.as_str(), kind.as_str()) {
            (VERSION, KIND) => {
                let spec = fields.remove("spec").unwrap_or_default();
                if let Some(field) = fields.keys().next() {
                    return Err(format!("the field {field:?} is not known"));
                }
                let policy: Policy = serde_json::from_value(spec).map_err(read)?;
                Ok(policy.restrict_wildcard())
            }
            ("", "" | KIND) | (OLD_VERSION, KIND) => {
                let old: OldPolicy = serde_json::from_value(fields.into()).map_err(read)?;
                Ok(old.into_policy())
            }
            _ => Err(format!("it is not a {KIND} of {VERSION}")),
        }
    }

    /// Replaces the wildcard of users and groups, which does not mean anonymous users.
    fn restrict_wildcard(mut self) -> Self {
        if self.user == ALL || self.group == ALL {
            self.user = String::new();
            self.group = AUTHENTICATED.to_owned();
        }
        self
    }

    /// Returns whether the policy allows a request.
    pub fn allows(&self, attributes: &Attributes) -> bool {
        let reads = matches!(attributes.verb.as_str(), "get" | "list" | "watch");
        self.matches_user(&attributes.user)
            && (reads || !self.readonly)
            && if attributes.is_resource {
                self.matches_resource(attributes)
            } else {
                self.matches_path(&attributes.path)
            }
    }

    /// Returns whether the policy has rules of a user in a namespace.
    pub fn applies(&self, user: &User, namespace: &str) -> bool {
        self.matches_user(user) && matches_text(&self.namespace, namespace)
    }

    /// Both the user and the group have to match, if given.
    fn matches_user(&self, user: &User) -> bool {
        let is_given = !self.user.is_empty() || !self.group.is_empty();
        is_given
            && (self.user.is_empty() || self.user == user.name)
            && (self.group.is_empty() || user.in_group(&self.group))
    }

    fn matches_resource(&self, attributes: &Attributes) -> bool {
        matches_text(&self.namespace, &attributes.namespace)
            && matches_text(&self.resource, &attributes.resource)
            && matches_text(&self.api_group, &attributes.group)
    }

    fn matches_path(&self, path: &str) -> bool {
        let own = self.non_resource_path.as_str();
        match own.strip_suffix(ALL) {
            Some(start) => path.starts_with(start.trim_end_matches('*')),
            None => !own.is_empty() && own == path,
        }
    }
}

fn matches_text(own: &str, text: &str) -> bool {
    own == ALL || own == text
}

impl OldPolicy {
    /// Converts the policy: an empty field is that of all.
    fn into_policy(self) -> Policy {
        let or_all = |text: String| {
            if text.is_empty() {
                ALL.to_owned()
            } else {
                text
            }
        };
        let is_of_all = self.user.is_empty() && self.group.is_empty();
        let has_paths = self.namespace.is_empty() && self.resource.is_empty();
        Policy {
            user: self.user,
            group: if is_of_all {
                AUTHENTICATED.to_owned()
            } else {
                self.group
            },
            readonly: self.readonly,
            api_group: ALL.to_owned(),
            resource: or_all(self.resource),
            namespace: or_all(self.namespace),
            non_resource_path: if has_paths { ALL } else { "" }.to_owned(),
        }
        .restrict_wildcard()
    }
}
