//! Applying what changes users and roles.

use crate::apply::Scene;
use crate::command::Command;
use crate::machine::Outcome;
use crate::persist;
use crate::refusal::Refusal;

impl Scene<'_> {
    pub(crate) fn change_auth(&mut self, command: &Command) -> Result<Outcome, Refusal> {
        let auth = &mut self.replicated.auth;
        match command {
            Command::AuthEnable(_) => auth.enable()?,
            Command::AuthDisable(_) => auth.disable()?,
            Command::UserAdd(request) => {
                let no_password = request.options.as_ref().is_some_and(|options| options.no_password);
                auth.add_user(&request.name, request.hashed_password.as_bytes(), no_password)?;
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
            _ => return Ok(Outcome::Done),
        }
        persist::put_auth(&mut self.batch, auth);
        Ok(Outcome::Done)
    }
}
