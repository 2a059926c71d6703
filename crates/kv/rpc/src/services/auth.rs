//! The Auth service: users and roles.

use crate::context::{ServerContext, to_status};
use crate::tokens;
use kv_machine::{
    Auth as Book, AuthError, Caller, Command, EtcdError, Login, Nothing, Outcome, ROOT,
};
use proto_etcd::authpb::User;
use proto_etcd::etcdserverpb::auth_server;
use proto_etcd::etcdserverpb::*;
use rand::Rng;
use rand::distr::Alphanumeric;
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// Implements etcd's Auth service.
pub(crate) struct Auth(pub Arc<ServerContext>);

/// Maximum number of password checks while users and roles change concurrently.
// Bounded, because each attempt costs a password hash, and constant changes could otherwise hold a
// login forever.
const ATTEMPTS: usize = 10;
/// Length of a simple token's secret in characters.
// Enough that guessing fails: 62 characters give about 190 bits.
const SECRET: usize = 32;

type RpcResult<T> = Result<Response<T>, Status>;

fn auth_status(error: AuthError) -> Status {
    to_status(error.into())
}

impl Auth {
    async fn submit_change<T>(
        &self,
        request: &Request<T>,
        command: Command,
    ) -> Result<Option<ResponseHeader>, Status> {
        let caller = self.0.caller(request)?;
        self.0.not_for_learners()?;
        Ok(self.0.submit(&caller, command).await?.1)
    }

    async fn hash_password(&self, password: String) -> Result<String, Status> {
        self.0
            .passwords
            .hash_password(password)
            .await
            .map_err(to_status)
    }

    /// Verifies a password. Returns the auth revision at which it was valid.
    async fn verify_password(&self, name: &str, password: &str) -> Result<u64, Status> {
        // A follower that lags behind could accept a password that was already changed.
        self.0.read_index().await?;
        let stored = self.0.machine.with_auth(|auth| {
            if !auth.enabled {
                return Err(AuthError::NotEnabled);
            }
            let with_password =
                |user: &&User| !user.options.is_some_and(|options| options.no_password);
            // A user without a password logs in by certificate only.
            let stored = auth.find_user(name).ok().filter(with_password);
            let stored = stored.map(|user| String::from_utf8_lossy(&user.password).into_owned());
            Ok((stored, auth.revision))
        });
        let (stored, revision) = stored.map_err(auth_status)?;
        let fits = self
            .0
            .passwords
            .verify_password(password.to_owned(), stored)
            .await
            .map_err(to_status)?;
        if fits {
            Ok(revision)
        } else {
            // One error for an unknown user and for a wrong password, so that a caller cannot find
            // out names.
            Err(auth_status(AuthError::Failed))
        }
    }

    /// Issues a token. A simple token is replicated to all members.
    async fn issue_token(&self, user: &str, auth_revision: u64) -> Result<String, EtcdError> {
        if let Some(jwt) = &self.0.jwt {
            return jwt.sign_token(user, auth_revision);
        }
        let secret: String = rand::rng()
            .sample_iter(Alphanumeric)
            .take(SECRET)
            .map(char::from)
            .collect();
        // Proposed with the revision at which the password was verified. If users have changed
        // since then, applying it fails with OldAuthRevision, and the password is verified again.
        let command = Command::Authenticate(Login {
            user: user.to_owned(),
            digest: tokens::digest_token(&secret),
        });
        match self
            .0
            .submit_raw(
                &Caller {
                    auth_revision,
                    ..Caller::default()
                },
                command,
            )
            .await?
            .0
        {
            Outcome::LoggedIn(index) => Ok(format!("{secret}.{index}")),
            _ => Err(EtcdError::AuthFailed),
        }
    }

    async fn read_auth<T>(
        &self,
        caller: &Caller,
        may: impl Fn(&Book, &Caller) -> bool,
        look: impl Fn(&Book) -> Result<T, AuthError>,
    ) -> Result<T, Status> {
        self.0.not_for_learners()?;
        self.0.read_index().await?;
        // After the ReadIndex, because roles may have been revoked during it.
        let allowed = self
            .0
            .machine
            .with_auth(|auth| !auth.enabled || may(auth, caller));
        if !allowed {
            self.0.machine.check_admin(caller).map_err(to_status)?;
        }
        self.0.machine.with_auth(look).map_err(auth_status)
    }
}

