//! Counters that partitions share, and capacity that several users consume.

use super::*;

#[test]
fn partitions_share_the_counters_of_their_device() {
    let partition = |name: &str, memory: &str| json!({"name": name, "consumesCounters": [{"counterSet": "gpu", "counters": {"memory": {"value": memory}}}]});
    let here = || json!({"nodeName": "a"});
    let mut counters = pool_slice("counters", 1, 2, here(), json!([]));
    counters["spec"]["sharedCounters"] =
        json!([{"name": "gpu", "counters": {"memory": {"value": "8Gi"}}}]);
    let devices = json!([
        partition("whole", "8Gi"),
        partition("half1", "4Gi"),
        partition("half2", "4Gi")
    ]);
    let mut all = objects(vec![counters, pool_slice("devices", 1, 2, here(), devices)]);
    let count = |count: i64| {
        claim(json!({"deviceClassName": "c", "allocationMode": "ExactCount", "count": count}))
    };
    assert_eq!(allocate(&all, &count(1), "a"), Ok("r=whole".to_owned()));
    assert_eq!(
        allocate(&all, &count(2), "a"),
        Ok("r=half1 r=half2".to_owned())
    );
    assert_eq!(allocate(&all, &count(3), "a"), Err(Failure::NoDevices));
    all.allocated = vec![allocated_claim("d", "pool", "half1")];
    assert_eq!(allocate(&all, &count(1), "a"), Ok("r=half2".to_owned()));
    assert_eq!(allocate(&all, &count(2), "a"), Err(Failure::NoDevices));
    all.allocated = vec![allocated_claim("d", "pool", "whole")];
    assert_eq!(allocate(&all, &count(1), "a"), Err(Failure::NoDevices));
    // A counter that no slice has.
    all.slices[0]["spec"]["sharedCounters"][0]["name"] = json!("other");
    assert!(matches!(
        allocate(&all, &count(1), "a"),
        Err(Failure::NotNow(_))
    ));
}

#[test]
fn shares_of_a_device_consume_its_capacity() {
    let policy =
        json!({"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi", "max": "4Gi"}});
    let shared = json!({"name": "nic", "allowMultipleAllocations": true,
        "capacity": {"bandwidth": {"value": "8Gi", "requestPolicy": policy}}});
    let mut all = objects(vec![local_slice("a", json!([shared]))]);
    let asking =
        |amount: Value| claim(json!({"deviceClassName": "c", "capacity": {"requests": amount}}));
    for (amount, expect) in [
        (json!({}), Some("1Gi")),
        (json!({"bandwidth": "1500Mi"}), Some("2Gi")),
        (json!({"bandwidth": "512Mi"}), Some("1Gi")),
        (json!({"bandwidth": "5Gi"}), None),
        (json!({"unknown": "1"}), None),
    ] {
        let got = allocate_all(&all, &[asking(amount.clone())], "a").ok();
        let got = got.map(|got| {
            let results = got[0].devices.clone().unwrap().results.unwrap();
            assert_eq!(results[0].share_id.as_deref(), Some("share-1"));
            results[0].consumed_capacity.clone().unwrap()["bandwidth"]
                .0
                .clone()
        });
        assert_eq!(got.as_deref(), expect, "{amount}");
    }
    let four = asking(json!({"bandwidth": "4Gi"}));
    assert!(allocate_all(&all, &[four.clone(), four.clone()], "a").is_ok());
    let mut used = allocated_claim("d", "a", "nic");
    let result = &mut used["status"]["allocation"]["devices"]["results"][0];
    result["shareID"] = json!("s");
    result["consumedCapacity"] = json!({"bandwidth": "4Gi"});
    all.allocated = vec![used];
    assert!(allocate_all(&all, std::slice::from_ref(&four), "a").is_ok());
    assert_eq!(
        allocate_all(&all, &[four.clone(), four], "a"),
        Err(Failure::NoDevices)
    );
}
