//! Capacity that a request consumes of a device with several allocations.

use std::collections::BTreeMap;

use api_meta::Quantity;
use api_meta::quantity::Format;
use k8s_openapi::api::resource::v1::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, Device, DeviceCapacity,
};

type ApiQuantity = k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// An amount that no device has.
pub(crate) const MAX: Quantity = Quantity::from_units(i64::MAX, Format::DecimalSi);

/// Amounts by name.
pub(crate) type Amounts = BTreeMap<String, Quantity>;

fn parse(quantity: &ApiQuantity) -> Option<Quantity> {
    quantity.0.parse().ok()
}

/// Returns the capacities that a request consumes. None if the device lacks a requested capacity,
/// or has less than is requested in whole.
pub(crate) fn consumed_by(requests: &Amounts, device: &Device) -> Option<Amounts> {
    let capacity = device.capacity.as_ref();
    let has = |name: &String| capacity.is_some_and(|capacity| capacity.contains_key(name));
    if !requests.keys().all(has) {
        return None;
    }
    let mut consumed = Amounts::new();
    for (name, given) in capacity.into_iter().flatten() {
        let amount = consumed_amount(requests.get(name).copied(), given)?;
        // A negative amount would make room for others.
        if amount < Quantity::ZERO
            || amount > parse(&given.value)?
            || violates_policy(amount, given.request_policy.as_ref())
        {
            return None;
        }
        consumed.insert(name.clone(), amount);
    }
    Some(consumed)
}

/// Returns whether the device has room for `consumed` beside what is in use.
pub(crate) fn has_room(device: &Device, consumed: &Amounts, in_use: [Option<&Amounts>; 2]) -> bool {
    consumed.iter().all(|(name, amount)| {
        let given = device.capacity.as_ref().and_then(|all| all.get(name));
        let used = in_use.into_iter().flatten().filter_map(|all| all.get(name));
        let sum = used.fold(*amount, |sum, used| sum.plus(*used));
        given
            .and_then(|given| parse(&given.value))
            .is_some_and(|limit| sum <= limit)
    })
}

/// Adds amounts, or subtracts them.
pub(crate) fn change(sums: &mut Amounts, amounts: &Amounts, adds: bool) {
    for (name, amount) in amounts {
        let sum = sums.entry(name.clone()).or_insert(Quantity::ZERO);
        *sum = if adds {
            sum.plus(*amount)
        } else {
            sum.minus(*amount)
        };
    }
}

fn consumed_amount(requested: Option<Quantity>, given: &DeviceCapacity) -> Option<Quantity> {
    let policy = given.request_policy.as_ref();
    let Some(requested) = requested else {
        // Without a request the policy's default, or the whole capacity.
        let default = policy.and_then(|policy| policy.default.as_ref());
        return parse(default.unwrap_or(&given.value));
    };
    let Some(policy) = policy else {
        return Some(requested);
    };
    if let Some(range) = &policy.valid_range {
        return round_up_to_step(requested, range);
    }
    let mut valid = policy.valid_values.iter().flatten().filter_map(parse);
    // More than the largest value is rejected by the check of the policy.
    Some(valid.find(|value| requested <= *value).unwrap_or(requested))
}

fn round_up_to_step(requested: Quantity, range: &CapacityRequestPolicyRange) -> Option<Quantity> {
    let min = parse(&range.min)?;
    if requested < min {
        return Some(min);
    }
    let Some(step) = range.step.as_ref() else {
        return Some(requested);
    };
    let step = parse(step)?.value();
    let over = requested.value().checked_sub(min.value())?;
    let rest = over.checked_rem(step)?;
    let more = if rest == 0 {
        0
    } else {
        step.checked_sub(rest)?
    };
    let rounded = requested.value().checked_add(more)?;
    Some(Quantity::from_units(rounded, Format::BinarySi))
}

fn violates_policy(amount: Quantity, policy: Option<&CapacityRequestPolicy>) -> bool {
    let Some(policy) = policy else { return false };
    if policy.default.as_ref().and_then(parse) == Some(amount) {
        return false;
    }
    if let Some(range) = &policy.valid_range {
        let above = range
            .max
            .as_ref()
            .is_some_and(|max| parse(max).is_none_or(|max| amount > max));
        return above || off_step(amount, range);
    }
    let valid = policy.valid_values.as_deref().unwrap_or_default();
    !valid.is_empty() && !valid.iter().any(|value| parse(value) == Some(amount))
}

fn off_step(amount: Quantity, range: &CapacityRequestPolicyRange) -> bool {
    let Some(step) = &range.step else {
        return false;
    };
    let rest = || {
        let over = amount.value().checked_sub(parse(&range.min)?.value())?;
        over.checked_rem(parse(step)?.value())
    };
    rest() != Some(0)
}
