//! The plugin's errors, with the codes of the CNI specification.

use serde_json::{Value, json};

/// Code of an error: the specification's below 100, the plugin's own from there on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorCode {
    IncompatibleVersion = 1,
    UnknownContainer = 3,
    InvalidEnvironment = 4,
    InputOutput = 5,
    InvalidContent = 6,
    InvalidConfig = 7,
    Unavailable = 50,
    AddressesExhausted = 100,
    AlreadyAttached = 101,
    HostPortInUse = 102,
    NetworkDiffers = 103,
}

/// An operation that failed. Nothing that it made is left, except where the message says so.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct PluginError {
    code: ErrorCode,
    message: String,
}

impl PluginError {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    pub(crate) fn invalid_config(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidConfig, message)
    }

    pub(crate) fn input_output(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InputOutput, message)
    }

    /// Adds what else failed, so that the reader knows what is left.
    pub(crate) fn with_failure(mut self, failure: &Self) -> Self {
        self.message = format!("{}; and then: {}", self.message, failure.message);
        self
    }

    pub(crate) fn with_code(mut self, code: ErrorCode) -> Self {
        self.code = code;
        self
    }

    /// Returns the specification's JSON, in the version of the request.
    pub(crate) fn to_json(&self, version: &str) -> Value {
        json!({
            "cniVersion": version,
            "code": self.code as u32,
            "msg": self.message,
        })
    }
}

impl From<net_link::Error> for PluginError {
    fn from(error: net_link::Error) -> Self {
        Self::input_output(error.to_string())
    }
}

impl From<net_nft::Error> for PluginError {
    fn from(error: net_nft::Error) -> Self {
        Self::input_output(error.to_string())
    }
}
