//! The audit policy (`audit.k8s.io/v1`): parsing, validation, and its decision about a request.

use crate::level::{Level, Stage};
use api_codec::yaml;
use api_meta::names::dns1123_subdomain;
use api_meta::tree::{flag, get, has, list, text, texts};
use apiserver_request::Attributes;
use serde_json::Value;

/// A policy. The first rule that matches a request decides.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    rules: Vec<Rule>,
    omit_stages: Vec<Stage>,
    omit_managed_fields: bool,
}

/// The decision of a policy about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestAuditConfig {
    /// The amount of data that is recorded.
    pub level: Level,
    /// Stages without an event.
    pub omit_stages: Vec<Stage>,
    /// Bodies are recorded without `managedFields`.
    pub omit_managed_fields: bool,
}

#[derive(Clone, Debug)]
struct Rule {
    users: Vec<String>,
    groups: Vec<String>,
    verbs: Vec<String>,
    namespaces: Vec<String>,
    resources: Vec<GroupResources>,
    paths: Vec<String>,
    config: RequestAuditConfig,
}

#[derive(Clone, Debug)]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    names: Vec<String>,
}

/// A policy that can't be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PolicyError(String);

const POLICY_FIELDS: [&str; 6] = [
    "apiVersion",
    "kind",
    "metadata",
    "rules",
    "omitStages",
    "omitManagedFields",
];
const RULE_FIELDS: [&str; 9] = [
    "level",
    "users",
    "userGroups",
    "verbs",
    "resources",
    "namespaces",
    "nonResourceURLs",
    "omitStages",
    "omitManagedFields",
];
/// Fields of a rule that are lists of texts.
const TEXT_LISTS: [&str; 6] = [
    "users",
    "userGroups",
    "verbs",
    "namespaces",
    "nonResourceURLs",
    "omitStages",
];
const RESOURCE_FIELDS: [&str; 3] = ["group", "resources", "resourceNames"];

impl Policy {
    /// Parses a policy in YAML or JSON.
    ///
    /// # Errors
    /// No policy of this version, or all violations of its rules.
    pub fn parse(bytes: &[u8]) -> Result<Self, PolicyError> {
        let (tree, _) =
            yaml::parse(bytes).map_err(|error| PolicyError(format!("failed decoding: {error}")))?;
        let (version, kind) = (text(&tree, "apiVersion"), text(&tree, "kind"));
        if version != "audit.k8s.io/v1" || kind != "Policy" {
            return Err(PolicyError(format!(
                "it is a {kind:?} of {version:?}, and not a Policy of audit.k8s.io/v1"
            )));
        }
        // As upstream, a field that is not known is no error.
        for field in find_unknown_fields(&tree) {
            tracing::warn!(field, "the audit policy has a field that is not known");
        }
        let violations = validate_policy(&tree);
        if !violations.is_empty() {
            return Err(PolicyError(violations.join(", ")));
        }
        let rules = list(&tree, "rules");
        if rules.is_empty() {
            return Err(PolicyError("loaded illegal policy with 0 rules".to_owned()));
        }
        let omit_stages = parse_stages(&tree);
        let omit_managed_fields = flag(&tree, "omitManagedFields");
        let defaults = RequestAuditConfig {
            level: Level::None,
            omit_stages: omit_stages.clone(),
            omit_managed_fields,
        };
        Ok(Policy {
            rules: rules
                .iter()
                .map(|rule| Rule::parse(rule, &defaults))
                .collect(),
            omit_stages,
            omit_managed_fields,
        })
    }

    /// Decides about a request.
    pub fn evaluate(&self, attributes: &Attributes) -> RequestAuditConfig {
        match self.rules.iter().find(|rule| rule.matches(attributes)) {
            Some(rule) => rule.config.clone(),
            None => RequestAuditConfig {
                level: Level::None,
                omit_stages: self.omit_stages.clone(),
                omit_managed_fields: self.omit_managed_fields,
            },
        }
    }
}

