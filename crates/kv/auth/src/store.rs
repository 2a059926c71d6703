//! The state of users and roles.

use crate::permissions::{self, Access};
use proto_etcd::authpb::{Permission, Role, User, UserAddOptions};
use std::collections::BTreeMap;

/// Name of the user and of the role with all permissions.
pub const ROOT: &str = "root";

/// Reasons for rejecting a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The user name is missing.
    #[error("user name is empty")]
    UserEmpty,
    /// A user of this name exists.
    #[error("user name already exists")]
    UserExists,
    /// The user does not exist.
    #[error("user name not found")]
    UserNotFound,
    /// The role name is missing.
    #[error("role name is empty")]
    RoleEmpty,
    /// A role of this name exists.
    #[error("role name already exists")]
    RoleExists,
    /// The role does not exist.
    #[error("role name not found")]
    RoleNotFound,
    /// The user does not have the role.
    #[error("role is not granted to the user")]
    RoleNotGranted,
    /// The role does not have the permission.
    #[error("permission is not granted to the role")]
    PermissionNotGranted,
    /// The request has no permission.
    #[error("permission not given")]
    PermissionNotGiven,
    /// The caller lacks the permission.
    #[error("permission denied")]
    Denied,
    /// The change is invalid, or would lock out all users.
    #[error("invalid auth management")]
    InvalidManagement,
    /// Auth can't be enabled without the root user.
    #[error("root user does not exist")]
    NoRootUser,
    /// Auth can't be enabled while the root user lacks the root role.
    #[error("root user does not have root role")]
    NoRootRole,
    /// Auth is disabled.
    #[error("authentication is not enabled")]
    NotEnabled,
    /// User name or password is wrong.
    #[error("authentication failed, invalid user ID or password")]
    Failed,
    /// Users or roles changed after the caller was authenticated.
    #[error("revision of auth store is old")]
    OldRevision,
}

/// Users, roles and the auth status.
#[derive(Clone, Debug)]
pub struct Auth {
    /// True if auth is enabled.
    pub enabled: bool,
    /// Auth revision: incremented by every change of users and roles, and when auth is disabled.
    /// Starts at 1, as in etcd. Signed tokens contain it.
    pub revision: u64,
    users: BTreeMap<String, User>,
    roles: BTreeMap<String, Role>,
}

impl Default for Auth {
    fn default() -> Self {
        Auth {
            enabled: false,
            revision: 1,
            users: BTreeMap::new(),
            roles: BTreeMap::new(),
        }
    }
}

type Result<T = ()> = std::result::Result<T, AuthError>;

impl Auth {
    /// Adds a user. `hashed` is empty for a user without a password.
    pub fn add_user(&mut self, name: &str, hashed: &[u8], no_password: bool) -> Result {
        if name.is_empty() {
            return Err(AuthError::UserEmpty);
        }
        if self.users.contains_key(name) {
            return Err(AuthError::UserExists);
        }
        let user = User {
            name: name.to_owned().into(),
            password: hashed.to_vec().into(),
            roles: Vec::new(),
            options: Some(UserAddOptions { no_password }),
        };
        self.users.insert(name.to_owned(), user);
        self.increment_revision()
    }

    /// Deletes a user.
    pub fn delete_user(&mut self, name: &str) -> Result {
        // While auth is enabled, no other user could undo this.
        if self.enabled && name == ROOT {
            return Err(AuthError::InvalidManagement);
        }
        self.users.remove(name).ok_or(AuthError::UserNotFound)?;
        self.increment_revision()
    }

    /// Replaces a user's password.
    pub fn change_password(&mut self, name: &str, hashed: &[u8]) -> Result {
        let user = self.users.get_mut(name).ok_or(AuthError::UserNotFound)?;
        user.password = hashed.to_vec().into();
        self.increment_revision()
    }

    /// Grants a role to a user.
    pub fn grant_role(&mut self, user: &str, role: &str) -> Result {
        // The root role exists without being created, as in etcd.
        let known = role == ROOT || self.roles.contains_key(role);
        let user = self.users.get_mut(user).ok_or(AuthError::UserNotFound)?;
        if !known {
            return Err(AuthError::RoleNotFound);
        }
        // Granting an existing role changes nothing, so signed tokens remain valid.
        let Err(place) = user.roles.binary_search_by(|has| has.as_str().cmp(role)) else {
            return Ok(());
        };
        user.roles.insert(place, role.to_owned());
        self.increment_revision()
    }

