//! The devices that are allocated to claims.

use std::collections::{BTreeMap, HashMap};

use api_meta::Quantity;
use k8s_openapi::api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};

/// The use of a device by allocated claims.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Use {
    /// One claim has the whole device.
    pub(crate) exclusive: bool,
    /// Capacity in use of a device with several allocations.
    pub(crate) consumed: BTreeMap<String, Quantity>,
}

/// Allocated devices by driver, pool and name.
#[derive(Clone, Debug, Default)]
pub struct Allocated {
    uses: HashMap<String, HashMap<String, HashMap<String, Use>>>,
}

impl Allocated {
    /// Adds the devices of a claim.
    pub fn add_claim(&mut self, claim: &ResourceClaim) {
        let status = claim.status.as_ref();
        let allocation = status.and_then(|status| status.allocation.as_ref());
        let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
        let results = devices.and_then(|devices| devices.results.as_deref());
        for result in results.unwrap_or_default() {
            self.add_result(result);
        }
    }

    fn add_result(&mut self, result: &DeviceRequestAllocationResult) {
        // Administrative access shares the device with its user.
        if result.admin_access == Some(true) {
            return;
        }
        let pools = self.uses.entry(result.driver.clone()).or_default();
        let devices = pools.entry(result.pool.clone()).or_default();
        let device = devices.entry(result.device.clone()).or_default();
        if result.share_id.is_none() {
            device.exclusive = true;
            return;
        }
        for (name, amount) in result.consumed_capacity.iter().flatten() {
            // An amount that can't be read counts as all there is, a negative one as nothing.
            let amount = amount.0.parse().unwrap_or(crate::capacity::MAX);
            let amount = amount.max(Quantity::ZERO);
            let sum = device
                .consumed
                .entry(name.clone())
                .or_insert(Quantity::ZERO);
            *sum = sum.plus(amount);
        }
    }

    /// Returns the use of a device; None if it is free.
    pub(crate) fn find_use(&self, driver: &str, pool: &str, device: &str) -> Option<&Use> {
        self.uses.get(driver)?.get(pool)?.get(device)
    }
}
