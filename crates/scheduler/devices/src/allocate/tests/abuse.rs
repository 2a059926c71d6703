//! Claims and slices that would take devices, counters or time from others.

use super::*;

fn counted(count: i64) -> Value {
    json!({"deviceClassName": "c", "allocationMode": "ExactCount", "count": count})
}

/// Returns a claim with the requests `r0`, `r1` and so on.
fn claim_with(requests: &[Value]) -> Value {
    let requests = requests.iter().enumerate();
    let requests =
        requests.map(|(i, request)| json!({"name": format!("r{i}"), "exactly": request}));
    claim_of(json!({"requests": requests.collect::<Vec<_>>()}))
}

#[test]
fn claim_has_at_most_the_devices_that_its_status_can_hold() {
    let devices: Vec<_> = (0..40).map(|i| device(&format!("x{i}"))).collect();
    let all = objects(vec![local_slice("a", json!(devices))]);
    let counts = |counts: &[i64]| {
        claim_with(
            &counts
                .iter()
                .map(|count| counted(*count))
                .collect::<Vec<_>>(),
        )
    };
    assert!(allocate(&all, &counts(&[20, 12]), "a").is_ok());
    for too_many in [vec![33], vec![20, 13], vec![1, 1, 31]] {
        let got = allocate(&all, &counts(&too_many), "a");
        assert_eq!(got, Err(Failure::NoDevices), "{too_many:?}");
    }
}

#[test]
fn request_without_a_device_ends_the_search_before_it_starts() {
    let devices: Vec<_> = (0..60)
        .map(|i| attributed(&format!("x{i}"), "id", &i.to_string()))
        .collect();
    let all = objects(vec![local_slice("a", json!(devices))]);
    let with_id = |id: &str, count: i64| {
        let mut request = counted(count);
        let expression = format!("device.attributes['d'].id == '{id}'");
        request["selectors"] = json!([{"cel": {"expression": expression}}]);
        request
    };
    for last in [with_id("none", 1), with_id("7", 2)] {
        let got = allocate(&all, &claim_with(&[counted(30), last]), "a");
        assert_eq!(got, Err(Failure::NoDevices));
    }
    assert!(allocate(&all, &claim_with(&[counted(5), with_id("7", 1)]), "a").is_ok());
}

#[test]
fn failing_selector_does_not_count_against_a_device_that_another_request_takes() {
    let all = objects(vec![local_slice(
        "a",
        json!([device("a1"), attributed("a2", "id", "x")]),
    )]);
    let mut selecting = one_of_class();
    selecting["selectors"] = json!([{"cel": {"expression": "device.attributes['d'].id == 'x'"}}]);
    let got = allocate(&all, &claim_with(&[one_of_class(), selecting]), "a");
    assert_eq!(got, Ok("r0=a1 r1=a2".to_owned()));
}

#[test]
fn counters_of_another_node_do_not_replace_the_pool_of_a_node() {
    for (generation, count) in [(9, 1), (1, 1), (1, 2)] {
        let mut forged = local_slice("b", json!(null));
        let spec = &mut forged["spec"];
        spec["pool"] = json!({"name": "a", "generation": generation, "resourceSliceCount": count});
        spec["sharedCounters"] = json!([{"name": "gpu", "counters": {"memory": {"value": "8Gi"}}}]);
        let all = objects(vec![local_slice("a", json!([device("a1")])), forged]);
        let every = claim(json!({"deviceClassName": "c", "allocationMode": "All"}));
        for wanted in [claim(one_of_class()), every] {
            let got = allocate(&all, &wanted, "a");
            assert_eq!(got, Ok("r=a1".to_owned()), "{generation} {count}");
        }
    }
}

