//! Keeps the administrator's kubeconfig of this machine in step with the machines of the control
//! plane.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use crate::admin_kubeconfig::{knows_servers, read_named_servers, store_named_servers};
use crate::command_lock::CommandLock;
use crate::connect::connect_admin;
use crate::error::Result;
use crate::layout::Layout;
use crate::settings::Settings;

/// The Node of a machine changes before or after its endpoint, so the machines are read again
/// whatever the endpoints are.
const INTERVAL: Duration = Duration::from_secs(10);

/// Follows the machines until it is dropped.
pub(super) async fn follow_machines(settings: Settings, layout: Layout) {
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        if let Err(error) = update_kubeconfig(&settings, &layout).await {
            tracing::debug!(%error, "reading the names of the API servers again");
        }
    }
}

async fn update_kubeconfig(settings: &Settings, layout: &Layout) -> Result<()> {
    let client = connect_admin(settings, layout)?;
    // Without the lock: a command waits a few seconds only until it is released.
    let found = read_named_servers(&client, settings).await?;
    if !knows_servers(&found, layout) && !store_unless_locked(&found, settings, layout)? {
        tracing::debug!("a command changes the machine, and may write the kubeconfig itself");
    }
    Ok(())
}

/// Returns false if a command holds the lock.
fn store_unless_locked(
    found: &[(String, SocketAddr)],
    settings: &Settings,
    layout: &Layout,
) -> Result<bool> {
    let Some(_lock) = CommandLock::try_acquire(layout)? else {
        return Ok(false);
    };
    // The load balancer may have changed since this process started; a machine that was reset has
    // no settings.
    if let Some(stored) = Settings::load(&settings.data_dir)?
        && store_named_servers(found, &stored, layout)?
    {
        tracing::info!("wrote the administrator's kubeconfig with the present API servers");
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use operator_pki::Renewal;

    use super::*;
    use crate::cluster_files::write_credentials;

    #[test]
    fn kubeconfig_is_not_written_beside_a_command() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        let settings = Settings {
            data_dir: dir.path().into(),
            ..Settings::example_shared()
        };
        write_credentials(&settings, &layout, Renewal::Due).unwrap();
        let read = || std::fs::read_to_string(layout.admin_kubeconfig()).unwrap();
        let before = read();
        let found = [("cp1".to_owned(), "192.0.2.2:6443".parse().unwrap())];
        // Without settings the machine is about to be reset.
        assert!(store_unless_locked(&found, &settings, &layout).unwrap());
        assert_eq!(read(), before);
        settings.save().unwrap();
        let lock = CommandLock::try_acquire(&layout).unwrap();
        assert!(!store_unless_locked(&found, &settings, &layout).unwrap());
        assert_eq!(read(), before);
        drop(lock);
        assert!(store_unless_locked(&found, &settings, &layout).unwrap());
        assert!(read().contains("ironclad-cp1"));
        assert!(knows_servers(&found, &layout) && !knows_servers(&[], &layout));
    }
}
