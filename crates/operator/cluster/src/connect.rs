//! The administrator's connection to a cluster on this machine.

use client::{Client, Config};

use crate::error::{Error, Result};
use crate::layout::Layout;

/// Returns a client with the administrator's kubeconfig.
pub fn connect_admin(layout: &Layout) -> Result<Client> {
    let path = layout.admin_kubeconfig();
    let config = Config::from_kubeconfig(&path).map_err(|cause| Error::Api {
        what: path.display().to_string(),
        cause,
    })?;
    Ok(Client::new(config.user_agent("ironclad")))
}