#[test]
fn shares_are_charged_for_counters_after_the_search_went_back() {
    let uses = |name: &str| {
        json!({"name": name, "consumesCounters":
            [{"counterSet": "gpu", "counters": {"memory": {"value": "8Gi"}}}]})
    };
    let with_kind = |mut device: Value, kind: &str, group: &str| {
        device["attributes"] = json!({"kind": {"string": kind}, "group": {"string": group}});
        device
    };
    let mut shared = with_kind(uses("m"), "multi", "none");
    shared["allowMultipleAllocations"] = json!(true);
    shared["capacity"] = json!({"bandwidth": {"value": "1Gi"}});
    let devices = json!([
        with_kind(device("p0"), "part", "first"),
        with_kind(uses("p1"), "part", "second"),
        shared,
        with_kind(device("z"), "last", "second")
    ]);
    let here = || json!({"nodeName": "a"});
    let mut counters = pool_slice("counters", 1, 2, here(), json!([]));
    counters["spec"]["sharedCounters"] =
        json!([{"name": "gpu", "counters": {"memory": {"value": "8Gi"}}}]);
    let all = objects(vec![counters, pool_slice("devices", 1, 2, here(), devices)]);
    let of_kind = |kind: &str| {
        let expression = format!("device.attributes['d'].kind == '{kind}'");
        json!({"deviceClassName": "c", "selectors": [{"cel": {"expression": expression}}]})
    };
    let mut wanted = claim_with(&[of_kind("part"), of_kind("multi"), of_kind("last")]);
    wanted["spec"]["devices"]["constraints"] =
        json!([{"matchAttribute": "d/group", "requests": ["r0", "r2"]}]);
    assert_eq!(allocate(&all, &wanted, "a"), Err(Failure::NoDevices));
}

#[test]
fn second_share_of_a_device_without_capacity_costs_no_counters() {
    let shared = json!({"name": "m", "allowMultipleAllocations": true, "consumesCounters":
        [{"counterSet": "gpu", "counters": {"memory": {"value": "8Gi"}}}]});
    let here = || json!({"nodeName": "a"});
    let mut counters = pool_slice("counters", 1, 2, here(), json!([]));
    counters["spec"]["sharedCounters"] =
        json!([{"name": "gpu", "counters": {"memory": {"value": "8Gi"}}}]);
    let all = objects(vec![
        counters,
        pool_slice("devices", 1, 2, here(), json!([shared])),
    ]);
    let got = allocate(&all, &claim_with(&[one_of_class(), one_of_class()]), "a");
    assert_eq!(got, Ok("r0=m r1=m".to_owned()));
}

/// Returns a device with 8Gi bandwidth.
fn shared_device() -> Value {
    json!({"name": "nic", "allowMultipleAllocations": true,
        "capacity": {"bandwidth": {"value": "8Gi"}}})
}

fn bandwidth(amount: &str) -> Value {
    json!({"deviceClassName": "c", "capacity": {"requests": {"bandwidth": amount}}})
}

fn used_share(amount: &str) -> Value {
    let mut used = allocated_claim("d", "a", "nic");
    let result = &mut used["status"]["allocation"]["devices"]["results"][0];
    result["shareID"] = json!("s");
    result["consumedCapacity"] = json!({"bandwidth": amount});
    used
}

#[test]
fn negative_amount_makes_no_room_for_others() {
    let mut all = objects(vec![local_slice("a", json!([shared_device()]))]);
    let none = Err(Failure::NoDevices);
    assert_eq!(allocate(&all, &claim(bandwidth("-8Gi")), "a"), none);
    let three = claim_with(&[bandwidth("-8Gi"), bandwidth("8Gi"), bandwidth("8Gi")]);
    assert_eq!(allocate(&all, &three, "a"), none);
    all.allocated = vec![used_share("-8Gi"), used_share("8Gi")];
    assert_eq!(allocate(&all, &claim(bandwidth("8Gi")), "a"), none);
}

#[test]
fn full_device_is_none_of_all_devices() {
    let devices =
        json!([shared_device(), {"name": "z", "capacity": {"bandwidth": {"value": "8Gi"}}}]);
    let mut all = objects(vec![local_slice("a", devices)]);
    all.allocated = vec![used_share("8Gi")];
    let mut every = bandwidth("8Gi");
    every["allocationMode"] = json!("All");
    assert_eq!(allocate(&all, &claim(every), "a"), Ok("r=z".to_owned()));
}
