//! Applies changes of users and roles.

use crate::apply::ApplyContext;
use crate::command::{Command, Login};
use crate::error::EtcdError;
use crate::machine::Outcome;
use crate::persist;
use tokio::time::Instant;

impl ApplyContext<'_> {
    pub(crate) fn change_auth(&mut self, command: &Command) -> Result<Outcome, EtcdError> {
        let auth = &mut self.replicated.auth;
        match command {
            Command::AuthEnable(_) => auth.enable()?,
            Command::AuthDisable(_) => auth.disable()?,
            Command::UserAdd(request) => {
                let no_password = request
                    .options
                    .as_ref()
                    .is_some_and(|options| options.no_password);
                auth.add_user(
                    &request.name,
                    request.hashed_password.as_bytes(),
                    no_password,
                )?;
            }
            Command::UserDelete(request) => auth.delete_user(&request.name)?,
            Command::UserChangePassword(request) => {
                auth.change_password(&request.name, request.hashed_password.as_bytes())?;
            }
            Command::UserGrantRole(request) => auth.grant_role(&request.user, &request.role)?,
            Command::UserRevokeRole(request) => auth.revoke_role(&request.name, &request.role)?,
            Command::RoleAdd(request) => auth.add_role(&request.name)?,
            Command::RoleDelete(request) => auth.delete_role(&request.role)?,
            Command::RoleGrantPermission(request) => {
                auth.grant_permission(&request.name, request.perm.as_ref())?;
            }
            Command::RoleRevokePermission(request) => {
                auth.revoke_permission(&request.role, &request.key, &request.range_end)?;
            }
            // A login changes no permissions: neither the stored state nor the auth revision.
            Command::Authenticate(login) => return self.log_in(login),
            _ => return Ok(Outcome::Done),
        }
        // A deleted user, a new password or disabled auth invalidates the tokens.
        match command {
            Command::AuthDisable(_) => self.tokens.clear(),
            // A user that is created again under this name must not inherit the sessions.
            Command::UserDelete(request) => self.tokens.remove_user(&request.name),
            Command::UserChangePassword(request) => self.tokens.remove_user(&request.name),
            _ => {}
        }
        // Tokens are not persisted: after a restart, clients log in again.
        persist::put_auth(&mut self.batch, auth);
        // Published before any later command is applied, so that watchers receive later events by
        // the new permissions.
        self.rights_changed.send_modify(|count| *count += 1);
        Ok(Outcome::Done)
    }

    fn log_in(&mut self, login: &Login) -> Result<Outcome, EtcdError> {
        let auth = &self.replicated.auth;
        if !auth.enabled {
            return Err(EtcdError::AuthNotEnabled);
        }
        // The password was verified before the proposal. The user may have been deleted since.
        auth.find_user(&login.user)
            .map_err(|_| EtcdError::AuthFailed)?;
        self.tokens.add(
            // Another member waits until it has applied this index before it looks the token up.
            // The index also makes each token unique.
            format!("{}.{}", login.digest, self.index),
            &login.user,
            Instant::now(),
        );
        Ok(Outcome::LoggedIn(self.index))
    }
}
