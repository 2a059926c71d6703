//! One policy.

use apiserver_request::{Attributes, User};
use serde::Deserialize;
use serde::de::IgnoredAny;

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

/// The version and kind of a line, whatever else it has.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Header {
    api_version: String,
    kind: String,
}

/// A policy with its version and kind. A repeated field is refused, as by all of these types.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct VersionedPolicy {
    #[serde(rename = "apiVersion")]
    _api_version: IgnoredAny,
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    spec: Policy,
}

/// The fields of a policy without a version.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct OldPolicy {
    #[serde(rename = "apiVersion")]
    _api_version: IgnoredAny,
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
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
        let header: Header = parse_line(line)?;
        match (header.api_version.as_str(), header.kind.as_str()) {
            (VERSION, KIND) => {
                let policy: VersionedPolicy = parse_line(line)?;
                Ok(policy.spec.restrict_wildcard())
            }
            ("", "" | KIND) | (OLD_VERSION, KIND) => {
                let old: OldPolicy = parse_line(line)?;
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

fn parse_line<'a, T: Deserialize<'a>>(line: &'a str) -> Result<T, String> {
    // A struct can be read from an array as well.
    if !line.starts_with('{') {
        return Err("it is not a JSON object".to_owned());
    }
    serde_json::from_str(line).map_err(|error| error.to_string())
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
