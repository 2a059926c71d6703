//! Parses the data file, once.
//!
//! Lines consist of words: `group NAME VERSION..` in the order of discovery, `resource GROUP
//! VERSION KIND PLURAL SINGULAR SCOPE MESSAGE NAME=VALUES..`, and below a resource its subresources
//! as ` NAME GROUP VERSION KIND MESSAGE VERBS`. A dash is an empty word. A malformed line is a bug
//! that the tests detect.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use api_schema::{Message, schema};

use crate::ObjectSchema;
use crate::model::{Group, Name, Resource, Storage, StorageFormat, Subresource};

const DATA: &str = include_str!("../data/v1.36.txt");

type Key = (&'static str, &'static str, &'static str);

struct Table {
    resources: Vec<Arc<Resource>>,
    groups: Vec<Group>,
    /// All groups and versions.
    all_groups: Vec<Group>,
    by_plural: HashMap<Key, usize>,
    by_kind: HashMap<Key, usize>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let mut lines = Lines::default();
    // The order of the lines is that of discovery documents, which upstream builds from the order
    // of its API groups.
    for line in DATA.lines() {
        lines.load_line(line);
    }
    lines.into_table()
});

/// The parsed lines.
#[derive(Default)]
struct Lines {
    resources: Vec<Resource>,
    keys: Vec<(Key, &'static str)>,
    groups: Vec<Group>,
}

impl Lines {
    fn into_table(self) -> Table {
        let (mut by_plural, mut by_kind) = (HashMap::new(), HashMap::new());
        for (index, ((group, version, plural), kind)) in self.keys.into_iter().enumerate() {
            by_plural.insert((group, version, plural), index);
            by_kind.insert((group, version, kind), index);
        }
        let resources: Vec<_> = self.resources.into_iter().map(Arc::new).collect();
        Table {
            groups: select_served(&self.groups, &resources),
            all_groups: self.groups,
            resources,
            by_plural,
            by_kind,
        }
    }

    fn load_line(&mut self, line: &'static str) {
        if let Some(rest) = line.strip_prefix(' ') {
            if let (Some(resource), Some(subresource)) =
                (self.resources.last_mut(), parse_subresource(rest))
            {
                resource.subresources.push(subresource);
            }
        } else if let Some(rest) = line.strip_prefix("resource ") {
            if let Some((key, kind, resource)) = parse_resource(rest) {
                self.keys.push((key, kind));
                self.resources.push(resource);
            }
        } else if let Some(rest) = line.strip_prefix("group ") {
            let mut words = rest.split(' ');
            self.groups.push(Group {
                name: undash_word(words.next().unwrap_or_default()).into(),
                versions: words.map(Name::Borrowed).collect(),
            });
        }
    }
}

/// Returns the groups and versions with a served resource, in their order. The first version of a
/// group is its preferred one in discovery, and clients without a choice use that.
fn select_served(all: &[Group], resources: &[Arc<Resource>]) -> Vec<Group> {
    let select = |group: &Group| {
        let is_served = |version: &&Name| {
            let mut resources = resources.iter();
            resources.any(|r| r.served && r.group == group.name && r.version == **version)
        };
        Group {
            name: group.name.clone(),
            versions: group.versions.iter().filter(is_served).cloned().collect(),
        }
    };
    let groups = all.iter().map(select);
    // Discovery must not list a group without versions.
    groups.filter(|group| !group.versions.is_empty()).collect()
}

fn undash_word(word: &'static str) -> &'static str {
    if word == "-" { "" } else { word }
}

/// Returns the keys, the kind and the resource of a line.
fn parse_resource(line: &'static str) -> Option<(Key, &'static str, Resource)> {
    let words: Vec<&'static str> = line.split(' ').collect();
    let [
        group,
        version,
        kind,
        plural,
        singular,
        scope,
        message,
        options @ ..,
    ] = words.as_slice()
    else {
        return None;
    };
    let option = |name: &str| {
        options
            .iter()
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    };
    let list = |name: &str| {
        option(name)
            .map(|text| text.split(',').collect::<Vec<_>>())
            .unwrap_or_default()
    };
    let names = |name: &str| list(name).into_iter().map(Name::Borrowed).collect();
    let message = message_of(message)?;
    let key = (undash_word(group), *version, *plural);
    let resource = Resource {
        group: undash_word(group).into(),
        version: (*version).into(),
        kind: (*kind).into(),
        list_kind: format!("{kind}List").into(),
        plural: (*plural).into(),
        singular: (*singular).into(),
        short_names: names("short"),
        categories: names("categories"),
        namespaced: *scope == "namespaced",
        verbs: list("verbs"),
        schema: ObjectSchema::BuiltIn(message),
        subresources: Vec::new(),
        selectable_fields: names("fields"),
        storage: option("store")
            .zip(option("prefix"))
            .map(|(api_version, prefix)| Storage {
                prefix: prefix.into(),
                api_version: api_version.into(),
                schema: ObjectSchema::BuiltIn(
                    find_stored_message(undash_word(group), kind, api_version).unwrap_or(message),
                ),
                format: StorageFormat::Protobuf,
            }),
        // Known versions that are not served are needed to read stored objects and to convert.
        served: is_stable(version),
    };
    Some((key, kind, resource))
}

/// Returns whether a version is stable. Beta versions are disabled by default since v1.24, and none
/// of the older ones is left.
pub fn is_stable(version: &str) -> bool {
    version
        .strip_prefix('v')
        .is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns the message of the stored version, which is in the same proto package except for the
/// version.
fn find_stored_message(group: &str, kind: &str, api_version: &str) -> Option<&'static Message> {
    let (stored_group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let package = match stored_group {
        "" => "core",
        // The one group whose package is not its first label.
        "internal.apiserver.k8s.io" => "apiserverinternal",
        _ => stored_group.split('.').next().unwrap_or(group),
    };
    message_of(&format!("{package}.{version}.{kind}"))
}

/// Returns a message by its name without the common prefix of the proto packages.
fn message_of(short: &str) -> Option<&'static Message> {
    // apiextensions and the aggregator are not in k8s.io/api, and their proto packages have the
    // paths of their own repositories.
    let prefixes = [
        "k8s.io.api.",
        "k8s.io.apiextensions_apiserver.pkg.apis.",
        "k8s.io.kube_aggregator.pkg.apis.",
    ];
    prefixes
        .iter()
        .find_map(|prefix| schema().message(&format!("{prefix}{short}")))
}

fn parse_subresource(line: &'static str) -> Option<Subresource> {
    let words: Vec<&'static str> = line.split(' ').collect();
    let [name, group, version, kind, message, verbs] = words.as_slice() else {
        return None;
    };
    Some(Subresource {
        name: (*name).into(),
        group: undash_word(group).into(),
        version: (*version).into(),
        kind: (*kind).into(),
        verbs: verbs.split(',').collect(),
        schema: message_of(message).map(ObjectSchema::BuiltIn),
    })
}

/// Returns all built-in resources, served or not, in the order of discovery.
pub fn resources() -> &'static [Arc<Resource>] {
    &TABLE.resources
}

/// Returns the built-in resources that v1.36 serves by default.
pub fn served() -> impl Iterator<Item = &'static Arc<Resource>> {
    resources().iter().filter(|resource| resource.served)
}

