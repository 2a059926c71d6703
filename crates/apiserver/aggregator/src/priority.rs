//! Priorities of the built-in group versions.

/// Group, its minimum priority, and the versions with theirs.
type Row = (&'static str, i64, &'static [(&'static str, i64)]);

/// Groups with their minimum priority, and versions with theirs, as upstream registers them.
const PRIORITIES: &[Row] = &[
    ("", 18000, &[("v1", 1)]),
    ("apps", 17800, &[("v1", 15)]),
    ("events.k8s.io", 17750, &[("v1", 15), ("v1beta1", 5)]),
    (
        "authentication.k8s.io",
        17700,
        &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)],
    ),
    ("authorization.k8s.io", 17600, &[("v1", 15)]),
    (
        "autoscaling",
        17500,
        &[("v1", 15), ("v2", 30), ("v2beta1", 9), ("v2beta2", 1)],
    ),
    (
        "batch",
        17400,
        &[("v1", 15), ("v1beta1", 9), ("v2alpha1", 9)],
    ),
    (
        "certificates.k8s.io",
        17300,
        &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)],
    ),
    ("networking.k8s.io", 17200, &[("v1", 15), ("v1beta1", 9)]),
    ("policy", 17100, &[("v1", 15), ("v1beta1", 9)]),
    ("rbac.authorization.k8s.io", 17000, &[("v1", 15)]),
    (
        "storage.k8s.io",
        16800,
        &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)],
    ),
    ("apiextensions.k8s.io", 16700, &[("v1", 15)]),
    (
        "admissionregistration.k8s.io",
        16700,
        &[("v1", 15), ("v1beta1", 12), ("v1alpha1", 9)],
    ),
    ("scheduling.k8s.io", 16600, &[("v1", 15), ("v1alpha2", 2)]),
    (
        "coordination.k8s.io",
        16500,
        &[("v1", 15), ("v1beta1", 13), ("v1alpha2", 12)],
    ),
    (
        "node.k8s.io",
        16300,
        &[("v1", 15), ("v1alpha1", 1), ("v1beta1", 9)],
    ),
    ("discovery.k8s.io", 16200, &[("v1", 15), ("v1beta1", 12)]),
    (
        "resource.k8s.io",
        16200,
        &[("v1", 21), ("v1beta2", 15), ("v1beta1", 9), ("v1alpha3", 1)],
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        16100,
        &[
            ("v1", 21),
            ("v1beta3", 18),
            ("v1beta2", 15),
            ("v1beta1", 12),
            ("v1alpha1", 9),
        ],
    ),
    ("internal.apiserver.k8s.io", 16000, &[("v1alpha1", 9)]),
    ("storagemigration.k8s.io", 15800, &[("v1beta1", 9)]),
];

/// The group of APIServices, which has no APIService itself and is always served here.
pub const OWN_GROUP: &str = "apiregistration.k8s.io";
/// Priority of a group of custom resources.
pub const CUSTOM_GROUP: i64 = 1000;
/// Priority of a version of custom resources; equal ones are in the order of Kubernetes' versions.
pub const CUSTOM_VERSION: i64 = 100;

/// Returns the priorities of a built-in group version.
pub fn find_priorities(group: &str, version: &str) -> Option<(i64, i64)> {
    let (_, minimum, versions) = PRIORITIES.iter().find(|(name, ..)| *name == group)?;
    let (_, priority) = versions.iter().find(|(name, _)| *name == version)?;
    Some((*minimum, *priority))
}

/// Returns the priority of a version that is served here.
pub fn local_version_priority(group: &str, version: &str) -> i64 {
    find_priorities(group, version).map_or(CUSTOM_VERSION, |(_, priority)| priority)
}

/// Returns the priority of a group that is served here.
pub fn local_group_priority(group: &str) -> i64 {
    if group == OWN_GROUP {
        // Listed first, before every group that an APIService could name.
        return i64::MAX;
    }
    PRIORITIES
        .iter()
        .find(|(name, ..)| *name == group)
        .map_or(CUSTOM_GROUP, |(_, minimum, _)| *minimum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_are_those_that_upstream_registers() {
        for (group, version, expect) in [
            ("", "v1", Some((18000, 1))),
            ("autoscaling", "v2", Some((17500, 30))),
            ("storagemigration.k8s.io", "v1beta1", Some((15800, 9))),
            ("apps", "v2", None),
            (OWN_GROUP, "v1", None),
            ("example.com", "v1", None),
        ] {
            assert_eq!(find_priorities(group, version), expect, "{group}/{version}");
        }
    }

    #[test]
    fn groups_of_custom_resources_come_after_built_in_ones() {
        assert!(PRIORITIES.iter().all(|(_, group, _)| *group > CUSTOM_GROUP));
        assert_eq!(local_group_priority("example.com"), CUSTOM_GROUP);
    }
}
