//! The resources that a server knows at one time.

use std::cmp::Ordering;
use std::sync::Arc;

use indexmap::{Equivalent, IndexMap};

use crate::model::{Group, Name, Resource};

/// Resources by group, version and a name.
type ByName = IndexMap<(Name, Name, Name), Arc<Resource>>;

/// A key of [`ByName`] with borrowed names, so that a lookup allocates nothing.
#[derive(Hash)]
struct NameKey<'a>(&'a str, &'a str, &'a str);

impl Equivalent<(Name, Name, Name)> for NameKey<'_> {
    fn equivalent(&self, (group, version, name): &(Name, Name, Name)) -> bool {
        self.0 == group && self.1 == version && self.2 == name
    }
}

/// Built-in and custom resources, with their groups in the order of discovery. Immutable: a change
/// makes a new set.
#[derive(Clone, Debug, Default)]
pub struct ResourceSet {
    /// In the order of discovery.
    resources: Vec<Arc<Resource>>,
    groups: Vec<Group>,
    built_in_groups: Vec<Group>,
    // Not sorted lists: each request looks up its resource several times, and a search follows a
    // pointer for each comparison.
    by_plural: ByName,
    by_kind: ByName,
}

impl ResourceSet {
    /// Creates the set of the built-in resources, as served by default, and these custom ones.
    pub fn new(custom: impl IntoIterator<Item = Arc<Resource>>) -> Self {
        Self::with_built_in(crate::resources(), custom)
    }

    /// Creates the set of these built-in resources and these custom ones.
    pub fn with_built_in(
        built_in: &[Arc<Resource>],
        custom: impl IntoIterator<Item = Arc<Resource>>,
    ) -> Self {
        let mut custom: Vec<_> = custom.into_iter().collect();
        // As upstream's aggregator: groups of equal priority by name, versions by their age.
        custom.sort_by(|a, b| {
            a.group
                .cmp(&b.group)
                .then_with(|| compare_versions(&a.version, &b.version))
                .then_with(|| a.plural.cmp(&b.plural))
        });
        let built_in_groups = crate::load::list_groups(built_in);
        let mut groups = built_in_groups.clone();
        for resource in custom.iter().filter(|resource| resource.served) {
            add_version(&mut groups, resource);
        }
        let resources: Vec<_> = built_in.iter().cloned().chain(custom).collect();
        ResourceSet {
            by_plural: index_by(&resources, |resource| &resource.plural),
            by_kind: index_by(&resources, |resource| &resource.kind),
            resources,
            groups,
            built_in_groups,
        }
    }

    /// Returns all resources, served or not, in the order of discovery.
    pub fn resources(&self) -> &[Arc<Resource>] {
        &self.resources
    }

    /// Returns the served resources in the order of discovery.
    pub fn served(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.iter().filter(|resource| resource.served)
    }

    /// Returns the groups with served versions in the order of discovery, core first.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Returns the groups and versions with served built-in resources.
    pub fn built_in_groups(&self) -> &[Group] {
        &self.built_in_groups
    }

    /// Returns a resource by its plural name, served or not.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.by_plural.get(&NameKey(group, version, plural))
    }

    /// Returns a resource by its kind, served or not.
    pub fn find_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.by_kind.get(&NameKey(group, version, kind))
    }

    /// Returns whether a version has a served resource.
    pub fn is_served(&self, group: &str, version: &str) -> bool {
        self.groups
            .iter()
            .any(|known| known.name == group && known.versions.iter().any(|name| name == version))
    }
}

fn index_by(resources: &[Arc<Resource>], name_of: impl Fn(&Resource) -> &Name) -> ByName {
    let mut index = ByName::with_capacity(resources.len());
    for resource in resources {
        let name = name_of(resource).clone();
        let key = (resource.group.clone(), resource.version.clone(), name);
        // Of two resources with one name, the built-in one is found, which comes first.
        index.entry(key).or_insert_with(|| resource.clone());
    }
    index
}

fn add_version(groups: &mut Vec<Group>, resource: &Resource) {
    match groups.iter_mut().find(|group| group.name == resource.group) {
        Some(group) if group.versions.contains(&resource.version) => {}
        Some(group) => group.versions.push(resource.version.clone()),
        None => groups.push(Group {
            name: resource.group.clone(),
            versions: vec![resource.version.clone()],
        }),
    }
}

