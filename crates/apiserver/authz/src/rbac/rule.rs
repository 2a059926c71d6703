//! One policy rule: matching, coverage, and its text form.

use apiserver_request::Attributes;
use serde_json::{Map, Value, json};

/// A `PolicyRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// Verbs, `*` for all.
    pub verbs: Vec<String>,
    /// API groups, `*` for all, empty string for core.
    pub groups: Vec<String>,
    /// `pods`, `pods/log`, `*/scale`, `*`.
    pub resources: Vec<String>,
    /// Object names; an empty list means all.
    pub names: Vec<String>,
    /// Non-resource paths; `*` at the end matches everything below.
    pub paths: Vec<String>,
}

fn string_list(rule: &Value, field: &str) -> Vec<String> {
    let list = rule
        .get(field)
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn matches_item(list: &[String], item: &str) -> bool {
    list.iter().any(|x| x == "*" || x == item)
}

impl Rule {
    /// Parses a rule of a role.
    pub fn from_value(rule: &Value) -> Rule {
        Rule {
            verbs: string_list(rule, "verbs"),
            groups: string_list(rule, "apiGroups"),
            resources: string_list(rule, "resources"),
            names: string_list(rule, "resourceNames"),
            paths: string_list(rule, "nonResourceURLs"),
        }
    }

    /// Parses the rules of a role or of a list.
    pub fn parse_list(rules: &Value) -> Vec<Rule> {
        rules
            .as_array()
            .into_iter()
            .flatten()
            .map(Rule::from_value)
            .collect()
    }

    /// Returns rules that allow everything.
    pub fn full_authority() -> Vec<Rule> {
        // Two rules, because resources and paths never match the same request.
        let all = || vec!["*".to_owned()];
        vec![
            Rule {
                verbs: all(),
                groups: all(),
                resources: all(),
                ..Rule::default()
            },
            Rule {
                verbs: all(),
                paths: all(),
                ..Rule::default()
            },
        ]
    }

    /// Returns whether the rule allows a request for an object called `name`.
    pub fn allows_request(&self, a: &Attributes, name: &str) -> bool {
        if !matches_item(&self.verbs, &a.verb) {
            return false;
        }
        if a.is_resource {
            return matches_item(&self.groups, &a.group)
                && self.has_resource(&a.resource, &a.subresource)
                // A create and a list have no name, so that a rule with names does not match them.
                && (self.names.is_empty() || self.names.iter().any(|n| n == name));
        }
        self.has_path(&a.path)
    }

    fn has_resource(&self, resource: &str, subresource: &str) -> bool {
        self.resources.iter().any(|r| match r.split_once('/') {
            // "*" includes subresources, while "pods" does not include "pods/log".
            _ if r == "*" => true,
            None => subresource.is_empty() && r == resource,
            Some((own, sub)) => {
                !subresource.is_empty() && sub == subresource && (own == "*" || own == resource)
            }
        })
    }

    fn has_path(&self, path: &str) -> bool {
        self.paths.iter().any(|p| match p.strip_suffix('*') {
            // A wildcard is valid only at the end of a path; elsewhere it is an ordinary character.
            Some(prefix) => path.starts_with(prefix),
            None => p == path,
        })
    }

    /// Returns whether this rule allows everything that `single` (a rule of resources or of paths)
    /// allows. Several rules together may cover a rule of several verbs, groups, resources or
    /// names.
    pub fn covers_single(&self, single: &Rule) -> bool {
        let all = |have: &[String], want: &[String]| want.iter().all(|w| matches_item(have, w));
        if !all(&self.verbs, &single.verbs) {
            return false;
        }
        if !single.paths.is_empty() {
            return single.paths.iter().all(|p| self.covers_path(p));
        }
        // A wildcard such as */scale covers one resource's subresource, but not the reverse.
        let resources = single.resources.iter().all(|r| match r.split_once('/') {
            Some((own, sub)) => {
                self.resources.iter().any(|h| h == r) || self.has_resource(own, sub)
            }
            None => matches_item(&self.resources, r),
        });
        // No names means all names, so that only a rule without names covers it.
        let names = if single.names.is_empty() {
            self.names.is_empty()
        } else {
            self.names.is_empty() || single.names.iter().all(|n| self.names.contains(n))
        };
        all(&self.groups, &single.groups) && resources && names
    }

    fn covers_path(&self, path: &str) -> bool {
        self.paths.iter().any(|p| match p.strip_suffix('*') {
            // A path with a wildcard is covered by a shorter wildcard.
            Some(prefix) => path.strip_suffix('*').unwrap_or(path).starts_with(prefix) || p == path,
            None => p == path,
        })
    }

    /// Returns the number of rules that [`Rule::split_singles`] returns.
    pub fn count_singles(&self) -> usize {
        let named = [&self.groups, &self.resources]
            .map(Vec::len)
            .into_iter()
            .fold(self.names.len().max(1), usize::saturating_mul);
        let each = self.paths.len().saturating_add(named);
        self.verbs.len().saturating_mul(each)
    }

    /// Splits the rule into rules of one verb, group, resource and name (or path) each.
    pub fn split_singles(&self) -> Vec<Rule> {
        let mut out = Vec::new();
        // Single verbs, resources and names: several of the user's rules together may cover one
        // requested rule.
        for verb in &self.verbs {
            let verbs = vec![verb.clone()];
            for path in &self.paths {
                out.push(Rule {
                    verbs: verbs.clone(),
                    paths: vec![path.clone()],
                    ..Rule::default()
                });
            }
            for group in &self.groups {
                for resource in &self.resources {
                    let base = Rule {
                        verbs: verbs.clone(),
                        groups: vec![group.clone()],
                        resources: vec![resource.clone()],
                        ..Rule::default()
                    };
                    if self.names.is_empty() {
                        out.push(base.clone());
                    }
                    out.extend(self.names.iter().map(|n| Rule {
                        names: vec![n.clone()],
                        ..base.clone()
                    }));
                }
            }
        }
        out
    }

    /// Formats `{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}`.
    pub fn to_compact_text(&self) -> String {
        let parts = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.paths),
            ("ResourceNames", &self.names),
            ("Verbs", &self.verbs),
        ];
        let shown = parts.iter().filter(|(_, list)| !list.is_empty());
        let shown: Vec<String> = shown
            .map(|(name, list)| format!("{name}:{}", quote_list(list)))
            .collect();
        format!("{{{}}}", shown.join(", "))
    }

    /// Converts the rule for a SelfSubjectRulesReview's `resourceRules`.
    pub fn resource_review(&self) -> Value {
        let mut out = Map::new();
        out.insert("verbs".into(), json!(self.verbs));
        for (field, list) in [
            ("apiGroups", &self.groups),
            ("resources", &self.resources),
            ("resourceNames", &self.names),
        ] {
            if !list.is_empty() {
                out.insert(field.into(), json!(list));
            }
        }
        Value::Object(out)
    }

    /// Converts the rule for a SelfSubjectRulesReview's `nonResourceRules`.
    pub fn path_review(&self) -> Value {
        json!({"verbs": self.verbs, "nonResourceURLs": self.paths})
    }
}

/// Formats a list as Go's `%q` does.
pub fn quote_list(list: &[String]) -> String {
    let quoted: Vec<String> = list.iter().map(|s| format!("{s:?}")).collect();
    format!("[{}]", quoted.join(" "))
}

#[cfg(test)]
mod tests;
