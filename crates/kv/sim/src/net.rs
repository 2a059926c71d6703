//! The network: calls as messages that take their time, each of which may be lost.
//!
//! What belongs to one call arrives in order, as on a connection, and a loss ends the call, as a broken connection does;
//! different calls overtake each other. A direction between two hosts can be cut while the other one is open.

use crate::entropy::Rng;
use bytes::Bytes;
use http_body::Frame;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A member's identifier, or the clients'.
pub(crate) type HostId = u64;

/// The services that a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    Peer,
    Client,
}

/// What travels.
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
    /// The caller does not wait any more.
    Cancel,
    /// The connection is gone.
    Reset,
}

struct Call {
    caller: HostId,
    callee: HostId,
    broken: bool,
    /// When the last message towards caller and callee arrives.
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

/// Everybody's network, and the world's clock.
#[derive(Clone)]
pub(crate) struct Net(Arc<Mutex<State>>);

impl State {
    fn put(&mut self, at: u64, to: HostId, call: u64, packet: Packet) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), (to, call, packet));
    }

    /// Both ends learn of it, each at its own time.
    fn break_call(&mut self, number: u64, soonest: u64, latest: u64) {
        let Some(call) = self.calls.get_mut(&number) else { return };
        if std::mem::replace(&mut call.broken, true) {
            return;
        }
        let ends = [call.caller, call.callee];
        for end in ends {
            let at = self.now + 1 + self.rng.range(soonest, latest);
            self.put(at, end, number, Packet::Reset);
        }
    }

    fn note(&mut self, what: u64) {
        self.trace = (self.trace ^ what).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17);
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

    /// Milliseconds since the world began.
    pub fn now(&self) -> u64 {
        self.0.lock().now
    }

    /// A number that grows with everything that clients see: what ends before something else begins has a smaller one.
    pub fn event(&self) -> u64 {
        let mut state = self.0.lock();
        state.events += 1;
        state.events
    }

    /// Sums up everything that happened; equal for equal runs.
    pub fn trace(&self) -> u64 {
        self.0.lock().trace
    }

    pub fn note(&self, what: u64) {
        self.0.lock().note(what);
    }

    pub fn set_weather(&self, longest_delay: u64, lost_once_in: u64) {
        let mut state = self.0.lock();
        (state.longest_delay, state.lost_once_in) = (longest_delay, lost_once_in);
    }

    pub fn cut(&self, from: HostId, to: HostId) {
        self.0.lock().cut.insert((from, to));
    }

    pub fn heal(&self) {
        self.0.lock().cut.clear();
    }

    pub fn set_up(&self, host: HostId) {
        self.0.lock().up.insert(host);
    }

    /// A host's process is gone. With the power on, the others are told at once; else they find out.
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
        state.calls.insert(number, Call { caller, callee, broken: false, last: [0; 2] });
        number
    }

    pub fn send(&self, from: HostId, number: u64, packet: Packet) {
        let mut guard = self.0.lock();
        let state = &mut *guard;
        let Some(call) = state.calls.get(&number) else { return };
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
        let Some(call) = state.calls.get_mut(&number) else { return };
        let last = &mut call.last[usize::from(back)];
        let at = (state.now + delay).max(*last);
        *last = at;
        state.put(at, to, number, packet);
    }

    /// The call is over on both sides.
    pub fn close(&self, number: u64) {
        self.0.lock().calls.remove(&number);
    }

    /// One millisecond passes; returns what arrives in it.
    pub fn tick(&self) -> Vec<(HostId, u64, Packet)> {
        let mut guard = self.0.lock();
        let state = &mut *guard;
        state.now += 1;
        let later = state.queue.split_off(&(state.now + 1, 0));
        let arrived = std::mem::replace(&mut state.queue, later);
        let mut packets = Vec::with_capacity(arrived.len());
        for ((at, sequence), (to, number, packet)) in arrived {
            state.note(at ^ sequence << 20 ^ to << 50 ^ number << 8);
            let broken = state.calls.get(&number).is_none_or(|call| call.broken);
            if matches!(packet, Packet::Reset) || !broken && state.up.contains(&to) {
                packets.push((to, number, packet));
            }
        }
        packets
    }
}
