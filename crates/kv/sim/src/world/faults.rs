//! Injects faults into hosts, disks and the network, and repairs them.

use super::{CLIENTS, World};
use crate::disk::SimDisk;
use crate::net::HostId;

impl World {
    pub(super) fn repair_faults(&mut self) {
        self.repair = None;
        self.net.heal_connections();
        self.net
            .set_weather(self.plan.longest_delay, self.plan.lost_once_in);
        for host in self.hosts.values() {
            host.disk.set_full(false);
        }
    }

    /// Injects a random fault.
    pub(super) fn inject_fault(&mut self) {
        self.faults += 1;
        let ids: Vec<HostId> = self.hosts.keys().copied().collect();
        let Some(id) = self.rng.pick(&ids).copied() else {
            return;
        };
        let away = self.rng.range(10, 900);
        let for_a_while = self.net.now() + self.rng.range(50, 1_500);
        if self.plan.suspends && self.later_rng.once_in(5) {
            let asleep = self.later_rng.range(50, 1_500);
            if let Some(host) = self.hosts.get_mut(&id) {
                host.suspend(asleep);
            }
            return;
        }
        match self.rng.below(12) {
            0 => self.crash_host(id, false, away),
            1 => {
                // The process restarts at once, then the host loses power: the data that it read
                // back may not have been on disk.
                self.crash_host(id, false, 1);
                let soon = self.net.now() + self.rng.range(5, 60);
                self.blackouts.push((soon, id));
            }
            2 | 3 => self.crash_host(id, true, away),
            4 => {
                for id in ids {
                    let away = self.rng.range(10, 900);
                    self.crash_host(id, true, away);
                }
            }
            5 | 6 => {
                let operations = self.rng.range(1, 40);
                self.with_disk(id, |disk| disk.light_fuse(operations));
            }
            7 => self.with_disk(id, |disk| disk.fail_next_sync()),
            8 => {
                self.with_disk(id, |disk| disk.set_full(true));
                self.repair = Some(for_a_while);
            }
            9 => {
                // Isolates one host, with or without the clients.
                let whole = self.rng.once_in(2);
                for other in ids.iter().copied().chain(whole.then_some(CLIENTS)) {
                    self.net.cut_connection(id, other);
                    self.net.cut_connection(other, id);
                }
                self.repair = Some(for_a_while);
            }
            10 => {
                let other = self.rng.pick(&ids).copied().unwrap_or(id);
                self.net.cut_connection(id, other);
                self.repair = Some(for_a_while);
            }
            _ => {
                self.net.set_weather(60, 30);
                self.repair = Some(for_a_while);
            }
        }
    }

    fn with_disk(&self, id: HostId, act: impl FnOnce(&SimDisk)) {
        if let Some(host) = self.hosts.get(&id).filter(|host| host.is_up()) {
            act(&host.disk);
        }
    }
}