impl Rule {
    fn parse(rule: &Value, defaults: &RequestAuditConfig) -> Self {
        let mut omit_stages = defaults.omit_stages.clone();
        omit_stages.extend(parse_stages(rule));
        let owned = |field: &str| texts(rule, field).into_iter().map(str::to_owned).collect();
        Rule {
            users: owned("users"),
            groups: owned("userGroups"),
            verbs: owned("verbs"),
            namespaces: owned("namespaces"),
            resources: list(rule, "resources")
                .iter()
                .map(GroupResources::parse)
                .collect(),
            paths: owned("nonResourceURLs"),
            config: RequestAuditConfig {
                level: parse_level(rule).unwrap_or(Level::None),
                omit_stages,
                omit_managed_fields: get(rule, "omitManagedFields")
                    .as_bool()
                    .unwrap_or(defaults.omit_managed_fields),
            },
        }
    }

    fn matches(&self, attributes: &Attributes) -> bool {
        let user = &attributes.user;
        let allows = |allowed: &[String], value: &str| {
            allowed.is_empty() || allowed.iter().any(|one| one == value)
        };
        if !allows(&self.users, &user.name)
            || !allows(&self.verbs, &attributes.verb)
            || !self.groups.is_empty() && !self.groups.iter().any(|group| user.in_group(group))
        {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return attributes.is_resource
                && allows(&self.namespaces, &attributes.namespace)
                && (self.resources.is_empty()
                    || self.resources.iter().any(|one| one.matches(attributes)));
        }
        self.paths.is_empty()
            || !attributes.is_resource
                && self
                    .paths
                    .iter()
                    .any(|path| matches_path(path, &attributes.path))
    }
}

impl GroupResources {
    fn parse(entry: &Value) -> Self {
        let owned = |field: &str| texts(entry, field).into_iter().map(str::to_owned).collect();
        GroupResources {
            group: text(entry, "group").to_owned(),
            resources: owned("resources"),
            names: owned("resourceNames"),
        }
    }

    fn matches(&self, attributes: &Attributes) -> bool {
        if self.group != "*" && self.group != attributes.group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        (self.names.is_empty() || self.names.contains(&attributes.name))
            && self
                .resources
                .iter()
                .any(|one| matches_resource(one, attributes))
    }
}

/// Returns whether an entry such as `pods`, `pods/log`, `pods/*`, `*/scale` or `*` matches.
fn matches_resource(entry: &str, attributes: &Attributes) -> bool {
    let (resource, subresource) = (&*attributes.resource, &*attributes.subresource);
    if entry == "*" {
        return true;
    }
    match entry.split_once('/') {
        None => subresource.is_empty() && entry == resource,
        // As upstream, `pods/*` matches pods themselves, too.
        Some((named, "*")) if named == resource => true,
        Some(("*", named)) => !subresource.is_empty() && named == subresource,
        Some((named, below)) => named == resource && below == subresource,
    }
}

fn matches_path(entry: &str, path: &str) -> bool {
    match entry.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix.trim_end_matches('*')),
        None => entry == path,
    }
}

fn parse_level(rule: &Value) -> Option<Level> {
    let name = text(rule, "level");
    Level::ALL.into_iter().find(|level| level.as_str() == name)
}

fn parse_stages(tree: &Value) -> Vec<Stage> {
    let named = texts(tree, "omitStages");
    let is_named = |stage: &Stage| named.contains(&stage.as_str());
    Stage::ALL.into_iter().filter(is_named).collect()
}

fn find_unknown_fields(tree: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    let mut collect = |object: &Value, path: &str, known: &[&str]| {
        let names = object
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name);
        let others = names.filter(|name| !known.contains(&name.as_str()));
        unknown.extend(others.map(|name| format!("{path}{name}")));
    };
    collect(tree, "", &POLICY_FIELDS);
    for (index, rule) in list(tree, "rules").iter().enumerate() {
        collect(rule, &format!("rules[{index}]."), &RULE_FIELDS);
        for (entry, resources) in list(rule, "resources").iter().enumerate() {
            let path = format!("rules[{index}].resources[{entry}].");
            collect(resources, &path, &RESOURCE_FIELDS);
        }
    }
    unknown
}

/// Returns upstream's violations, with its messages.
fn validate_policy(tree: &Value) -> Vec<String> {
    let mut found = validate_types(tree);
    found.extend(validate_stages(tree, "omitStages"));
    for (index, rule) in list(tree, "rules").iter().enumerate() {
        found.extend(validate_rule(rule, &format!("rules[{index}]")));
    }
    found
}

