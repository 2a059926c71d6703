//! The error of requests to the kernel.

use std::io;

/// A request that failed.
#[derive(Debug, thiserror::Error)]
#[error("can't {action}: {source}")]
pub struct Error {
    action: String,
    source: io::Error,
}

impl Error {
    /// Returns whether the object exists already.
    #[must_use]
    pub fn is_existing(&self) -> bool {
        self.has_code(rustix::io::Errno::EXIST)
    }

    /// Returns whether the object, or its device, does not exist.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        use rustix::io::Errno;
        [
            Errno::NODEV,
            Errno::NOENT,
            Errno::SRCH,
            Errno::ADDRNOTAVAIL,
            Errno::NXIO,
        ]
        .iter()
        .any(|code| self.has_code(*code))
    }

    /// Returns whether the kernel has no route to an address.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        use rustix::io::Errno;
        [Errno::NETUNREACH, Errno::HOSTUNREACH, Errno::SRCH]
            .iter()
            .any(|code| self.has_code(*code))
    }

    /// Returns whether the kernel lacks the kind of device or the protocol.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        self.has_code(rustix::io::Errno::OPNOTSUPP)
    }

    fn has_code(&self, code: rustix::io::Errno) -> bool {
        self.source.raw_os_error() == Some(code.raw_os_error())
    }

    pub(crate) fn new(action: impl Into<String>, source: io::Error) -> Self {
        Self {
            action: action.into(),
            source,
        }
    }
}
