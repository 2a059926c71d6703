//! The network: calls consist of messages that are delayed and may be lost.
//!
//! The messages of one call arrive in order, as on a connection, and a loss ends the call, like a
//! broken connection. Different calls may overtake each other. Each direction between two hosts can
//! be cut separately.

use crate::entropy::Rng;
use bytes::Bytes;
use http_body::Frame;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// ID of a member's host, or of the clients' host.
pub(crate) type HostId = u64;

/// The service that a call addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    Peer,
    Client,
}

/// A message.
pub(crate) enum Packet {
    Open {
        from: HostId,
        port: Port,
        head: http::Request<()>,
    },
    RequestFrame(Bytes),
    RequestEnd,
    Head(http::Response<()>),
    ResponseFrame(Frame<Bytes>),
    ResponseEnd,
    /// The caller has cancelled the call.
    Cancel,
    /// The connection was reset.
    Reset,
}

struct Call {
    caller: HostId,
    callee: HostId,
    broken: bool,
    /// Arrival times of the last messages towards caller and callee.
    last: [u64; 2],
}

struct State {
    now: u64,
    sequence: u64,
    events: u64,
    next_call: u64,
    queue: BTreeMap<(u64, u64), (HostId, u64, Packet)>,
    calls: BTreeMap<u64, Call>,
    up: BTreeSet<HostId>,
    cut: BTreeSet<(HostId, HostId)>,
    rng: Rng,
    longest_delay: u64,
    lost_once_in: u64,
    trace: u64,
}

/// The network of all hosts, and the world's clock.
#[derive(Clone)]
pub(crate) struct Net(Arc<Mutex<State>>);

impl State {
    fn put(&mut self, at: u64, to: HostId, call: u64, packet: Packet) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), (to, call, packet));
    }

    /// Breaks a call. Both ends notice it, each at its own time.
    fn break_call(&mut self, number: u64, soonest: u64, latest: u64) {
        let Some(call) = self.calls.get_mut(&number) else {
            return;
        };
        if std::mem::replace(&mut call.broken, true) {
            return;
        }
        let ends = [call.caller, call.callee];
        for end in ends {
            let at = self.now + 1 + self.rng.range(soonest, latest);
            self.put(at, end, number, Packet::Reset);
        }
    }

    fn record_event(&mut self, what: u64) {
        self.trace = (self.trace ^ what)
            .wrapping_mul(0x0000_0100_0000_01b3)
            .rotate_left(17);
    }
}

impl Net {
    pub fn new(rng: Rng) -> Self {
        Net(Arc::new(Mutex::new(State {
            now: 0,
            sequence: 0,
            events: 0,
            next_call: 1,
            queue: BTreeMap::new(),
            calls: BTreeMap::new(),
            up: BTreeSet::new(),
            cut: BTreeSet::new(),
            rng,
            longest_delay: 2,
            lost_once_in: 0,
            trace: 0xcbf2_9ce4_8422_2325,
        })))
    }

    /// Returns the time in milliseconds since the start of the world.
    pub fn now(&self) -> u64 {
        self.0.lock().now
    }

    /// Returns the next number in the order of events that clients observe: an event that precedes
    /// another has a smaller one.
    pub fn next_event(&self) -> u64 {
        let mut state = self.0.lock();
        state.events += 1;
        state.events
    }

    /// Returns a hash of all events; equal for equal runs.
    pub fn trace_hash(&self) -> u64 {
        self.0.lock().trace
    }

    pub fn record_event(&self, what: u64) {
        self.0.lock().record_event(what);
    }

    pub fn set_weather(&self, longest_delay: u64, lost_once_in: u64) {
        let mut state = self.0.lock();
        (state.longest_delay, state.lost_once_in) = (longest_delay, lost_once_in);
    }

    pub fn cut_connection(&self, from: HostId, to: HostId) {
        self.0.lock().cut.insert((from, to));
    }

    pub fn heal_connections(&self) {
        self.0.lock().cut.clear();
    }

    pub fn set_up(&self, host: HostId) {
        self.0.lock().up.insert(host);
    }

    /// Removes a host's process. If the power remains on, its peers are notified at once; otherwise
    /// they run into timeouts.
    pub fn set_down(&self, host: HostId, power: bool) {
        let mut state = self.0.lock();
        state.up.remove(&host);
        let touched: Vec<u64> = state
            .calls
            .iter()
            .filter(|(_, call)| call.caller == host || call.callee == host)
            .map(|(number, _)| *number)
            .collect();
        let (soonest, latest) = if power { (0, 5) } else { (100, 1_000) };
        for number in touched {
            state.break_call(number, soonest, latest);
        }
    }

    pub fn open(&self, caller: HostId, callee: HostId) -> u64 {
        let mut state = self.0.lock();
        let number = state.next_call;
        state.next_call += 1;
        state.calls.insert(
            number,
            Call {
                caller,
                callee,
                broken: false,
                last: [0; 2],
            },
        );
        number
    }

    pub fn send(&self, from: HostId, number: u64, packet: Packet) {
        let mut guard = self.0.lock();
        let state = &mut *guard;
        let Some(call) = state.calls.get(&number) else {
            return;
        };
        if call.broken {
            return;
        }
        let back = from == call.callee;
        let to = if back { call.caller } else { call.callee };
        let delay = 1 + state.rng.below(state.longest_delay);
        if !state.up.contains(&to) {
            return state.break_call(number, 0, 300);
        }
        if state.cut.contains(&(from, to)) || state.rng.once_in(state.lost_once_in) {
            return state.break_call(number, 100, 1_000);
        }
        let Some(call) = state.calls.get_mut(&number) else {
            return;
        };
        let last = &mut call.last[usize::from(back)];
        let at = (state.now + delay).max(*last);
        *last = at;
        state.put(at, to, number, packet);
    }

    /// Removes a call on both sides.
    pub fn close(&self, number: u64) {
        self.0.lock().calls.remove(&number);
    }

    /// Advances the time by one millisecond. Returns the messages that arrive.
    pub fn tick(&self) -> Vec<(HostId, u64, Packet)> {
        let mut guard = self.0.lock();
        let state = &mut *guard;
        state.now += 1;
        let later = state.queue.split_off(&(state.now + 1, 0));
        let arrived = std::mem::replace(&mut state.queue, later);
        let mut packets = Vec::with_capacity(arrived.len());
        for ((at, sequence), (to, number, packet)) in arrived {
            state.record_event(at ^ sequence << 20 ^ to << 50 ^ number << 8);
            let broken = state.calls.get(&number).is_none_or(|call| call.broken);
            if matches!(packet, Packet::Reset) || !broken && state.up.contains(&to) {
                packets.push((to, number, packet));
            }
        }
        packets
    }
}
