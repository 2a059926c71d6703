//! The caller of a command or request.

/// Identity of a caller.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// Name of the user; empty for an anonymous caller.
    pub user: String,
    /// Auth revision at which the user was authenticated; 0: the current one.
    pub auth_revision: u64,
    /// Set for the store itself, which needs no permission.
    pub internal: bool,
}

impl Caller {
    /// Returns the identity of the store itself.
    pub fn internal() -> Self {
        Caller {
            internal: true,
            ..Caller::default()
        }
    }
}
