//! The registered plugins, by the sockets in the registration folder.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::plugin::{Plugin, register_plugin};

/// Largest number of sockets.
const MAX_SOCKETS: usize = 256;

/// Identity of a socket, which a later one of its name does not have.
type Identity = (u64, i64, i64);

/// A socket whose plugin was asked for its name.
#[derive(Debug)]
struct Known {
    identity: Identity,
    /// Number of the registration: a later one has a larger one.
    number: u64,
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
    registrations: AtomicU64,
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
            let number = self.registrations.fetch_add(1, Ordering::Relaxed);
            let known = Known {
                identity,
                number,
                state,
            };
            self.by_socket.lock().insert(socket, known);
        }
        failed
    }

    /// Returns the plugins of a driver, the newest first. There may be two while a plugin is
    /// updated, or if one ended without removing its socket.
    pub(crate) fn list(&self, driver: &str) -> Vec<Plugin> {
        let sockets = self.by_socket.lock();
        let plugins = sockets.values().filter_map(|known| match &known.state {
            State::Registered(plugin) if plugin.driver == driver => Some((known.number, plugin)),
            _ => None,
        });
        let mut plugins: Vec<_> = plugins.collect();
        plugins.sort_by_key(|(number, _)| Reverse(*number));
        plugins
            .into_iter()
            .map(|(_, plugin)| plugin.clone())
            .collect()
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
