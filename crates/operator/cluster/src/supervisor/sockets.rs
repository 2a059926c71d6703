//! The sockets that the supervisor keeps for processes. While a process restarts, a pod in the
//! network of the machine could take its port, and cut off those that connect to it.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::plan::Plan;
use crate::process::Running;

/// The sockets, by their addresses.
#[derive(Debug, Clone, Default)]
pub(super) struct Sockets(Arc<Mutex<HashMap<SocketAddr, Arc<TcpListener>>>>);

impl Sockets {
    fn with_map<T>(&self, work: impl FnOnce(&mut HashMap<SocketAddr, Arc<TcpListener>>) -> T) -> T {
        // A panic in a critical section leaves a valid map.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the socket at `address`; binds it if there is none.
    pub(super) fn open(&self, address: SocketAddr) -> Result<Arc<TcpListener>> {
        self.with_map(|map| {
            if let Some(socket) = map.get(&address) {
                return Ok(socket.clone());
            }
            let socket = TcpListener::bind(address).map_err(|error| {
                Error::Refused(format!(
                    "{address}: {error}; `ss -ltnp 'sport = :{}'` names the program that has the port",
                    address.port()
                ))
            })?;
            let socket = Arc::new(socket);
            map.insert(address, socket.clone());
            Ok(socket)
        })
    }

    /// Keeps the socket that an earlier supervisor has passed to a process.
    pub(super) fn adopt(&self, address: SocketAddr, process: &Running) {
        let copied = process.copy_input().map(TcpListener::from);
        match copied {
            Ok(socket) if socket.local_addr().ok() == Some(address) => {
                self.with_map(|map| {
                    map.entry(address).or_insert_with(|| Arc::new(socket));
                });
            }
            Ok(_) => tracing::warn!(%address, "the process has another socket"),
            Err(error) => {
                tracing::warn!(%address, %error, "the port is free while its process restarts");
            }
        }
    }

    /// Closes the sockets that are not in `plan`.
    pub(super) fn retain_planned(&self, plan: &Plan) {
        let is_planned = |address: &SocketAddr| {
            let mut processes = plan.processes.iter();
            processes.any(|process| process.socket.as_ref() == Some(address))
        };
        self.with_map(|map| map.retain(|address, _| is_planned(address)));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::checks::wait_until_port_free;

    #[test]
    fn socket_stays_bound_until_the_plan_has_no_process_for_it() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        let sockets = Sockets::default();
        let error = sockets.open(address).unwrap_err().to_string();
        assert!(error.contains("names the program"), "{error}");
        drop(free);
        // Other tests start processes, which have all sockets for a moment.
        assert!(wait_until_port_free(address.port()));
        drop(sockets.open(address).unwrap());
        drop(sockets.open(address).unwrap());
        assert!(TcpListener::bind(address).is_err());
        sockets.retain_planned(&Plan::default());
        assert!(wait_until_port_free(address.port()));
    }
}
