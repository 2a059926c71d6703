//! What a runtime answers when it can't do what it was asked.

use tonic::Code;

/// A refused or failed call.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The endpoint is not one that can be spoken to.
    #[error("runtime endpoint {endpoint:?}: {why}")]
    Endpoint {
        /// As given.
        endpoint: String,
        /// What is wrong with it.
        why: String,
    },
    /// The runtime's own answer.
    #[error("{message}")]
    Call {
        /// gRPC's code.
        code: Code,
        /// The runtime's words.
        message: String,
    },
}

/// Result of a call.
pub type Result<T> = std::result::Result<T, RuntimeError>;

impl RuntimeError {
    fn code(&self) -> Option<Code> {
        match self {
            RuntimeError::Call { code, .. } => Some(*code),
            RuntimeError::Endpoint { .. } => None,
        }
    }

    /// Whether the thing does not exist (any more).
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(Code::NotFound)
    }

    /// Whether the runtime does not know the call.
    pub fn is_unimplemented(&self) -> bool {
        self.code() == Some(Code::Unimplemented)
    }

    /// Whether the call took too long.
    pub fn is_timeout(&self) -> bool {
        matches!(self.code(), Some(Code::DeadlineExceeded | Code::Cancelled))
    }
}

impl From<tonic::Status> for RuntimeError {
    fn from(status: tonic::Status) -> Self {
        RuntimeError::Call { code: status.code(), message: status.message().to_owned() }
    }
}
