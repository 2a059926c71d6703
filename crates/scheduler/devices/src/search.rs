//! The search: tries the devices of a node for one request after the other, and goes back when a
//! request finds none.
//!
//! The path is a stack of slots, one for each device, so that the size of claims does not matter
//! for the depth of calls.

mod possible;

use std::collections::HashMap;

use api_cel::Budget;
use api_cel::hosts::device::SELECTOR_LIMIT;
use api_meta::Quantity;
use api_semantics::devices::{MAX_RESULTS, tolerates};

use crate::capacity::{Amounts, change, consumed_by, has_room};
use crate::constraint::Tracked;
use crate::failure::Failure;
use crate::limits::Limits;
use crate::node_devices::{Candidate, NodeDevices};
use crate::pools::consumption;
use crate::prepare::{Choice, Mode, PreparedClaim, PreparedRequest};
use crate::selectors::matches_device;

/// A device to choose.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) claim: usize,
    pub(crate) request: usize,
    pub(crate) choice: usize,
    /// Number of the device within the request.
    nth: usize,
    /// First candidate that was not tried yet.
    next: usize,
    pub(crate) picked: Option<Pick>,
}

/// A chosen device.
#[derive(Clone, Debug)]
pub(crate) struct Pick {
    pub(crate) candidate: usize,
    /// Consumed capacity of a device with several allocations.
    pub(crate) consumed: Option<Amounts>,
    /// The device's counters were taken from the pool.
    counted: bool,
}

impl Slot {
    fn first_of(claim: usize, request: usize) -> Self {
        Self {
            claim,
            request,
            choice: 0,
            nth: 0,
            next: 0,
            picked: None,
        }
    }
}

type ChoiceKey = (usize, usize, usize);

/// One search.
pub(crate) struct Search<'a> {
    claims: &'a [PreparedClaim],
    limits: &'a Limits<'a>,
    node: NodeDevices<'a>,
    /// Results of selectors, by choice and candidate.
    matches: HashMap<(ChoiceKey, usize), bool>,
    /// Candidates of the choices that ask for all devices.
    all: HashMap<ChoiceKey, Vec<usize>>,
    /// Claims that got the candidate.
    takers: Vec<Vec<usize>>,
    /// Capacity that this search takes, by candidate.
    taken: Vec<Amounts>,
    /// Shares that this search takes, by candidate.
    shares: Vec<usize>,
    constraints: Vec<Vec<Tracked<'a>>>,
    /// Devices by claim.
    counts: Vec<usize>,
    work: Budget,
}

impl<'a> Search<'a> {
    pub(crate) fn new(
        claims: &'a [PreparedClaim],
        node: NodeDevices<'a>,
        limits: &'a Limits<'a>,
    ) -> Self {
        let constraints = claims.iter().map(|claim| claim.constraints.iter());
        let count = node.candidates.len();
        Self {
            claims,
            limits,
            matches: HashMap::new(),
            all: HashMap::new(),
            takers: vec![Vec::new(); count],
            taken: vec![Amounts::new(); count],
            shares: vec![0; count],
            constraints: constraints
                .map(|all| all.map(Tracked::new).collect())
                .collect(),
            counts: vec![0; claims.len()],
            work: Budget::new(SELECTOR_LIMIT),
            node,
        }
    }