/// Rejects values of the wrong type: read as absent, a rule would match more requests.
fn validate_types(tree: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check_types(tree, "", &["omitStages"], &["rules"], &mut found);
    for (index, rule) in list(tree, "rules").iter().enumerate() {
        let path = format!("rules[{index}].");
        check_types(rule, &path, &TEXT_LISTS, &["resources"], &mut found);
        for (entry, resources) in list(rule, "resources").iter().enumerate() {
            let path = format!("{path}resources[{entry}].");
            let texts = ["resources", "resourceNames"];
            check_types(resources, &path, &texts, &[], &mut found);
        }
    }
    found
}

/// Checks that fields are lists of strings or of objects, and switches booleans.
fn check_types(
    object: &Value,
    path: &str,
    texts: &[&str],
    objects: &[&str],
    found: &mut Vec<String>,
) {
    let mut check = |field: &str, expected: &str, is_valid: &dyn Fn(&Value) -> bool| {
        let value = get(object, field);
        if !value.is_null() && !is_valid(value) {
            found.push(format!("{path}{field}: the value must be {expected}"));
        }
    };
    let is_list = |value: &Value, is_item: fn(&Value) -> bool| {
        value
            .as_array()
            .is_some_and(|items| items.iter().all(is_item))
    };
    for field in texts {
        check(field, "a list of strings", &|value| {
            is_list(value, Value::is_string)
        });
    }
    for field in objects {
        check(field, "a list of objects", &|value| {
            is_list(value, Value::is_object)
        });
    }
    check("omitManagedFields", "true or false", &Value::is_boolean);
    for field in ["level", "group"] {
        check(field, "a string", &Value::is_string);
    }
}

fn validate_rule(rule: &Value, path: &str) -> Vec<String> {
    let mut found = validate_level(rule, path);
    for (index, url) in texts(rule, "nonResourceURLs").into_iter().enumerate() {
        let field = format!("{path}.nonResourceURLs[{index}]: Invalid value: {url:?}");
        if url != "*" && !url.starts_with('/') {
            found.push(format!(
                "{field}: non-resource URL rules must begin with a '/' character"
            ));
        }
        if url.find('*').is_some_and(|at| at + 1 < url.len()) {
            found.push(format!(
                "{field}: non-resource URL wildcards '*' must be the final character of the rule"
            ));
        }
    }
    for resources in list(rule, "resources") {
        found.extend(validate_resources(resources, path));
    }
    found.extend(validate_stages(rule, &format!("{path}.omitStages")));
    let is_mixed = !list(rule, "resources").is_empty() || !list(rule, "namespaces").is_empty();
    if is_mixed && !list(rule, "nonResourceURLs").is_empty() {
        found.push(format!(
            "{path}.nonResourceURLs: Invalid value: {}: rules cannot apply to both regular resources and non-resource URLs",
            get(rule, "nonResourceURLs")
        ));
    }
    found
}

fn validate_level(rule: &Value, path: &str) -> Vec<String> {
    let name = text(rule, "level");
    if name.is_empty() {
        return vec![format!("{path}.level: Required value")];
    }
    if parse_level(rule).is_some() {
        return Vec::new();
    }
    let known = Level::ALL.map(|level| format!("\"{}\"", level.as_str()));
    vec![format!(
        "{path}.level: Unsupported value: {name:?}: supported values: {}",
        known.join(", ")
    )]
}

fn validate_resources(resources: &Value, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    let group = text(resources, "group");
    let problems = match group {
        "" | "*" => Vec::new(),
        group => dns1123_subdomain(group),
    };
    if !problems.is_empty() {
        let why = problems.join(",");
        found.push(format!(
            "{path}.resources.group: Invalid value: {group:?}: {why}"
        ));
    }
    if has(resources, "resourceNames")
        && !list(resources, "resourceNames").is_empty()
        && list(resources, "resources").is_empty()
    {
        found.push(format!(
            "{path}.resources.resourceNames: Invalid value: {}: using resourceNames requires at least one resource",
            get(resources, "resourceNames")
        ));
    }
    found
}

fn validate_stages(tree: &Value, path: &str) -> Vec<String> {
    let known = Stage::ALL.map(Stage::as_str);
    let named = texts(tree, "omitStages").into_iter().enumerate();
    let unknown = named.filter(|(_, stage)| !known.contains(stage));
    unknown
        .map(|(index, stage)| {
            format!(
                "{path}[{index}]: Invalid value: {stage:?}: allowed stages are {}",
                known.join(",")
            )
        })
        .collect()
}
