//! Identity of a stream's caller, checked again while the stream is open, because users, roles and
//! the auth status may change.

use crate::context::{ServerContext, bearer_token};
use http::request::Parts;
use kv_machine::{Caller, EtcdError};
use tonic::Status;

/// The identity at the start of the stream.
pub(crate) struct StreamCaller {
    caller: Caller,
    token: Option<String>,
}

impl StreamCaller {
    pub fn new(core: &ServerContext, parts: Parts) -> Result<Self, Status> {
        let token = bearer_token(&parts.headers);
        Ok(StreamCaller {
            token,
            caller: core.http_caller(parts)?,
        })
    }

    /// Returns the caller if its login is still valid.
    pub fn current(&self, core: &ServerContext) -> Result<Caller, EtcdError> {
        match &self.token {
            // A certificate needs no such check: it was verified in the handshake, and names a user
            // whose permissions are checked for each request.
            Some(token) if core.machine.with_auth(|auth| auth.enabled) => {
                core.token_caller(token).ok_or(EtcdError::InvalidToken)
            }
            _ => Ok(self.caller.clone()),
        }
    }

    /// Returns the user with the current permissions, even if its login is no longer valid: that
    /// only affects new requests.
    pub fn user(&self) -> Caller {
        Caller {
            auth_revision: 0,
            ..self.caller.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_of_an_open_stream_is_judged_by_present_permissions() {
        let caller = StreamCaller {
            caller: Caller {
                user: "u".to_owned(),
                auth_revision: 7,
                internal: false,
            },
            token: Some("secret.1".to_owned()),
        };
        let user = caller.user();
        // Revision 0 is the current one: a later change does not end the login of the stream.
        assert_eq!((user.user.as_str(), user.auth_revision), ("u", 0));
    }
}
