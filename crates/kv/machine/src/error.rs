//! etcd's errors, with the texts and gRPC codes that clients compare.

use kv_auth::AuthError;
use kv_engine::EngineError;
use kv_mvcc::MvccError;

/// The gRPC codes in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Code {
    InvalidArgument,
    NotFound,
    OutOfRange,
    FailedPrecondition,
    PermissionDenied,
    Unauthenticated,
    ResourceExhausted,
    Unavailable,
    DataLoss,
    Canceled,
    Internal,
    Unimplemented,
}

macro_rules! etcd_errors {
    ($($name:ident $code:ident $text:literal;)*) => {
        /// Reasons for rejecting a request.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
        #[allow(missing_docs)]
        pub enum EtcdError {
            $(#[error($text)] $name,)*
        }

        impl EtcdError {
            /// Returns the gRPC code of the error.
            pub fn grpc_code(self) -> Code {
                match self {
                    $(EtcdError::$name => Code::$code,)*
                }
            }
        }
    };
}

etcd_errors! {
    EmptyKey InvalidArgument "etcdserver: key is not provided";
    KeyNotFound InvalidArgument "etcdserver: key not found";
    ValueProvided InvalidArgument "etcdserver: value is provided";
    LeaseProvided InvalidArgument "etcdserver: lease is provided";
    TooManyOps InvalidArgument "etcdserver: too many operations in txn request";
    DuplicateKey InvalidArgument "etcdserver: duplicate key given in txn request";
    InvalidSort InvalidArgument "etcdserver: invalid sort option";
    InvalidTxn InvalidArgument "etcdserver: txn is nested too deeply";
    TooLarge InvalidArgument "etcdserver: request is too large";
    Compacted OutOfRange "etcdserver: mvcc: required revision has been compacted";
    Future OutOfRange "etcdserver: mvcc: required revision is a future revision";
    NoSpace ResourceExhausted "etcdserver: mvcc: database space exceeded";
    LeaseNotFound NotFound "etcdserver: requested lease not found";
    LeaseExists FailedPrecondition "etcdserver: lease already exists";
    LeaseTtlTooLarge OutOfRange "etcdserver: too large lease TTL";
    MemberExists FailedPrecondition "etcdserver: member ID already exist";
    PeerUrlExists FailedPrecondition "etcdserver: Peer URLs already exists";
    MemberNotFound NotFound "etcdserver: member not found";
    BadMemberUrls InvalidArgument "etcdserver: given member URLs are invalid";
    NotLearner FailedPrecondition "etcdserver: can only promote a learner member";
    LearnerNotReady FailedPrecondition "etcdserver: can only promote a learner member which is in sync with leader";
    TooManyLearners FailedPrecondition "etcdserver: too many learner members in cluster";
    NotEnoughMembers FailedPrecondition "etcdserver: re-configuration failed due to not enough started members";
    ClusterMismatch FailedPrecondition "etcdserver: cluster ID mismatch";
    Unhealthy Unavailable "etcdserver: unhealthy cluster";
    Corrupt DataLoss "etcdserver: corrupt cluster";
    TooManyRequests ResourceExhausted "etcdserver: too many requests";
    NoRootUser FailedPrecondition "etcdserver: root user does not exist";
    NoRootRole FailedPrecondition "etcdserver: root user does not have root role";
    UserExists FailedPrecondition "etcdserver: user name already exists";
    UserEmpty InvalidArgument "etcdserver: user name is empty";
    UserNotFound FailedPrecondition "etcdserver: user name not found";
    RoleExists FailedPrecondition "etcdserver: role name already exists";
    RoleNotFound FailedPrecondition "etcdserver: role name not found";
    RoleEmpty InvalidArgument "etcdserver: role name is empty";
    AuthFailed InvalidArgument "etcdserver: authentication failed, invalid user ID or password";
    PermissionNotGiven InvalidArgument "etcdserver: permission not given";
    Denied PermissionDenied "etcdserver: permission denied";
    RoleNotGranted FailedPrecondition "etcdserver: role is not granted to the user";
    PermissionNotGranted FailedPrecondition "etcdserver: permission is not granted to the role";
    AuthNotEnabled FailedPrecondition "etcdserver: authentication is not enabled";
    InvalidToken Unauthenticated "etcdserver: invalid auth token";
    VerifyOnly FailedPrecondition "auth: token signing attempted with verify-only key";
    InvalidAuthManagement InvalidArgument "etcdserver: invalid auth management";
    OldAuthRevision InvalidArgument "etcdserver: revision of auth store is old";
    NoLeader Unavailable "etcdserver: no leader";
    NotLeader FailedPrecondition "etcdserver: not leader";
    LeaderChanged Unavailable "etcdserver: leader changed";
    Stopped Unavailable "etcdserver: server stopped";
    TimedOut Unavailable "etcdserver: request timed out";
    TimedOutLostLeader Unavailable "etcdserver: request timed out, possibly due to previous leader failure";
    TimedOutApply Unavailable "etcdserver: request timed out, waiting for the applied index took too long";
    NotForLearner FailedPrecondition "etcdserver: rpc not supported for learner";
    BadTransferee FailedPrecondition "etcdserver: bad leader transferee";
    WatchCanceled Canceled "etcdserver: watch canceled";
    Canceled Canceled "etcdserver: request canceled";
    BadDowngradeVersion InvalidArgument "etcdserver: wrong downgrade target version format";
    InvalidDowngrade InvalidArgument "etcdserver: invalid downgrade target version";
    NoDowngrade FailedPrecondition "etcdserver: no inflight downgrade job";
    NotCapable FailedPrecondition "etcdserver: not capable";
    Replaced Unavailable "etcdserver: this member is receiving its state from the leader";
    Damaged DataLoss "etcdserver: a stored record is damaged; restore this member from a snapshot";
}

impl From<MvccError> for EtcdError {
    fn from(error: MvccError) -> Self {
        match error {
            MvccError::Compacted => EtcdError::Compacted,
            MvccError::Future => EtcdError::Future,
            MvccError::KeyNotFound => EtcdError::KeyNotFound,
            MvccError::LeaseNotFound => EtcdError::LeaseNotFound,
            MvccError::EmptyKey => EtcdError::EmptyKey,
            MvccError::ValueProvided => EtcdError::ValueProvided,
            MvccError::LeaseProvided => EtcdError::LeaseProvided,
            MvccError::DuplicateKey => EtcdError::DuplicateKey,
            MvccError::TooManyOps => EtcdError::TooManyOps,
            MvccError::InvalidSort => EtcdError::InvalidSort,
            MvccError::InvalidTxn => EtcdError::InvalidTxn,
            MvccError::Replaced => EtcdError::Replaced,
            MvccError::Engine(error) => {
                tracing::error!(%error, "the engine failed");
                EtcdError::Damaged
            }
            error @ MvccError::Damaged(_) => {
                tracing::error!(%error, "a damaged record");
                EtcdError::Damaged
            }
        }
    }
}

impl From<AuthError> for EtcdError {
    fn from(error: AuthError) -> Self {
        match error {
            AuthError::UserEmpty => EtcdError::UserEmpty,
            AuthError::UserExists => EtcdError::UserExists,
            AuthError::UserNotFound => EtcdError::UserNotFound,
            AuthError::RoleEmpty => EtcdError::RoleEmpty,
            AuthError::RoleExists => EtcdError::RoleExists,
            AuthError::RoleNotFound => EtcdError::RoleNotFound,
            AuthError::RoleNotGranted => EtcdError::RoleNotGranted,
            AuthError::PermissionNotGranted => EtcdError::PermissionNotGranted,
            AuthError::PermissionNotGiven => EtcdError::PermissionNotGiven,
            AuthError::Denied => EtcdError::Denied,
            AuthError::InvalidManagement => EtcdError::InvalidAuthManagement,
            AuthError::NoRootUser => EtcdError::NoRootUser,
            AuthError::NoRootRole => EtcdError::NoRootRole,
            AuthError::NotEnabled => EtcdError::AuthNotEnabled,
            AuthError::Failed => EtcdError::AuthFailed,
            AuthError::OldRevision => EtcdError::OldAuthRevision,
        }
    }
}

/// Reasons why a state machine can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The engine returned an error.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The keys can't be read.
    #[error(transparent)]
    Store(#[from] MvccError),
    /// Another table is damaged.
    #[error(
        "the stored {0} are damaged; restore this member from a snapshot (kvstore snapshot restore)"
    )]
    Damaged(&'static str),
}

impl MachineError {
    /// Returns whether the stored data are damaged, as opposed to unreadable at the moment.
    pub fn is_damage(&self) -> bool {
        !matches!(
            self,
            MachineError::Engine(EngineError::Open { .. })
                | MachineError::Store(MvccError::Engine(EngineError::Open { .. }))
        )
    }
}