#[tonic::async_trait]
impl auth_server::Auth for Auth {
    async fn auth_enable(
        &self,
        request: Request<AuthEnableRequest>,
    ) -> RpcResult<AuthEnableResponse> {
        let header = self
            .submit_change(&request, Command::AuthEnable(Nothing {}))
            .await?;
        Ok(Response::new(AuthEnableResponse { header }))
    }

    async fn auth_disable(
        &self,
        request: Request<AuthDisableRequest>,
    ) -> RpcResult<AuthDisableResponse> {
        let header = self
            .submit_change(&request, Command::AuthDisable(Nothing {}))
            .await?;
        Ok(Response::new(AuthDisableResponse { header }))
    }

    async fn auth_status(
        &self,
        request: Request<AuthStatusRequest>,
    ) -> RpcResult<AuthStatusResponse> {
        // As etcd since 3.7: a client must learn that it has to log in without being logged in. A
        // bad token is refused.
        self.0.caller(&request)?;
        self.0.read_index().await?;
        let (enabled, auth_revision) = self
            .0
            .machine
            .with_auth(|auth| (auth.enabled, auth.revision));
        Ok(Response::new(AuthStatusResponse {
            header: self.0.header(),
            enabled,
            auth_revision,
        }))
    }

    async fn authenticate(
        &self,
        request: Request<AuthenticateRequest>,
    ) -> RpcResult<AuthenticateResponse> {
        self.0.not_for_learners()?;
        let AuthenticateRequest { name, password } = request.into_inner();
        let mut attempts = 0;
        loop {
            attempts += 1;
            let revision = self.verify_password(&name, &password).await?;
            match self.issue_token(&name, revision).await {
                // Users or roles have changed, possibly this user's password.
                Err(EtcdError::OldAuthRevision) if attempts < ATTEMPTS => {}
                Err(refusal) => return Err(to_status(refusal)),
                Ok(token) => {
                    return Ok(Response::new(AuthenticateResponse {
                        header: self.0.header(),
                        token,
                    }));
                }
            }
        }
    }

    async fn user_add(
        &self,
        mut request: Request<AuthUserAddRequest>,
    ) -> RpcResult<AuthUserAddResponse> {
        let caller = self.0.caller(&request)?;
        // Before hashing, which costs a processor about 70 ms: callers without rights could occupy
        // all of them.
        self.0.machine.check_admin(&caller).map_err(to_status)?;
        let user = request.get_mut();
        let without = user.options.is_some_and(|options| options.no_password);
        if user.hashed_password.is_empty() && !without {
            user.hashed_password = self
                .hash_password(std::mem::take(&mut user.password))
                .await?;
        }
        // The log and the data directory must never contain a password.
        user.password.clear();
        let command = Command::UserAdd(request.get_ref().clone());
        let header = self.submit_change(&request, command).await?;
        Ok(Response::new(AuthUserAddResponse { header }))
    }

    async fn user_get(
        &self,
        request: Request<AuthUserGetRequest>,
    ) -> RpcResult<AuthUserGetResponse> {
        let caller = self.0.caller(&request)?;
        let name = request.into_inner().name;
        // A user may look up its own roles, as in etcd; other users need the root role.
        let own = |_: &Book, caller: &Caller| caller.user == name;
        let roles = self
            .read_auth(&caller, own, |auth| {
                Ok(auth.find_user(&name)?.roles.clone())
            })
            .await?;
        Ok(Response::new(AuthUserGetResponse {
            header: self.0.header(),
            roles,
        }))
    }

    async fn user_list(
        &self,
        request: Request<AuthUserListRequest>,
    ) -> RpcResult<AuthUserListResponse> {
        let caller = self.0.caller(&request)?;
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let users = self
            .read_auth(
                &caller,
                |_, _| false,
                |auth| Ok(auth.users().map(|user| text(&user.name)).collect()),
            )
            .await?;
        Ok(Response::new(AuthUserListResponse {
            header: self.0.header(),
            users,
        }))
    }

    async fn user_delete(
        &self,
        request: Request<AuthUserDeleteRequest>,
    ) -> RpcResult<AuthUserDeleteResponse> {
        let command = Command::UserDelete(request.get_ref().clone());
        let header = self.submit_change(&request, command).await?;
        Ok(Response::new(AuthUserDeleteResponse { header }))
    }

