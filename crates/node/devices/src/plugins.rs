//! The registered plugins, by the sockets in the registration folder.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::plugin::{Plugin, register_plugin};

/// Largest number of sockets that are looked at.
const MAX_SOCKETS: usize = 256;

/// Tells a socket from a later one of its name.
type Identity = (u64, i64, i64);

/// A socket that was looked at.
#[derive(Debug)]
struct Known {
    identity: Identity,
    state: State,
}

#[derive(Debug)]
enum State {
    Registered(Plugin),
    /// A plugin of another kind.
    Other,
    /// The registration is tried again. The reason was logged.
    Failed,
}

/// Plugins by their registration socket.
#[derive(Debug, Default)]
pub struct Plugins {
    by_socket: Mutex<BTreeMap<PathBuf, Known>>,
}

impl Plugins {
    /// Registers the plugins whose sockets are new in the folder, and forgets those whose sockets
    /// were removed. Returns whether a socket could not be registered, so that the caller tries
    /// again.
    pub async fn scan_folder(&self, folder: &Path) -> bool {
        let sockets = match base_task::blocking(|| list_sockets(folder)) {
            Ok(sockets) => sockets,
            Err(error) => {
                tracing::warn!(folder = %folder.display(), %error, "plugins can't be listed");
                return true;
            }
        };
        // A plugin that was restarted makes its socket again, and waits for its registration.
        self.by_socket
            .lock()
            .retain(|socket, known| sockets.get(socket) == Some(&known.identity));
        let mut failed = false;
        for (socket, identity) in sockets {
            let tried = match self.by_socket.lock().get(&socket).map(|known| &known.state) {
                Some(State::Registered(_) | State::Other) => continue,
                Some(State::Failed) => true,
                None => false,
            };
            let state = match register_plugin(&socket).await {
                Ok(Some(plugin)) => {
                    tracing::info!(driver = plugin.driver, "plugin of devices registered");
                    State::Registered(plugin)
                }
                Ok(None) => State::Other,
                Err(error) => {
                    failed = true;
                    if !tried {
                        tracing::warn!(socket = %socket.display(), error, "plugin not registered; trying again");
                    }
                    State::Failed
                }
            };
            self.by_socket
                .lock()
                .insert(socket, Known { identity, state });
        }
        failed
    }

    /// Returns the plugin of a driver.
    pub(crate) fn find(&self, driver: &str) -> Option<Plugin> {
        let sockets = self.by_socket.lock();
        // While a plugin is updated there may be two. Either serves the driver.
        sockets.values().rev().find_map(|known| match &known.state {
            State::Registered(plugin) if plugin.driver == driver => Some(plugin.clone()),
            _ => None,
        })
    }
}

fn list_sockets(folder: &Path) -> io::Result<BTreeMap<PathBuf, Identity>> {
    let mut sockets = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if hidden || !entry.file_type()?.is_socket() || sockets.len() >= MAX_SOCKETS {
            continue;
        }
        // A socket that was removed since is not there any more.
        if let Ok(meta) = entry.metadata() {
            let identity = (meta.ino(), meta.ctime(), meta.ctime_nsec());
            sockets.insert(entry.path(), identity);
        }
    }
    Ok(sockets)
}
