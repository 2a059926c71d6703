//! Status of ResourceClaims.

use super::values::{
    exceeds, request_names, validate_binding_conditions, validate_device_configuration,
    validate_driver, validate_pool, validate_raw_object, validate_request_reference,
    validate_request_references, validate_share_id, validate_unique,
};
use crate::conditions::validate_conditions;
use crate::field::{Errors, Path};
use crate::ip::interface_address_problems;
use crate::pod;
use crate::rules;
use api_meta::names;
use api_meta::tree::{get, has, list, text, texts};
use serde_json::Value;

const MOST_CONSUMERS: usize = 256;
const MOST_RESULTS: usize = 32;
const MOST_CONFIGS: usize = 64;
const MOST_CONDITIONS: usize = 8;
const LONGEST_DATA: usize = 10 * 1024;
const MOST_IPS: usize = 16;
const LONGEST_INTERFACE: usize = 256;
const LONGEST_HARDWARE_ADDRESS: usize = 128;
const SOURCES: [&str; 2] = ["FromClaim", "FromClass"];

type Requests<'a> = [(&'a str, Vec<&'a str>)];

pub(super) fn validate_claim_status_update(
    subresource: &str,
    new: &Value,
    old: &Value,
    errors: &mut Errors,
) {
    if subresource != "status" {
        return;
    }
    let requests = request_names(get(get(new, "spec"), "devices"));
    let (status, before) = (get(new, "status"), get(old, "status"));
    let path = Path::ROOT.child("status");
    let is_deleted = has(get(new, "metadata"), "deletionTimestamp");
    validate_consumers(status, &path.child("reservedFor"), errors);
    validate_device_statuses(status, &path.child("devices"), errors);
    validate_reservation(
        status,
        before,
        is_deleted,
        &path.child("reservedFor"),
        errors,
    );
    if !has(status, "allocation") {
        return;
    }
    // Kubelets have prepared the devices. An old result may break rules that are newer.
    if has(before, "allocation") {
        rules::validate_immutable(status, before, "allocation", &path, errors);
    } else {
        let at = path.child("allocation");
        validate_allocation(get(status, "allocation"), &requests, &at, errors);
    }
}

fn validate_consumers(status: &Value, path: &Path<'_>, errors: &mut Errors) {
    let all = list(status, "reservedFor");
    if exceeds(all, MOST_CONSUMERS, path, errors) {
        return;
    }
    for (i, consumer) in all.iter().enumerate() {
        for field in ["resource", "name", "uid"] {
            if text(consumer, field).is_empty() {
                errors.required(&path.index(i).child(field), "");
            }
        }
    }
    validate_unique(all.iter().map(|c| text(c, "uid").into()), path, errors);
}

fn validate_reservation(
    status: &Value,
    before: &Value,
    is_deleted: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let (all, known) = (list(status, "reservedFor"), list(before, "reservedFor"));
    if all.is_empty() {
        return;
    }
    if !has(status, "allocation") {
        errors.forbidden(path, "may not be specified when `allocated` is not set");
    } else if is_deleted && all.iter().any(|consumer| !known.contains(consumer)) {
        errors.forbidden(path, "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set");
    }
}

/// Returns what identifies a device, or a share of one, among all drivers.
fn device_key(device: &Value) -> Value {
    let part = |field| text(device, field);
    let id = format!("{}/{}/{}", part("driver"), part("pool"), part("device"));
    match part("shareID") {
        "" => id.into(),
        share => format!("{id}/{share}").into(),
    }
}

fn validate_device_statuses(status: &Value, path: &Path<'_>, errors: &mut Errors) {
    let all = list(status, "devices");
    let devices = get(get(status, "allocation"), "devices");
    let allocated: Vec<Value> = list(devices, "results").iter().map(device_key).collect();
    for (i, device) in all.iter().enumerate() {
        validate_device_status(device, &allocated, &path.index(i), errors);
    }
    validate_unique(all.iter().map(device_key), path, errors);
}

fn validate_device_status(
    device: &Value,
    allocated: &[Value],
    path: &Path<'_>,
    errors: &mut Errors,
) {
    validate_driver(text(device, "driver"), &path.child("driver"), errors);
    validate_pool(text(device, "pool"), &path.child("pool"), errors);
    let name = text(device, "device");
    errors.invalid_each(&path.child("device"), name, names::dns1123_label(name));
    validate_share_id(device, path, errors);
    let key = device_key(device);
    // A driver reports about devices that the scheduler gave to the claim, and about no others.
    if !allocated.contains(&key) {
        errors.invalid(path, key, "must be an allocated device in the claim");
    }
    let at = path.child("conditions");
    exceeds(list(device, "conditions"), MOST_CONDITIONS, &at, errors);
    validate_conditions(device, &at, errors);
    if has(device, "data") {
        validate_raw_object(
            get(device, "data"),
            LONGEST_DATA,
            &path.child("data"),
            errors,
        );
    }
    validate_network_data(
        get(device, "networkData"),
        &path.child("networkData"),
        errors,
    );
}

fn validate_network_data(data: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (field, max) in [
        ("interfaceName", LONGEST_INTERFACE),
        ("hardwareAddress", LONGEST_HARDWARE_ADDRESS),
    ] {
        if text(data, field).len() > max {
            errors.too_long(&path.child(field), max);
        }
    }
    let at = path.child("ips");
    if exceeds(list(data, "ips"), MOST_IPS, &at, errors) {
        return;
    }
    let all = texts(data, "ips");
    for (i, ip) in all.iter().enumerate() {
        errors.invalid_each(&at.index(i), ip, interface_address_problems(ip));
    }
    validate_unique(all.into_iter().map(Value::from), &at, errors);
}

fn validate_allocation(
    allocation: &Value,
    requests: &Requests<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let (devices, devices_path) = (get(allocation, "devices"), path.child("devices"));
    let results = list(devices, "results");
    let at = devices_path.child("results");
    if !exceeds(results, MOST_RESULTS, &at, errors) {
        for (i, result) in results.iter().enumerate() {
            validate_result(result, requests, &at.index(i), errors);
        }
    }
    let configs = list(devices, "config");
    let at = devices_path.child("config");
    if !exceeds(configs, MOST_CONFIGS, &at, errors) {
        for (i, config) in configs.iter().enumerate() {
            let at = at.index(i);
            rules::validate_required_one_of(config, "source", &SOURCES, &at, errors);
            validate_request_references(config, requests, &at, errors);
            validate_device_configuration(config, false, &at, errors);
        }
    }
    if has(allocation, "nodeSelector") {
        let selector = get(allocation, "nodeSelector");
        pod::validate_node_selector(selector, false, &path.child("nodeSelector"), errors);
    }
}

fn validate_result(result: &Value, requests: &Requests<'_>, path: &Path<'_>, errors: &mut Errors) {
    let request = text(result, "request");
    validate_request_reference(request, requests, &path.child("request"), errors);
    validate_driver(text(result, "driver"), &path.child("driver"), errors);
    validate_pool(text(result, "pool"), &path.child("pool"), errors);
    let device = text(result, "device");
    errors.invalid_each(&path.child("device"), device, names::dns1123_label(device));
    validate_binding_conditions(result, path, errors);
    validate_share_id(result, path, errors);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn shares_of_a_device_differ() {
        let device =
            |share: &str| json!({"driver": "d", "pool": "p", "device": "x", "shareID": share});
        assert_eq!(device_key(&device("")), "d/p/x");
        assert_ne!(device_key(&device("1")), device_key(&device("2")));
    }
}