/// Returns the versions of a built-in group, served or not, the preferred one first.
pub(crate) fn list_versions(group: &str) -> &'static [Name] {
    let mut groups = TABLE.all_groups.iter();
    groups
        .find(|known| known.name == group)
        .map_or(&[], |known| &known.versions)
}

/// Returns the groups of these built-in resources in the order of discovery, core first.
pub(crate) fn list_groups(resources: &[Arc<Resource>]) -> Vec<Group> {
    select_served(&TABLE.all_groups, resources)
}

/// Returns the groups that v1.36 serves by default in the order of discovery, core first.
pub fn groups() -> &'static [Group] {
    &TABLE.groups
}

/// Returns a built-in resource by its plural name, served or not.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Arc<Resource>> {
    find_index(&TABLE.by_plural, group, version, plural)
}

/// Returns a built-in resource by its kind, served or not.
pub fn find_kind(group: &str, version: &str, kind: &str) -> Option<&'static Arc<Resource>> {
    find_index(&TABLE.by_kind, group, version, kind)
}

fn find_index<'a>(
    map: &HashMap<(&'a str, &'a str, &'a str), usize>,
    a: &'a str,
    b: &'a str,
    c: &'a str,
) -> Option<&'static Arc<Resource>> {
    resources().get(*map.get(&(a, b, c))?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_line_makes_a_row() {
        let lines = DATA
            .lines()
            .filter(|line| line.starts_with("resource "))
            .count();
        assert_eq!(resources().len(), lines);
        let subresources = DATA.lines().filter(|line| line.starts_with(' ')).count();
        assert_eq!(
            resources()
                .iter()
                .map(|resource| resource.subresources.len())
                .sum::<usize>(),
            subresources
        );
    }

    #[test]
    fn rows_have_names_storage_and_versions() {
        let pods = find("", "v1", "pods").unwrap();
        assert_eq!(
            (&*pods.kind, &*pods.list_kind, pods.namespaced),
            ("Pod", "PodList", true)
        );
        assert_eq!(pods.subresource("eviction").unwrap().group, "policy");
        assert_eq!(
            find("", "v1", "services")
                .unwrap()
                .storage
                .as_ref()
                .unwrap()
                .prefix,
            "/services/specs"
        );
        let hpa = find_kind("autoscaling", "v1", "HorizontalPodAutoscaler").unwrap();
        assert_eq!(
            hpa.storage.as_ref().unwrap().schema.message().unwrap().name,
            "k8s.io.api.autoscaling.v2.HorizontalPodAutoscaler"
        );
        let event = find("events.k8s.io", "v1", "events")
            .unwrap()
            .storage
            .as_ref()
            .unwrap();
        assert_eq!(
            (&*event.prefix, event.schema.message().unwrap().name),
            ("/events", "k8s.io.api.core.v1.Event")
        );
        assert!(find("", "v1", "nothing").is_none());
        assert!(
            !find("networking.k8s.io", "v1beta1", "ipaddresses")
                .unwrap()
                .served
        );
        assert_eq!(groups().first().unwrap().name, "");
        assert_eq!(
            groups()
                .iter()
                .find(|group| group.name == "autoscaling")
                .unwrap()
                .versions,
            ["v2", "v1"]
        );
    }
}
