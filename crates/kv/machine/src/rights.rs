//! Whether a user may do what a command or a read asks, in every branch and for both ends of every range.

use crate::command::Command;
use crate::machine::Caller;
use crate::refusal::Refusal;
use kv_auth::{Access, Auth, AuthError};
use kv_lease::Leases;
use proto_etcd::etcdserverpb::alarm_request::AlarmAction;
use proto_etcd::etcdserverpb::request_op::Request;
use proto_etcd::etcdserverpb::{DeleteRangeRequest, PutRequest, RangeRequest, TxnRequest};

/// Looks at users, roles and leases; changes nothing.
pub(crate) struct Rights<'a> {
    pub auth: &'a Auth,
    pub leases: &'a Leases,
    pub caller: &'a Caller,
}

type Verdict = Result<(), Refusal>;

impl Rights<'_> {
    fn user(&self) -> Option<&str> {
        (!self.caller.user.is_empty()).then_some(self.caller.user.as_str())
    }

    /// Whether the caller was authenticated as of the present users and roles.
    fn present(&self) -> Verdict {
        let since = self.caller.auth_revision;
        if self.auth.enabled && since != 0 && since < self.auth.revision {
            return Err(AuthError::OldRevision.into());
        }
        Ok(())
    }

    fn span(&self, key: &[u8], end: &[u8], access: Access) -> Verdict {
        self.present()?;
        Ok(self.auth.check(self.user(), key, end, access)?)
    }

    pub fn command(&self, command: &Command) -> Verdict {
        if !self.auth.enabled || self.caller.internal {
            return Ok(());
        }
        match command {
            // A password was looked at, as of these users and roles.
            Command::Authenticate(_) => self.present(),
            Command::Put(request) => self.put(request),
            Command::DeleteRange(request) => self.delete(request),
            Command::Txn(request) => self.txn(request),
            Command::LeaseRevoke(request) => self.lease_keys(request.id, Access::Write),
            Command::LeaseGrant(_) | Command::Barrier(_) => self.known(),
            Command::Alarm(request) if request.action() == AlarmAction::Get => self.known(),
            _ => Ok(self.auth.check_admin(self.user())?),
        }
    }

    /// Whether the caller is a user: a certificate of the CA or a token that was signed elsewhere does not make one.
    pub fn known(&self) -> Verdict {
        if !self.auth.enabled || self.caller.internal {
            return Ok(());
        }
        let user = self.user().ok_or(Refusal::UserEmpty)?;
        self.auth.user(user).map(drop).map_err(|_| AuthError::Denied.into())
    }

    pub fn range(&self, request: &RangeRequest) -> Verdict {
        self.span(&request.key, &request.range_end, Access::Read)
    }

    fn put(&self, request: &PutRequest) -> Verdict {
        self.span(&request.key, b"", Access::Write)?;
        if request.prev_kv {
            self.span(&request.key, b"", Access::Read)?;
        }
        // Who puts under a lease decides when its other keys end.
        if request.lease != 0 { self.lease_keys(request.lease, Access::Write) } else { Ok(()) }
    }

    fn delete(&self, request: &DeleteRangeRequest) -> Verdict {
        self.span(&request.key, &request.range_end, Access::Write)?;
        if request.prev_kv {
            self.span(&request.key, &request.range_end, Access::Read)?;
        }
        Ok(())
    }

    pub fn txn(&self, request: &TxnRequest) -> Verdict {
        for compare in &request.compare {
            self.span(&compare.key, &compare.range_end, Access::Read)?;
        }
        for op in request.success.iter().chain(&request.failure) {
            match &op.request {
                Some(Request::RequestRange(request)) => self.range(request)?,
                Some(Request::RequestPut(request)) => self.put(request)?,
                Some(Request::RequestDeleteRange(request)) => self.delete(request)?,
                Some(Request::RequestTxn(request)) => self.txn(request)?,
                None => {}
            }
        }
        Ok(())
    }

    /// Whether the caller may see which leases there are: the keys of all of them, as etcd asks.
    pub fn lease_list(&self) -> Verdict {
        self.leases.ids().into_iter().try_for_each(|id| self.lease_keys(id, Access::Read))
    }

    /// Whether the caller may touch every key of a lease.
    pub fn lease_keys(&self, lease: i64, access: Access) -> Verdict {
        self.known()?;
        for key in self.leases.keys(lease) {
            self.span(&key, b"", access)?;
        }
        Ok(())
    }
}