    async fn user_change_password(
        &self,
        mut request: Request<AuthUserChangePasswordRequest>,
    ) -> RpcResult<AuthUserChangePasswordResponse> {
        let caller = self.0.caller(&request)?;
        self.0.machine.check_admin(&caller).map_err(to_status)?;
        let change = request.get_mut();
        if change.hashed_password.is_empty() {
            change.hashed_password = self
                .hash_password(std::mem::take(&mut change.password))
                .await?;
        }
        change.password.clear();
        let command = Command::UserChangePassword(request.get_ref().clone());
        let header = self.submit_change(&request, command).await?;
        Ok(Response::new(AuthUserChangePasswordResponse { header }))
    }

    async fn user_grant_role(
        &self,
        request: Request<AuthUserGrantRoleRequest>,
    ) -> RpcResult<AuthUserGrantRoleResponse> {
        let command = Command::UserGrantRole(request.get_ref().clone());
        let header = self.submit_change(&request, command).await?;
        Ok(Response::new(AuthUserGrantRoleResponse { header }))
    }

    async fn user_revoke_role(
        &self,
        request: Request<AuthUserRevokeRoleRequest>,
    ) -> RpcResult<AuthUserRevokeRoleResponse> {
        let command = Command::UserRevokeRole(request.get_ref().clone());
        let header = self.submit_change(&request, command).await?;
        Ok(Response::new(AuthUserRevokeRoleResponse { header }))
    }

    async fn role_add(
        &self,
        request: Request<AuthRoleAddRequest>,
    ) -> RpcResult<AuthRoleAddResponse> {
        let command = Command::RoleAdd(request.get_ref().clone());
        let header = self.submit_change(&request, command).await?;
        Ok(Response::new(AuthRoleAddResponse { header }))
    }

    async fn role_get(
        &self,
        request: Request<AuthRoleGetRequest>,
    ) -> RpcResult<AuthRoleGetResponse> {
        let caller = self.0.caller(&request)?;
        let role = request.into_inner().role;
        let own = |auth: &Book, caller: &Caller| {
            auth.find_user(&caller.user)
                .is_ok_and(|user| user.roles.contains(&role))
                // Having the root role is checked as an administrator's right instead.
                && role != ROOT
        };
        let perm = self
            .read_auth(&caller, own, |auth| {
                Ok(auth.find_role(&role)?.key_permission.clone())
            })
            .await?;
        Ok(Response::new(AuthRoleGetResponse {
            header: self.0.header(),
            perm,
        }))
    }

    async fn role_list(
        &self,
        request: Request<AuthRoleListRequest>,
    ) -> RpcResult<AuthRoleListResponse> {
        let caller = self.0.caller(&request)?;
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let roles = self
            .read_auth(
                &caller,
                |_, _| false,
                |auth| Ok(auth.roles().map(|role| text(&role.name)).collect()),
            )
            .await?;
        Ok(Response::new(AuthRoleListResponse {
            header: self.0.header(),
            roles,
        }))
    }

    async fn role_delete(
        &self,
        request: Request<AuthRoleDeleteRequest>,
    ) -> RpcResult<AuthRoleDeleteResponse> {
        let command = Command::RoleDelete(request.get_ref().clone());
        let header = self.submit_change(&request, command).await?;
        Ok(Response::new(AuthRoleDeleteResponse { header }))
    }

    async fn role_grant_permission(
        &self,
        request: Request<AuthRoleGrantPermissionRequest>,
    ) -> RpcResult<AuthRoleGrantPermissionResponse> {
        // Before the log: an entry without a permission could only fail on every member.
        if request.get_ref().perm.is_none() {
            return Err(to_status(EtcdError::PermissionNotGiven));
        }
        let command = Command::RoleGrantPermission(request.get_ref().clone());
        let header = self.submit_change(&request, command).await?;
        Ok(Response::new(AuthRoleGrantPermissionResponse { header }))
    }

    async fn role_revoke_permission(
        &self,
        request: Request<AuthRoleRevokePermissionRequest>,
    ) -> RpcResult<AuthRoleRevokePermissionResponse> {
        let command = Command::RoleRevokePermission(request.get_ref().clone());
        let header = self.submit_change(&request, command).await?;
        Ok(Response::new(AuthRoleRevokePermissionResponse { header }))
    }
}