    pub(crate) fn candidate(&self, index: usize) -> Option<&Candidate<'a>> {
        self.node.candidates.get(index)
    }

    fn request(&self, slot: &Slot) -> Option<&'a PreparedRequest> {
        self.claims.get(slot.claim)?.requests.get(slot.request)
    }

    fn choice(&self, slot: &Slot) -> Option<&'a Choice> {
        self.request(slot)?.choices.get(slot.choice)
    }

    /// Returns the chosen devices, one slot for each. None if there is no solution.
    pub(crate) fn run(&mut self) -> Result<Option<Vec<Slot>>, Failure> {
        self.find_devices_of_all()?;
        if !self.is_possible()? {
            return Ok(None);
        }
        let mut path: Vec<Slot> = Vec::new();
        let Some(first) = self.next_request(0, 0) else {
            return Ok(Some(path));
        };
        path.push(first);
        while let Some(slot) = path.last_mut() {
            if self.advance(slot)? {
                match self.next_slot(slot) {
                    Some(next) => path.push(next),
                    None => return Ok(Some(path)),
                }
            } else {
                path.pop();
                if let Some(before) = path.last_mut() {
                    self.release(before);
                }
            }
        }
        Ok(None)
    }

    /// Finds the devices of the choices that ask for all.
    fn find_devices_of_all(&mut self) -> Result<(), Failure> {
        for (claim, prepared) in self.claims.iter().enumerate() {
            for (request, prepared) in prepared.requests.iter().enumerate() {
                for (choice, prepared) in prepared.choices.iter().enumerate() {
                    if prepared.mode == Mode::All {
                        let key = (claim, request, choice);
                        let found = self.find_all(key, prepared)?;
                        self.all.insert(key, found);
                    }
                }
            }
        }
        Ok(())
    }

    fn find_all(&mut self, key: ChoiceKey, choice: &Choice) -> Result<Vec<usize>, Failure> {
        // All devices of a pool are known only when all of its slices are.
        let unknown = self
            .node
            .incomplete
            .as_ref()
            .map(|pool| (pool, "being updated"));
        let unknown = unknown.or(self.node.invalid.as_ref().map(|pool| (pool, "invalid")));
        if let Some((pool, state)) = unknown {
            let text =
                format!("asks for all devices, but resource pool {pool} is currently {state}");
            return Err(Failure::NotNow(format!("request {}: {text}", choice.name)));
        }
        let mut found = Vec::new();
        for index in 0..self.node.candidates.len() {
            self.limits.count_step()?;
            // A device without room for one more share is none of those that are asked for.
            if self.reserve_capacity(choice, index).is_some()
                && self.is_selected(key, choice, index)?
            {
                found.push(index);
            }
        }
        Ok(found)
    }

    /// Returns the slot after one whose device was chosen.
    fn next_slot(&self, slot: &Slot) -> Option<Slot> {
        let nth = slot.nth + 1;
        let count = self
            .choice(slot)
            .map_or(0, |choice| self.count_devices(slot, choice));
        if nth < count {
            // Devices of a request are chosen in their order: each set is tried once.
            return Some(Slot {
                nth,
                picked: None,
                ..slot.clone()
            });
        }
        self.next_request(slot.claim, slot.request + 1)
    }

    fn next_request(&self, claim: usize, request: usize) -> Option<Slot> {
        if self.claims.get(claim)?.requests.len() > request {
            return Some(Slot::first_of(claim, request));
        }
        let rest = self.claims.iter().enumerate().skip(claim + 1);
        let mut rest = rest.filter(|(_, claim)| !claim.requests.is_empty());
        rest.next().map(|(claim, _)| Slot::first_of(claim, 0))
    }

    fn count_devices(&self, slot: &Slot, choice: &Choice) -> usize {
        match choice.mode {
            Mode::Exactly(count) => count,
            Mode::All => self.all_of(slot).map_or(0, Vec::len),
        }
    }

    fn all_of(&self, slot: &Slot) -> Option<&Vec<usize>> {
        self.all.get(&(slot.claim, slot.request, slot.choice))
    }

    /// Chooses the next device for a slot; returns false if there is none.
    fn advance(&mut self, slot: &mut Slot) -> Result<bool, Failure> {
        while let Some(choice) = self.choice(slot) {
            while let Some(index) = self.next_candidate(slot, choice) {
                self.limits.count_step()?;
                slot.next = index + 1;
                if let Some(pick) = self.try_device(slot, choice, index)? {
                    slot.picked = Some(pick);
                    return Ok(true);
                }
                if choice.mode == Mode::All {
                    // No other device can stand for this one.
                    break;
                }
            }
            if slot.nth > 0 {
                return Ok(false);
            }
            slot.choice += 1;
            slot.next = 0;
        }
        Ok(false)
    }

    /// Returns the next candidate to try, if the claim has room for all devices of the choice.
    fn next_candidate(&self, slot: &Slot, choice: &Choice) -> Option<usize> {
        let before = self.counts.get(slot.claim)?.saturating_sub(slot.nth);
        if before + self.count_devices(slot, choice) > MAX_RESULTS {
            return None;
        }
        match choice.mode {
            Mode::Exactly(_) => Some(slot.next).filter(|next| *next < self.node.candidates.len()),
            // Each slot has one device: a second visit finds none.
            Mode::All => {
                let index = *self.all_of(slot)?.get(slot.nth)?;
                Some(index).filter(|index| slot.next <= *index)
            }
        }
    }

    fn try_device(
        &mut self,
        slot: &Slot,
        choice: &'a Choice,
        index: usize,
    ) -> Result<Option<Pick>, Failure> {
        if !self.is_free(slot, choice, index) {
            return Ok(None);
        }
        let key = (slot.claim, slot.request, slot.choice);
        if !self.is_selected(key, choice, index)? {
            return Ok(None);
        }
        let Some(consumed) = self.reserve_capacity(choice, index) else {
            return Ok(None);
        };
        let Some(counted) = self.take_counters(index) else {
            return Ok(None);
        };
        let pick = Pick {
            candidate: index,
            consumed,
            counted,
        };
        if !self.add_to_constraints(slot, choice, index) {
            self.return_counters(&pick);
            return Ok(None);
        }
        self.take_device(slot.claim, &pick);
        Ok(Some(pick))
    }

    /// Returns whether the device may be used beside its present users.
    fn is_free(&self, slot: &Slot, choice: &Choice, index: usize) -> bool {
        let Some(candidate) = self.candidate(index) else {
            return false;
        };
        let taints = candidate.device.taints.iter().flatten();
        let mut blocking = taints
            .filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"))
            .filter(|taint| !choice.tolerations.iter().any(|t| tolerates(t, taint)));
        if blocking.next().is_some() {
            return false;
        }
        let takers = self
            .takers
            .get(index)
            .map(Vec::as_slice)
            .unwrap_or_default();
        if choice.admin_access {
            // Beside other users, but not twice in a claim.
            return candidate.allows_multiple() || !takers.contains(&slot.claim);
        }
        takers.is_empty() && !candidate.in_use.is_some_and(|usage| usage.exclusive)
    }

    fn is_selected(
        &mut self,
        key: ChoiceKey,
        choice: &Choice,
        index: usize,
    ) -> Result<bool, Failure> {
        if let Some(known) = self.matches.get(&(key, index)) {
            return Ok(*known);
        }
        let Some(candidate) = self.node.candidates.get(index) else {
            return Ok(false);
        };
        let mut selected = true;
        for selector in &choice.selectors {
            self.limits.check_clock()?;
            let fail = |error: &str| {
                Failure::Selector(format!("{}: CEL runtime error: {error}", selector.place))
            };
            let program = selector
                .compiled
                .as_ref()
                .as_ref()
                .map_err(|error| fail(error))?;
            let value = candidate.value().as_ref().map_err(|error| fail(error))?;
            let matches = matches_device(program, value, &mut self.work);
            if !matches.map_err(|error| fail(&error))? {
                selected = false;
                break;
            }
        }
        self.matches.insert((key, index), selected);
        Ok(selected)
    }

    /// Returns the capacity that the choice consumes of the device, inside of None if the device is
    /// allocated as a whole. The outer None means that the capacity does not suffice.
    #[allow(clippy::option_option)]
    fn reserve_capacity(&self, choice: &Choice, index: usize) -> Option<Option<Amounts>> {
        let candidate = self.candidate(index)?;
        let consumed = consumed_by(&choice.capacity, candidate.device)?;
        let in_use = candidate.in_use.map(|usage| &usage.consumed);
        if !has_room(candidate.device, &consumed, [in_use, self.taken.get(index)]) {
            return None;
        }
        Some(Some(consumed).filter(|_| candidate.allows_multiple()))
    }

    /// Takes the device's counters. Returns whether there were any to take, and None if they do not
    /// suffice.
    fn take_counters(&mut self, index: usize) -> Option<bool> {
        let candidate = self.node.candidates.get(index)?;
        let uses = candidate.device.consumes_counters.as_ref();
        if uses.is_none_or(Vec::is_empty) {
            return Some(false);
        }
        // Further shares of a device cost no counters.
        let is_shared =
            candidate.in_use.is_some() || self.shares.get(index).is_some_and(|count| *count > 0);
        if candidate.allows_multiple() && is_shared {
            return Some(false);
        }
        let counters = self.node.counters.get_mut(candidate.pool_index)?;
        let mut needed: HashMap<_, Quantity> = HashMap::new();
        for entry in consumption(candidate.device) {
            let (counter, amount) = entry?;
            let sum = needed.entry(counter).or_insert(Quantity::ZERO);
            *sum = sum.plus(amount);
        }
        let suffices = |(counter, amount): (&(&str, &str), &Quantity)| {
            counters.get(counter).is_some_and(|left| amount <= left)
        };
        if !needed.iter().all(suffices) {
            return None;
        }
        for (counter, amount) in needed {
            if let Some(left) = counters.get_mut(&counter) {
                *left = left.minus(amount);
            }
        }
        Some(true)
    }

    fn return_counters(&mut self, pick: &Pick) {
        let Some(candidate) = self.node.candidates.get(pick.candidate) else {
            return;
        };
        let counters = self.node.counters.get_mut(candidate.pool_index);
        let Some(counters) = counters.filter(|_| pick.counted) else {
            return;
        };
        for (counter, amount) in consumption(candidate.device).flatten() {
            if let Some(left) = counters.get_mut(&counter) {
                *left = left.plus(amount);
            }
        }
    }

    /// Adds the device to all constraints of the claim, or to none.
    fn add_to_constraints(&mut self, slot: &Slot, choice: &Choice, index: usize) -> bool {
        let Some(request) = self.request(slot).map(|request| &request.name) else {
            return false;
        };
        let Some(candidate) = self.node.candidates.get(index) else {
            return false;
        };
        let constraints = self.constraints.get_mut(slot.claim).map(Vec::as_mut_slice);
        let constraints = constraints.unwrap_or_default();
        let (driver, device) = (candidate.driver, candidate.device);
        let refusing = constraints
            .iter_mut()
            .position(|constraint| !constraint.add(request, &choice.name, driver, device));
        if let Some(refusing) = refusing {
            for constraint in constraints.iter_mut().take(refusing) {
                constraint.remove(request, &choice.name);
            }
        }
        refusing.is_none()
    }

    fn take_device(&mut self, claim: usize, pick: &Pick) {
        if let Some(count) = self.counts.get_mut(claim) {
            *count += 1;
        }
        match &pick.consumed {
            Some(consumed) => {
                if let Some(taken) = self.taken.get_mut(pick.candidate) {
                    change(taken, consumed, true);
                }
                if let Some(shares) = self.shares.get_mut(pick.candidate) {
                    *shares += 1;
                }
            }
            None => {
                if let Some(takers) = self.takers.get_mut(pick.candidate) {
                    takers.push(claim);
                }
            }
        }
    }

    /// Returns the device of a slot, so that the slot tries the next one.
    fn release(&mut self, slot: &mut Slot) {
        let Some(pick) = slot.picked.take() else {
            return;
        };
        if let (Some(request), Some(choice)) = (self.request(slot), self.choice(slot)) {
            for constraint in self.constraints.get_mut(slot.claim).into_iter().flatten() {
                constraint.remove(&request.name, &choice.name);
            }
        }
        self.return_counters(&pick);
        if let Some(count) = self.counts.get_mut(slot.claim) {
            *count -= 1;
        }
        match &pick.consumed {
            Some(consumed) => {
                if let Some(taken) = self.taken.get_mut(pick.candidate) {
                    change(taken, consumed, false);
                }
                if let Some(shares) = self.shares.get_mut(pick.candidate) {
                    *shares -= 1;
                }
            }
            None => {
                if let Some(takers) = self.takers.get_mut(pick.candidate) {
                    takers.pop();
                }
            }
        }
    }
}
