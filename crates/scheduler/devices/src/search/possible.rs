//! A cheap look at each request alone, so that a claim that has no solution for a plain reason does
//! not cost a search of all combinations of the requests before it.

use api_semantics::devices::MAX_RESULTS;

use super::{ChoiceKey, Search, Slot};
use crate::failure::Failure;
use crate::prepare::{Choice, Mode};

impl Search<'_> {
    /// Returns whether each request has enough devices if it gets the first choice of them, and the
    /// status of each claim has room for the devices of its requests.
    pub(super) fn is_possible(&mut self) -> Result<bool, Failure> {
        for (claim, prepared) in self.claims.iter().enumerate() {
            let mut sum = 0_usize;
            for (request, prepared) in prepared.requests.iter().enumerate() {
                let mut least: Option<usize> = None;
                for (choice, prepared) in prepared.choices.iter().enumerate() {
                    let key = (claim, request, choice);
                    let slot = Slot::first_of(claim, request);
                    let needed = self.count_devices(&Slot { choice, ..slot }, prepared);
                    let is_less = least.is_none_or(|least| needed < least);
                    if is_less && self.has_devices(key, prepared, needed)? {
                        least = Some(needed);
                    }
                }
                let Some(least) = least else {
                    return Ok(false);
                };
                sum = sum.saturating_add(least);
            }
            if sum > MAX_RESULTS {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether a choice has as many devices as it needs, before any is taken.
    fn has_devices(
        &mut self,
        key: ChoiceKey,
        choice: &Choice,
        needed: usize,
    ) -> Result<bool, Failure> {
        if choice.mode == Mode::All {
            return Ok((1..=MAX_RESULTS).contains(&needed));
        }
        if needed > MAX_RESULTS {
            return Ok(false);
        }
        let slot = Slot::first_of(key.0, key.1);
        let mut found = 0;
        for index in 0..self.node.candidates.len() {
            if found == needed {
                break;
            }
            self.limits.count_step()?;
            let has_room = self.is_free(&slot, choice, index)
                && self.reserve_capacity(choice, index).is_some();
            if !has_room {
                continue;
            }
            match self.is_selected(key, choice, index) {
                // A failure is left to the search: an earlier request may take this device.
                Ok(true) | Err(Failure::Selector(_)) => found += 1,
                Ok(false) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(found == needed)
    }
}