    /// Revokes a role from a user.
    pub fn revoke_role(&mut self, user: &str, role: &str) -> Result {
        if self.enabled && user == ROOT && role == ROOT {
            return Err(AuthError::InvalidManagement);
        }
        let user = self.users.get_mut(user).ok_or(AuthError::UserNotFound)?;
        let before = user.roles.len();
        user.roles.retain(|has| has != role);
        if user.roles.len() == before {
            return Err(AuthError::RoleNotGranted);
        }
        self.increment_revision()
    }

    /// Adds a role.
    pub fn add_role(&mut self, name: &str) -> Result {
        if name.is_empty() {
            return Err(AuthError::RoleEmpty);
        }
        if self.roles.contains_key(name) {
            return Err(AuthError::RoleExists);
        }
        let role = Role {
            name: name.to_owned().into(),
            key_permission: Vec::new(),
        };
        self.roles.insert(name.to_owned(), role);
        self.increment_revision()
    }

    /// Deletes a role, and revokes it from all users.
    pub fn delete_role(&mut self, name: &str) -> Result {
        if self.enabled && name == ROOT {
            return Err(AuthError::InvalidManagement);
        }
        self.roles.remove(name).ok_or(AuthError::RoleNotFound)?;
        for user in self.users.values_mut() {
            // A later role of this name must not be granted to its former users.
            user.roles.retain(|has| has != name);
        }
        self.increment_revision()
    }

    /// Grants a permission to a role, or changes its type.
    pub fn grant_permission(&mut self, role: &str, permission: Option<&Permission>) -> Result {
        let permission = permission.ok_or(AuthError::PermissionNotGiven)?;
        if !permissions::is_valid_range(&permission.key, &permission.range_end) {
            return Err(AuthError::InvalidManagement);
        }
        let role = self.roles.get_mut(role).ok_or(AuthError::RoleNotFound)?;
        let same = |has: &&mut Permission| {
            has.key == permission.key && has.range_end == permission.range_end
        };
        match role.key_permission.iter_mut().find(same) {
            Some(has) => has.perm_type = permission.perm_type,
            None => {
                role.key_permission.push(permission.clone());
                // etcd returns them in this order too.
                role.key_permission
                    .sort_by(|a, b| (&a.key, &a.range_end).cmp(&(&b.key, &b.range_end)));
            }
        }
        self.increment_revision()
    }

    /// Revokes a permission from a role.
    pub fn revoke_permission(&mut self, role: &str, key: &[u8], end: &[u8]) -> Result {
        let role = self.roles.get_mut(role).ok_or(AuthError::RoleNotFound)?;
        let before = role.key_permission.len();
        role.key_permission
            .retain(|has| has.key != key || has.range_end != end);
        if role.key_permission.len() == before {
            return Err(AuthError::PermissionNotGranted);
        }
        self.increment_revision()
    }

    /// Enables auth.
    pub fn enable(&mut self) -> Result {
        if self.enabled {
            return Ok(());
        }
        let root = self.users.get(ROOT).ok_or(AuthError::NoRootUser)?;
        if !root.roles.iter().any(|role| role == ROOT) {
            return Err(AuthError::NoRootRole);
        }
        // The revision does not change: a token may have been signed before.
        self.enabled = true;
        Ok(())
    }

    /// Disables auth.
    pub fn disable(&mut self) -> Result {
        if !self.enabled {
            return Ok(());
        }
        self.enabled = false;
        self.increment_revision()
    }

    fn increment_revision(&mut self) -> Result {
        self.revision += 1;
        Ok(())
    }

    /// Returns a user.
    pub fn find_user(&self, name: &str) -> Result<&User> {
        self.users.get(name).ok_or(AuthError::UserNotFound)
    }

    /// Returns a role.
    pub fn find_role(&self, name: &str) -> Result<&Role> {
        self.roles.get(name).ok_or(AuthError::RoleNotFound)
    }

    /// Returns all users, sorted by name.
    pub fn users(&self) -> impl Iterator<Item = &User> {
        self.users.values()
    }

    /// Returns all roles, sorted by name.
    pub fn roles(&self) -> impl Iterator<Item = &Role> {
        self.roles.values()
    }