/// Compares version names by upstream's priority, the preferred one first: `v2`, `v1`, `v2beta1`,
/// `v1alpha1`, then all other names in alphabetical order.
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    match (parse_version(a), parse_version(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// Returns stability, major and minor number; greater is preferred.
fn parse_version(name: &str) -> Option<(u8, u64, u64)> {
    let rest = name.strip_prefix('v')?;
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (major, rest) = rest.split_at(end);
    let number = |text: &str| {
        // `parse` would accept a sign.
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<u64>().ok()).flatten()
    };
    let (stability, minor) = match rest {
        "" => return Some((2, number(major)?, 0)),
        rest => match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
            (Some(minor), _) => (1, minor),
            (_, Some(minor)) => (0, minor),
            _ => return None,
        },
    };
    Some((stability, number(major)?, number(minor)?))
}

/// Returns whether a name of a group and a resource is that of a built-in resource, in any version.
pub fn is_built_in(group: &str, plural: &str) -> bool {
    crate::resources()
        .iter()
        .any(|resource| resource.group == group && resource.plural == plural)
}

/// Returns whether a group has built-in resources.
pub fn is_built_in_group(group: &str) -> bool {
    crate::resources()
        .iter()
        .any(|resource| resource.group == group)
}

/// Returns `/GROUP/PLURAL`, the storage prefix of a custom resource.
pub fn custom_prefix(group: &str, plural: &str) -> Name {
    format!("/{group}/{plural}").into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::ObjectSchema;

    fn custom(group: &'static str, version: &'static str, served: bool) -> Arc<Resource> {
        let mut resource = Resource::clone(crate::find("", "v1", "configmaps").unwrap());
        (resource.group, resource.version) = (group.into(), version.into());
        (resource.plural, resource.kind) = ("things".into(), "Thing".into());
        resource.schema = ObjectSchema::Custom(Arc::default());
        resource.served = served;
        Arc::new(resource)
    }

    #[test]
    fn custom_groups_follow_the_built_in_ones_by_name() {
        let set = ResourceSet::new([
            custom("b.example.com", "v1beta1", true),
            custom("b.example.com", "v1", true),
            custom("b.example.com", "v3", false),
            custom("a.example.com", "v1", true),
            custom("c.example.com", "v1", false),
        ]);
        let built_in = crate::groups().len();
        let names: Vec<&str> = set.groups().iter().map(|group| &*group.name).collect();
        assert_eq!(names[built_in..], ["a.example.com", "b.example.com"]);
        assert_eq!(set.groups()[built_in + 1].versions, ["v1", "v1beta1"]);
        assert!(set.is_served("b.example.com", "v1beta1"));
        assert!(!set.is_served("b.example.com", "v3"));
        assert!(!set.is_served("c.example.com", "v1"));
    }

    #[test]
    fn resources_are_found_by_plural_and_kind() {
        let set = ResourceSet::new([custom("a.example.com", "v1", true)]);
        for resource in set.resources() {
            let (group, version) = (&resource.group, &resource.version);
            let found = set.find(group, version, &resource.plural).unwrap();
            assert!(Arc::ptr_eq(found, resource), "{resource:?}");
            assert!(set.find_kind(group, version, &resource.kind).is_some());
        }
        assert!(set.find("a.example.com", "v2", "things").is_none());
        assert!(set.find("a.example.com", "v1", "thing").is_none());
        assert_eq!(set.resources().len(), crate::resources().len() + 1);
        assert_eq!(set.served().count(), crate::served().count() + 1);
    }

    #[test]
    fn version_of_a_built_in_group_is_added_behind_its_own() {
        let set = ResourceSet::new([custom("autoscaling", "v9", true)]);
        let group = set
            .groups()
            .iter()
            .find(|group| group.name == "autoscaling");
        assert_eq!(group.unwrap().versions, ["v2", "v1", "v9"]);
    }

    #[test]
    fn versions_are_in_the_order_of_their_priority() {
        // The example of upstream's documentation of version priority.
        let mut names = [
            "foo1",
            "v10beta3",
            "v2",
            "v12alpha1",
            "v1",
            "v3beta1",
            "foo10",
            "v11beta2",
            "v11alpha2",
            "v10",
        ];
        names.sort_by(|a, b| compare_versions(a, b));
        assert_eq!(
            names,
            [
                "v10",
                "v2",
                "v1",
                "v11beta2",
                "v10beta3",
                "v3beta1",
                "v12alpha1",
                "v11alpha2",
                "foo1",
                "foo10"
            ]
        );
        for odd in ["v", "v+1", "v1beta", "v1gamma1", "1", "v1beta-1", ""] {
            assert_eq!(compare_versions("v1alpha1", odd), Ordering::Less, "{odd}");
        }
    }

    #[test]
    fn built_in_names_are_known() {
        assert!(is_built_in("apps", "deployments") && is_built_in_group("apps"));
        assert!(!is_built_in("apps", "things") && !is_built_in_group("a.example.com"));
        assert_eq!(
            custom_prefix("a.example.com", "things"),
            "/a.example.com/things"
        );
    }
}
