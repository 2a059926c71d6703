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
        match self {
            // containerd 2.2 has a message instead of the code for some calls.
            RuntimeError::Call { code, message } => {
                *code == Code::Unimplemented
                    || (*code == Code::Unknown && message.contains("not implemented"))
            }
            RuntimeError::Endpoint { .. } => false,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_that_containerd_does_not_implement_is_recognized_by_its_message() {
        for (code, message, expected) in [
            (Code::Unknown, "not implemented yet", true),
            (Code::Unknown, "no such sandbox", false),
            (Code::Internal, "not implemented yet", false),
        ] {
            let error = RuntimeError::from(tonic::Status::new(code, message));
            assert_eq!(error.is_unimplemented(), expected, "{code:?} {message}");
        }
    }

    #[test]
    fn error_is_classified_by_its_code() {
        for (code, not_found, unimplemented, timeout) in [
            (Code::NotFound, true, false, false),
            (Code::Unimplemented, false, true, false),
            (Code::DeadlineExceeded, false, false, true),
            // tonic reports an expired deadline of its own as cancelled.
            (Code::Cancelled, false, false, true),
            (Code::Internal, false, false, false),
        ] {
            let error = RuntimeError::from(tonic::Status::new(code, "x"));
            assert_eq!(
                (
                    error.is_not_found(),
                    error.is_unimplemented(),
                    error.is_timeout()
                ),
                (not_found, unimplemented, timeout),
                "{code:?}"
            );
        }
    }
}
