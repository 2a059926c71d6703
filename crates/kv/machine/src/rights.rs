//! Authorization of commands and reads, for every branch of a transaction and both ends of every
//! range.

use crate::caller::Caller;
use crate::command::Command;
use crate::error::EtcdError;
use kv_auth::{Access, Auth, AuthError};
use kv_lease::Leases;
use proto_etcd::etcdserverpb::alarm_request::AlarmAction;
use proto_etcd::etcdserverpb::request_op::Request;
use proto_etcd::etcdserverpb::{DeleteRangeRequest, PutRequest, RangeRequest, TxnRequest};

/// Decides on permissions from users, roles and leases, without changing them.
pub(crate) struct Rights<'a> {
    pub auth: &'a Auth,
    pub leases: &'a Leases,
    pub caller: &'a Caller,
}

type CheckResult = Result<(), EtcdError>;

impl Rights<'_> {
    fn user_name(&self) -> Option<&str> {
        (!self.caller.user.is_empty()).then_some(self.caller.user.as_str())
    }

    /// Returns an error if users or roles changed after the caller was authenticated.
    fn check_auth_revision(&self) -> CheckResult {
        let since = self.caller.auth_revision;
        // etcd rejects such a request too, and its client logs in again.
        if self.auth.enabled && since != 0 && since < self.auth.revision {
            return Err(AuthError::OldRevision.into());
        }
        Ok(())
    }

    fn check_span(&self, key: &[u8], end: &[u8], access: Access) -> CheckResult {
        self.check_auth_revision()?;
        Ok(self
            .auth
            .check_permission(self.user_name(), key, end, access)?)
    }

    pub fn check_command(&self, command: &Command) -> CheckResult {
        if !self.auth.enabled || self.caller.internal {
            return Ok(());
        }
        match command {
            // The password was verified at this auth revision.
            Command::Authenticate(_) => self.check_auth_revision(),
            Command::Put(request) => self.check_put(request),
            Command::DeleteRange(request) => self.check_delete(request),
            Command::Txn(request) => self.check_txn(request),
            Command::LeaseRevoke(request) => self.check_lease_keys(request.id, Access::Write),
            Command::LeaseGrant(_) | Command::Barrier(_) => self.check_known(),
            // Listing alarms reveals no keys; raising and clearing them needs the root role.
            Command::Alarm(request) if request.action() == AlarmAction::Get => self.check_known(),
            _ => Ok(self.auth.check_admin(self.user_name())?),
        }
    }

    /// Returns an error if the caller is not a user of the store. A certificate of the CA or a
    /// token signed elsewhere is not enough.
    pub fn check_known(&self) -> CheckResult {
        if !self.auth.enabled || self.caller.internal {
            return Ok(());
        }
        let user = self.user_name().ok_or(EtcdError::UserEmpty)?;
        self.auth
            .find_user(user)
            .map(drop)
            .map_err(|_| AuthError::Denied.into())
    }

    pub fn check_range(&self, request: &RangeRequest) -> CheckResult {
        self.check_span(&request.key, &request.range_end, Access::Read)
    }

    fn check_put(&self, request: &PutRequest) -> CheckResult {
        self.check_span(&request.key, b"", Access::Write)?;
        // The response contains the previous pair, which the caller may not be allowed to read.
        if request.prev_kv {
            self.check_span(&request.key, b"", Access::Read)?;
        }
        // Attaching a key lets the caller affect when the lease's other keys expire.
        if request.lease != 0 {
            self.check_lease_keys(request.lease, Access::Write)
        } else {
            Ok(())
        }
    }

    fn check_delete(&self, request: &DeleteRangeRequest) -> CheckResult {
        self.check_span(&request.key, &request.range_end, Access::Write)?;
        // The response holds the deleted pairs.
        if request.prev_kv {
            self.check_span(&request.key, &request.range_end, Access::Read)?;
        }
        Ok(())
    }

    pub fn check_txn(&self, request: &TxnRequest) -> CheckResult {
        // The branch that is chosen reveals the compared values.
        for compare in &request.compare {
            self.check_span(&compare.key, &compare.range_end, Access::Read)?;
        }
        // Both branches, because the decision must not depend on the values compared.
        for op in request.success.iter().chain(&request.failure) {
            match &op.request {
                Some(Request::RequestRange(request)) => self.check_range(request)?,
                Some(Request::RequestPut(request)) => self.check_put(request)?,
                Some(Request::RequestDeleteRange(request)) => self.check_delete(request)?,
                Some(Request::RequestTxn(request)) => self.check_txn(request)?,
                None => {}
            }
        }
        Ok(())
    }

    /// Checks whether the caller may list leases: like etcd, it must be allowed to read the keys of
    /// all of them.
    pub fn check_lease_list(&self) -> CheckResult {
        self.leases
            .lease_ids()
            .into_iter()
            .try_for_each(|id| self.check_lease_keys(id, Access::Read))
    }

    /// Checks whether the caller has access to every key of a lease.
    pub fn check_lease_keys(&self, lease: i64, access: Access) -> CheckResult {
        self.check_known()?;
        for key in self.leases.attached_keys(lease) {
            self.check_span(&key, b"", access)?;
        }
        Ok(())
    }
}
