//! Errors of runtime calls.

use tonic::Code;

/// A failed call.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The endpoint is invalid.
    #[error("runtime endpoint {endpoint:?}: {why}")]
    Endpoint {
        /// The endpoint as given.
        endpoint: String,
        /// The reason.
        why: String,
    },
    /// The runtime returned an error.
    #[error("{message}")]
    Call {
        /// gRPC status code.
        code: Code,
        /// The runtime's message.
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

    /// Returns whether the object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(Code::NotFound)
    }

    /// Returns whether the runtime does not implement the call.
    pub fn is_unimplemented(&self) -> bool {
        self.code() == Some(Code::Unimplemented)
    }

    /// Returns whether the deadline expired.
    pub fn is_timeout(&self) -> bool {
        matches!(self.code(), Some(Code::DeadlineExceeded | Code::Cancelled))
    }
}

impl From<tonic::Status> for RuntimeError {
    fn from(status: tonic::Status) -> Self {
        RuntimeError::Call {
            code: status.code(),
            message: status.message().to_owned(),
        }
    }
}
