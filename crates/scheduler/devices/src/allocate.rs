//! The allocator of the claims of one pod.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceClass, ResourceClaim};

use crate::allocated::Allocated;
use crate::failure::{Failure, Problem};
use crate::limits::Limits;
use crate::node_devices::NodeDevices;
use crate::outcome::{Chosen, build_result};
use crate::pools::Pools;
use crate::prepare::{Preparation, PreparedClaim};
use crate::search::{Search, Slot};
use crate::selectors::Selectors;

/// Allocates devices to the claims of a pod, on any node.
#[derive(Debug)]
pub struct Allocator {
    claims: Vec<PreparedClaim>,
    pools: Arc<Pools>,
    allocated: Arc<Allocated>,
}

impl Allocator {
    /// Resolves the classes of the claims and compiles all selectors.
    ///
    /// # Errors
    /// No node can satisfy the claims.
    pub fn new(
        claims: &[Arc<ResourceClaim>],
        find_class: &dyn Fn(&str) -> Option<Arc<DeviceClass>>,
        selectors: &Selectors,
        devices: (Arc<Pools>, Arc<Allocated>),
        limits: &Limits<'_>,
    ) -> Result<Self, Problem> {
        let preparation = Preparation {
            find_class,
            selectors,
            limits,
        };
        let claims = claims.iter().map(|claim| preparation.prepare_claim(claim));
        Ok(Self {
            claims: claims.collect::<Result<_, _>>()?,
            pools: devices.0,
            allocated: devices.1,
        })
    }

    /// Returns an allocation for each claim. `new_id` makes the identifiers of shares of devices.
    ///
    /// # Errors
    /// The claims can't be allocated on this node.
    pub fn allocate(
        &self,
        node: &Node,
        limits: &Limits<'_>,
        new_id: &dyn Fn() -> String,
    ) -> Result<Vec<AllocationResult>, Failure> {
        limits.check_clock()?;
        let devices = NodeDevices::list(&self.pools, &self.allocated, node);
        let invalid = devices.invalid.is_some();
        let mut search = Search::new(&self.claims, devices, limits);
        let Some(path) = search.run()? else {
            return Err(if invalid {
                Failure::NotNow("invalid resource pools were encountered".to_owned())
            } else {
                Failure::NoDevices
            });
        };
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let claims = self.claims.iter().enumerate();
        let results = claims.map(|(index, claim)| {
            let slots = path.iter().filter(|slot| slot.claim == index);
            let chosen: Vec<_> = slots
                .filter_map(|slot| describe(claim, slot, &search))
                .collect();
            build_result(claim, &chosen, name, new_id)
        });
        Ok(results.collect())
    }
}

fn describe<'a, 'c>(
    claim: &'a PreparedClaim,
    slot: &'c Slot,
    search: &'c Search<'a>,
) -> Option<Chosen<'a, 'c>> {
    let pick = slot.picked.as_ref()?;
    Some(Chosen {
        request: slot.request,
        choice: claim.requests.get(slot.request)?.choices.get(slot.choice)?,
        candidate: search.candidate(pick.candidate)?,
        pick,
    })
}

#[cfg(test)]
mod tests;