    /// Restores stored users and roles.
    pub fn restore(&mut self, users: Vec<User>, roles: Vec<Role>) {
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        self.users = users
            .into_iter()
            .map(|user| (text(&user.name), user))
            .collect();
        self.roles = roles
            .into_iter()
            .map(|role| (text(&role.name), role))
            .collect();
    }

    /// Returns whether a user has the root role.
    pub fn is_root(&self, user: &str) -> bool {
        self.users
            .get(user)
            .is_some_and(|user| user.roles.iter().any(|role| role == ROOT))
    }

    /// Checks whether a user may manage users, members and the like.
    pub fn check_admin(&self, user: Option<&str>) -> Result {
        if !self.enabled {
            return Ok(());
        }
        let user = user
            .filter(|user| !user.is_empty())
            .ok_or(AuthError::UserEmpty)?;
        if self.is_root(user) {
            Ok(())
        } else {
            Err(AuthError::Denied)
        }
    }

    /// Checks whether a user may access every key of a range.
    pub fn check_permission(
        &self,
        user: Option<&str>,
        key: &[u8],
        end: &[u8],
        access: Access,
    ) -> Result {
        if !self.enabled {
            return Ok(());
        }
        let name = user
            .filter(|user| !user.is_empty())
            .ok_or(AuthError::UserEmpty)?;
        // Not `UserNotFound`, as in etcd: a caller must not find out which users exist.
        let user = self.users.get(name).ok_or(AuthError::Denied)?;
        if user.roles.iter().any(|role| role == ROOT) {
            return Ok(());
        }
        let granted = user
            .roles
            .iter()
            // A role may be granted that has no entry: the root role, which was handled above.
            .filter_map(|role| self.roles.get(role))
            .flat_map(|role| &role.key_permission);
        if permissions::covers_range(granted, key, end, access) {
            Ok(())
        } else {
            Err(AuthError::Denied)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proto_etcd::authpb::permission::Type;

    #[test]
    fn auth_needs_root_and_root_can_not_be_removed() {
        let mut auth = Auth::default();
        assert_eq!(auth.enable(), Err(AuthError::NoRootUser));
        auth.add_user(ROOT, b"h", false).unwrap();
        assert_eq!(auth.enable(), Err(AuthError::NoRootRole));
        auth.add_role(ROOT).unwrap();
        auth.grant_role(ROOT, ROOT).unwrap();
        auth.enable().unwrap();
        assert_eq!(auth.revision, 4, "1, and three changes");
        auth.grant_role(ROOT, ROOT).unwrap();
        assert_eq!(auth.revision, 4, "nothing changed");
        assert_eq!(auth.delete_user(ROOT), Err(AuthError::InvalidManagement));
        assert_eq!(
            auth.revoke_role(ROOT, ROOT),
            Err(AuthError::InvalidManagement)
        );
        assert_eq!(auth.delete_role(ROOT), Err(AuthError::InvalidManagement));
        assert_eq!(auth.check_admin(None), Err(AuthError::UserEmpty));
        assert_eq!(auth.check_admin(Some(ROOT)), Ok(()));
    }

    #[test]
    fn user_has_the_permissions_of_its_roles() {
        let mut auth = Auth {
            enabled: true,
            ..Auth::default()
        };
        auth.add_user("u", b"h", false).unwrap();
        assert_eq!(auth.grant_role("u", "r"), Err(AuthError::RoleNotFound));
        auth.add_role("r").unwrap();
        auth.grant_role("u", "r").unwrap();
        let permission = Permission {
            perm_type: Type::Read.into(),
            key: "a".into(),
            range_end: "c".into(),
        };
        auth.grant_permission("r", Some(&permission)).unwrap();
        assert_eq!(
            auth.check_permission(Some("u"), b"b", b"", Access::Read),
            Ok(())
        );
        assert_eq!(
            auth.check_permission(Some("u"), b"b", b"", Access::Write),
            Err(AuthError::Denied)
        );
        assert_eq!(
            auth.check_permission(Some("u"), b"b", b"d", Access::Read),
            Err(AuthError::Denied)
        );
        auth.delete_role("r").unwrap();
        assert_eq!(
            auth.check_permission(Some("u"), b"b", b"", Access::Read),
            Err(AuthError::Denied)
        );
    }

    #[test]
    fn every_change_increments_the_revision() {
        let mut auth = Auth::default();
        let permission = Permission {
            key: "a".into(),
            ..Permission::default()
        };
        let mut revision = auth.revision;
        let mut check = |what: &str, done: Result, after: u64| {
            assert_eq!(done, Ok(()), "{what}");
            revision += 1;
            assert_eq!(after, revision, "{what}");
        };
        check("user", auth.add_user("u", b"h", false), auth.revision);
        check("role", auth.add_role("r"), auth.revision);
        check("grant", auth.grant_role("u", "r"), auth.revision);
        check("password", auth.change_password("u", b"g"), auth.revision);
        check(
            "permission",
            auth.grant_permission("r", Some(&permission)),
            auth.revision,
        );
        check(
            "revoke",
            auth.revoke_permission("r", b"a", b""),
            auth.revision,
        );
        check("revoke role", auth.revoke_role("u", "r"), auth.revision);
        check("delete role", auth.delete_role("r"), auth.revision);
        check("delete user", auth.delete_user("u"), auth.revision);
    }

    #[test]
    fn absent_or_existing_names_are_rejected() {
        let mut auth = Auth::default();
        auth.add_user("u", b"h", false).unwrap();
        auth.add_role("r").unwrap();
        let before = auth.revision;
        for (done, expect) in [
            (auth.add_user("", b"h", false), AuthError::UserEmpty),
            (auth.add_user("u", b"h", false), AuthError::UserExists),
            (auth.delete_user("x"), AuthError::UserNotFound),
            (auth.change_password("x", b"h"), AuthError::UserNotFound),
            (auth.add_role(""), AuthError::RoleEmpty),
            (auth.add_role("r"), AuthError::RoleExists),
            (auth.delete_role("x"), AuthError::RoleNotFound),
            (auth.grant_role("x", "r"), AuthError::UserNotFound),
            (auth.grant_role("u", "x"), AuthError::RoleNotFound),
            (auth.revoke_role("u", "r"), AuthError::RoleNotGranted),
            (
                auth.grant_permission("r", None),
                AuthError::PermissionNotGiven,
            ),
            (
                auth.revoke_permission("r", b"a", b""),
                AuthError::PermissionNotGranted,
            ),
        ] {
            assert_eq!(done, Err(expect));
        }
        assert_eq!(auth.revision, before, "nothing changed");
    }

    #[test]
    fn granting_a_range_again_replaces_its_type() {
        let mut auth = Auth::default();
        auth.add_role("r").unwrap();
        for kind in [Type::Read, Type::Readwrite] {
            let permission = Permission {
                perm_type: kind.into(),
                key: "a".into(),
                range_end: "b".into(),
            };
            auth.grant_permission("r", Some(&permission)).unwrap();
        }
        let granted = &auth.find_role("r").unwrap().key_permission;
        assert_eq!(granted.len(), 1);
        assert_eq!(granted[0].perm_type(), Type::Readwrite);
    }

    #[test]
    fn everything_is_allowed_while_auth_is_disabled() {
        let auth = Auth::default();
        assert_eq!(
            auth.check_permission(None, b"a", b"\0", Access::Write),
            Ok(())
        );
        assert_eq!(auth.check_admin(None), Ok(()));
    }

    #[test]
    fn unknown_and_anonymous_users_are_rejected() {
        let auth = Auth {
            enabled: true,
            ..Auth::default()
        };
        for (user, expect) in [
            (None, AuthError::UserEmpty),
            (Some(""), AuthError::UserEmpty),
            (Some("x"), AuthError::Denied),
        ] {
            let checked = auth.check_permission(user, b"a", b"", Access::Read);
            assert_eq!(checked, Err(expect), "{user:?}");
            assert_eq!(auth.check_admin(user), Err(expect), "{user:?}");
        }
    }

    #[test]
    fn root_role_allows_everything_to_any_user() {
        let mut auth = Auth {
            enabled: true,
            ..Auth::default()
        };
        auth.add_user("admin", b"h", false).unwrap();
        auth.grant_role("admin", ROOT).unwrap();
        assert!(auth.is_root("admin"));
        assert_eq!(
            auth.check_permission(Some("admin"), b"\0", b"\0", Access::Write),
            Ok(())
        );
        assert_eq!(auth.check_admin(Some("admin")), Ok(()));
    }
}
