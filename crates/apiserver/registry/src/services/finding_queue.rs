//! Findings of the repair, and their way to the task that creates their Events.

use serde_json::Value;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::{Mutex, mpsc};

/// Maximum number of rounds whose Events are not created yet.
const MAX_WAITING_ROUNDS: usize = 4;

/// A defect of one allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Defect {
    /// The address had no IPAddress; it has one now.
    AddressNotAllocated(IpAddr),
    /// The address is in no ServiceCIDR.
    AddressOutOfRange(IpAddr),
    /// Another Service has the address, too.
    AddressAlreadyAllocated(IpAddr),
    /// The port was free in the bitmap; it is allocated now.
    PortNotAllocated(u16),
    /// The port is not in the range.
    PortOutOfRange(u16),
    /// Another Service has the port, too.
    PortAlreadyAllocated(u16),
}

/// A defect, with the Service that has the allocation.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(super) service: Arc<Value>,
    pub(super) defect: Defect,
}

/// Findings of repair rounds, for the task that creates their Events.
pub(crate) struct FindingQueue {
    sender: mpsc::Sender<Vec<Finding>>,
    receiver: Mutex<mpsc::Receiver<Vec<Finding>>>,
}

impl FindingQueue {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = mpsc::channel(MAX_WAITING_ROUNDS);
        FindingQueue {
            sender,
            receiver: Mutex::new(receiver),
        }
    }

    /// Adds the findings of a round; returns false if too many rounds wait.
    pub(super) fn add(&self, findings: Vec<Finding>) -> bool {
        self.sender.try_send(findings).is_ok()
    }

    /// Waits for the findings of the next round.
    pub(crate) async fn receive(&self) -> Option<Vec<Finding>> {
        self.receiver.lock().await.recv().await
    }
}
