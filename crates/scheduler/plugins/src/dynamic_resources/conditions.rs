//! Binding conditions: a driver may have to prepare a device before its pod is bound.

use std::time::Duration;

use base_duration::parse_unsigned;
use jiff::Timestamp;
use k8s_openapi::api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};
use serde_json::Value;

/// Upstream's default of `bindingTimeout`.
const BINDING_TIMEOUT: Duration = Duration::from_secs(600);

/// The arguments of the plugin.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// Time of the search for the claims of a pod, on all nodes; None for no limit of its own.
    pub(super) filter_timeout: Option<Duration>,
    /// Time for the binding conditions of a claim.
    pub(super) binding_timeout: Duration,
}

impl Settings {
    /// Reads `filterTimeout` and `bindingTimeout`.
    pub(super) fn from_args(args: &Value) -> Result<Self, String> {
        let read = |name: &str| -> Result<Option<Duration>, String> {
            let Some(given) = args.get(name).filter(|given| !given.is_null()) else {
                return Ok(None);
            };
            let text = given
                .as_str()
                .ok_or_else(|| format!("{name} is not a duration"))?;
            let parsed = parse_unsigned(text).map_err(|error| format!("{name}: {error}"))?;
            Ok(Some(parsed))
        };
        let binding_timeout = read("bindingTimeout")?.unwrap_or(BINDING_TIMEOUT);
        if binding_timeout < Duration::from_secs(1) {
            return Err("bindingTimeout must be at least 1s".to_owned());
        }
        Ok(Self {
            filter_timeout: read("filterTimeout")?.filter(|timeout| !timeout.is_zero()),
            binding_timeout,
        })
    }
}

/// The state of a claim's binding conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready,
    Waiting,
    Failed(String),
}

fn results(claim: &ResourceClaim) -> &[DeviceRequestAllocationResult] {
    let status = claim.status.as_ref();
    let allocation = status.and_then(|status| status.allocation.as_ref());
    let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
    devices
        .and_then(|devices| devices.results.as_deref())
        .unwrap_or_default()
}

/// Returns whether the drivers have prepared the devices of an allocated claim.
pub(super) fn read_conditions(claim: &ResourceClaim) -> Readiness {
    let mut readiness = Readiness::Ready;
    for result in results(claim) {
        match read_device(claim, result) {
            Readiness::Ready => {}
            Readiness::Waiting => readiness = Readiness::Waiting,
            failed @ Readiness::Failed(_) => return failed,
        }
    }
    readiness
}

fn read_device(claim: &ResourceClaim, result: &DeviceRequestAllocationResult) -> Readiness {
    let needed = result.binding_conditions.as_deref().unwrap_or_default();
    if needed.is_empty() {
        return Readiness::Ready;
    }
    let devices = claim
        .status
        .as_ref()
        .and_then(|status| status.devices.as_deref());
    let device = devices.unwrap_or_default().iter().find(|device| {
        (&device.driver, &device.pool, &device.device)
            == (&result.driver, &result.pool, &result.device)
    });
    let conditions = device
        .and_then(|device| device.conditions.as_deref())
        .unwrap_or_default();
    let is_true = |name: &String| {
        let mut conditions = conditions.iter();
        conditions.any(|condition| condition.type_ == *name && condition.status == "True")
    };
    let mut failures = result.binding_failure_conditions.iter().flatten();
    if let Some(failed) = failures.find(|name| is_true(name)) {
        let device = &result.device;
        return Readiness::Failed(format!("device {device}: condition {failed} is true"));
    }
    if needed.iter().all(is_true) {
        Readiness::Ready
    } else {
        Readiness::Waiting
    }
}

/// Returns whether the devices of a claim could not be prepared, so that others must be allocated.
pub(super) fn has_failed(claim: &ResourceClaim, settings: &Settings, now: Timestamp) -> bool {
    match read_conditions(claim) {
        Readiness::Ready => false,
        Readiness::Failed(_) => true,
        Readiness::Waiting => {
            let status = claim.status.as_ref();
            let allocation = status.and_then(|status| status.allocation.as_ref());
            let since = allocation.and_then(|allocation| allocation.allocation_timestamp.as_ref());
            let waited = since.map(|since| now.duration_since(since.0));
            // A time in the future, by the clock of another scheduler, is not over.
            let waited = waited.and_then(|waited| Duration::try_from(waited).ok());
            waited.is_some_and(|waited| waited > settings.binding_timeout)
        }
    }
}
