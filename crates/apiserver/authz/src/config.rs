//! The configuration of the chain: a file of `apiserver.config.k8s.io`, or flags.

mod file;
#[cfg(test)]
mod tests;
mod types;
mod validate;

pub(crate) use file::load_content;
pub use file::{LoadedConfig, read_authorization_config};

use crate::mode::Mode;
use crate::webhook::WebhookSpec;

/// An authorizer of the chain.
#[derive(Clone, Debug)]
pub struct AuthorizerSpec {
    /// The type.
    pub mode: Mode,
    /// The name in metrics.
    pub name: String,
    /// The webhook, if it is one.
    pub webhook: Option<WebhookSpec>,
}

impl AuthorizerSpec {
    /// Creates an authorizer that is no webhook, with upstream's name for it.
    pub fn built_in(mode: Mode) -> Self {
        AuthorizerSpec {
            mode,
            name: mode.name().to_lowercase(),
            webhook: None,
        }
    }
}
