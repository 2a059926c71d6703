//! The place of a user in the limits of the server.

use crate::User;
use base_task::{ClientClass, ComputeClient};

/// Control plane users in addition to members of `system:masters`.
const SYSTEM_USERS: [&str; 2] = ["system:kube-controller-manager", "system:kube-scheduler"];
const SYSTEM_GROUPS: [&str; 2] = ["system:nodes", "system:serviceaccounts:kube-system"];
/// The prefix of the names of further parts, such as kube-proxy.
const CONTROL_PLANE: &str = "system:kube-";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

impl User {
    /// Returns whether the user is a node or a part of the control plane.
    pub fn is_system(&self) -> bool {
        SYSTEM_USERS.contains(&self.name.as_str())
            || SYSTEM_GROUPS.iter().any(|group| self.in_group(group))
    }

    /// Returns the client of computations for this user.
    pub fn compute_client(&self) -> ComputeClient<'_> {
        let class = if self.in_group(User::MASTERS) {
            ClientClass::Administrator
        } else if self.is_system() || self.name.starts_with(CONTROL_PLANE) {
            ClientClass::System
        } else {
            ClientClass::Other
        };
        ComputeClient {
            name: self.limit_name(),
            class,
        }
    }

    /// Returns the name for which the limits of a user count. All ServiceAccounts of a namespace
    /// have one name: who may create one of them may create many, and would have the limits of all.
    pub fn limit_name(&self) -> &str {
        // ServiceAccounts of the control plane are counted one by one: no tenant creates them.
        if self.is_system() || !self.name.starts_with(SERVICE_ACCOUNT) {
            return &self.name;
        }
        self.name
            .rsplit_once(':')
            .map_or(self.name.as_str(), |(namespace, _)| namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, group: &str) -> User {
        User {
            name: name.to_owned(),
            groups: vec![group.to_owned()],
            ..User::default()
        }
    }

    #[test]
    fn service_accounts_of_a_namespace_share_the_name_of_their_limits() {
        let tenant = "system:serviceaccounts:a";
        let system = "system:serviceaccounts:kube-system";
        for (name, group, expected) in [
            (
                "system:serviceaccount:a:one",
                tenant,
                "system:serviceaccount:a",
            ),
            (
                "system:serviceaccount:a:two",
                tenant,
                "system:serviceaccount:a",
            ),
            (
                "system:serviceaccount:kube-system:gc",
                system,
                "system:serviceaccount:kube-system:gc",
            ),
            // Without the group, the user is none of the control plane's.
            (
                "system:serviceaccount:kube-system:gc",
                "people",
                "system:serviceaccount:kube-system",
            ),
            ("system:node:a", "system:nodes", "system:node:a"),
            ("jane", "people", "jane"),
            ("a:b", "people", "a:b"),
        ] {
            assert_eq!(user(name, group).limit_name(), expected, "{name} {group}");
        }
    }

    #[test]
    fn system_users_have_other_places_for_computations_than_tenants() {
        use ClientClass::{Administrator, Other, System};
        for (name, group, expected) in [
            ("system:apiserver", User::MASTERS, Administrator),
            ("system:node:a", "system:nodes", System),
            ("system:kube-controller-manager", "", System),
            ("system:kube-proxy", "", System),
            (
                "system:serviceaccount:kube-system:gc",
                "system:serviceaccounts:kube-system",
                System,
            ),
            (
                "system:serviceaccount:a:system:kube-x",
                "system:serviceaccounts:a",
                Other,
            ),
            (User::ANONYMOUS, "system:unauthenticated", Other),
            ("jane", "people", Other),
        ] {
            let user = user(name, group);
            assert_eq!(user.compute_client().class, expected, "{name} {group}");
        }
    }

    #[test]
    fn nodes_and_the_control_plane_are_system_users() {
        for (name, group, expected) in [
            ("system:node:a", "system:nodes", true),
            ("system:kube-scheduler", "", true),
            (
                "system:serviceaccount:kube-system:gc",
                "system:serviceaccounts:kube-system",
                true,
            ),
            (
                "system:serviceaccount:a:gc",
                "system:serviceaccounts:a",
                false,
            ),
            ("system:node:a", "people", false),
            ("jane", "people", false),
        ] {
            assert_eq!(user(name, group).is_system(), expected, "{name} {group}");
        }
    }
}
