#![allow(clippy::unwrap_used, clippy::expect_used)]
//! Behaviour that upstream documents for allocation, as tables of claims and slices.

use std::cell::Cell;

use serde_json::{Value, json};

use super::*;

/// Objects of a test.
#[derive(Default)]
struct Objects {
    classes: Vec<Value>,
    slices: Vec<Value>,
    allocated: Vec<Value>,
}

/// Returns a class that selects the devices of the driver `d`.
fn class(name: &str) -> Value {
    let selector = json!({"cel": {"expression": "device.driver == 'd'"}});
    json!({"metadata": {"name": name}, "spec": {"selectors": [selector]}})
}

/// Returns a slice of the node's own pool.
fn local_slice(node: &str, devices: Value) -> Value {
    json!({"metadata": {"name": format!("slice-{node}")}, "spec": {"driver": "d", "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}, "devices": devices}})
}

/// Returns a claim with one request for a device of the class `c`.
fn claim(request: Value) -> Value {
    claim_of(json!({"requests": [{"name": "r", "exactly": request}]}))
}

fn claim_of(devices: Value) -> Value {
    json!({"metadata": {"name": "claim", "namespace": "ns", "uid": "claim"},
        "spec": {"devices": devices}})
}

fn device(name: &str) -> Value {
    json!({"name": name})
}

/// Returns a device whose attribute `key` has a value.
fn attributed(name: &str, key: &str, value: &str) -> Value {
    json!({"name": name, "attributes": {key: {"string": value}}})
}

fn allocated_claim(driver: &str, pool: &str, name: &str) -> Value {
    let result = json!({"request": "r", "driver": driver, "pool": pool, "device": name});
    json!({"metadata": {"name": "other", "uid": name}, "spec": {},
        "status": {"allocation": {"devices": {"results": [result]}}}})
}

fn decode<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

fn node(name: &str) -> Node {
    decode(&json!({"metadata": {"name": name, "labels": {"zone": name}}}))
}

fn prepare(objects: &Objects, claims: &[Value]) -> Result<Allocator, Problem> {
    let slices = objects.slices.iter().map(|slice| Arc::new(decode(slice)));
    let mut allocated = Allocated::default();
    for claim in &objects.allocated {
        allocated.add_claim(&decode(claim));
    }
    let claims: Vec<_> = claims.iter().map(|claim| Arc::new(decode(claim))).collect();
    let find = |name: &str| {
        let mut classes = objects.classes.iter();
        let found = classes.find(|class| class["metadata"]["name"] == name);
        found.map(|class| Arc::new(decode(class)))
    };
    let pools = Arc::new(Pools::new(slices.collect()));
    let devices = (pools, Arc::new(allocated));
    let limits = Limits::new(&|| false);
    Allocator::new(&claims, &find, &Selectors::default(), devices, &limits)
}

fn allocate_all(
    objects: &Objects,
    claims: &[Value],
    on: &str,
) -> Result<Vec<AllocationResult>, Failure> {
    let allocator = prepare(objects, claims).unwrap();
    let ids = Cell::new(0);
    let new_id = || {
        ids.set(ids.get() + 1);
        format!("share-{}", ids.get())
    };
    allocator.allocate(&node(on), &Limits::new(&|| false), &new_id)
}

/// Returns the allocated devices as `request=device`, or the failure.
fn allocate(objects: &Objects, claim: &Value, on: &str) -> Result<String, Failure> {
    let results = allocate_all(objects, std::slice::from_ref(claim), on)?;
    Ok(describe_devices(&results))
}

fn describe_devices(results: &[AllocationResult]) -> String {
    let devices = results.iter().flat_map(|result| result.devices.iter());
    let results = devices.flat_map(|devices| devices.results.iter().flatten());
    let text = results.map(|result| format!("{}={}", result.request, result.device));
    text.collect::<Vec<_>>().join(" ")
}

fn objects(slices: Vec<Value>) -> Objects {
    Objects {
        classes: vec![class("c")],
        slices,
        ..Objects::default()
    }
}

fn one_of_class() -> Value {
    json!({"deviceClassName": "c"})
}

#[test]
fn claim_gets_a_free_device_of_its_node() {
    let mut all = objects(vec![
        local_slice("a", json!([device("a1"), device("a2")])),
        local_slice("b", json!([device("b1")])),
    ]);
    let claim = claim(one_of_class());
    assert_eq!(allocate(&all, &claim, "a"), Ok("r=a1".to_owned()));
    assert_eq!(allocate(&all, &claim, "b"), Ok("r=b1".to_owned()));
    assert_eq!(allocate(&all, &claim, "c"), Err(Failure::NoDevices));
    all.allocated = vec![
        allocated_claim("d", "a", "a1"),
        allocated_claim("other", "a", "a2"),
    ];
    assert_eq!(allocate(&all, &claim, "a"), Ok("r=a2".to_owned()));
    all.allocated.push(allocated_claim("d", "a", "a2"));
    assert_eq!(allocate(&all, &claim, "a"), Err(Failure::NoDevices));
}

#[test]
fn claims_of_a_pod_get_different_devices() {
    let all = objects(vec![local_slice("a", json!([device("a1"), device("a2")]))]);
    let claims = [claim(one_of_class()), claim(one_of_class())];
    let got = allocate_all(&all, &claims, "a").unwrap();
    assert_eq!(describe_devices(&got), "r=a1 r=a2");
    let three = [claims[0].clone(), claims[0].clone(), claims[0].clone()];
    assert_eq!(allocate_all(&all, &three, "a"), Err(Failure::NoDevices));
}

#[test]
fn count_and_all_decide_about_the_number_of_devices() {
    let mut all = objects(vec![local_slice(
        "a",
        json!([device("a1"), device("a2"), device("a3")]),
    )]);
    let count = |count: i64| {
        claim(json!({"deviceClassName": "c", "allocationMode": "ExactCount", "count": count}))
    };
    assert_eq!(allocate(&all, &count(2), "a"), Ok("r=a1 r=a2".to_owned()));
    assert_eq!(allocate(&all, &count(4), "a"), Err(Failure::NoDevices));
    assert_eq!(
        allocate(&all, &count(i64::MAX), "a"),
        Err(Failure::NoDevices)
    );
    let every = claim(json!({"deviceClassName": "c", "allocationMode": "All"}));
    assert_eq!(allocate(&all, &every, "a"), Ok("r=a1 r=a2 r=a3".to_owned()));
    assert_eq!(allocate(&all, &every, "b"), Err(Failure::NoDevices));
    all.allocated = vec![allocated_claim("d", "a", "a2")];
    assert_eq!(allocate(&all, &every, "a"), Err(Failure::NoDevices));
}

#[test]
fn selectors_of_class_and_request_must_match() {
    let slice = local_slice(
        "a",
        json!([
        {"name": "a1", "attributes": {"model": {"string": "small"}}, "capacity": {"memory": {"value": "1Gi"}}},
        {"name": "a2", "attributes": {"model": {"string": "large"}}, "capacity": {"memory": {"value": "8Gi"}}}]),
    );
    let mut all = objects(vec![slice]);
    let selecting = |text: &str| {
        claim(json!({"deviceClassName": "c", "selectors": [{"cel": {"expression": text}}]}))
    };
    for (expression, expect) in [
        ("device.attributes['d'].model == 'large'", Ok("r=a2")),
        (
            "device.capacity['d'].memory.compareTo(quantity('4Gi')) > 0",
            Ok("r=a2"),
        ),
        (
            "device.attributes['d'].model == 'other'",
            Err(Failure::NoDevices),
        ),
        (
            "device.attributes['other'].?model.orValue('') == ''",
            Ok("r=a1"),
        ),
        (
            "device.attributes['other'].model == 'x'",
            Err(Failure::Selector(
                "claim ns/claim, request r: selector #0: CEL runtime error: no such key: model"
                    .into(),
            )),
        ),
    ] {
        let got = allocate(&all, &selecting(expression), "a");
        assert_eq!(got, expect.map(str::to_owned), "{expression}");
    }
    all.classes[0]["spec"]["selectors"][0]["cel"]["expression"] = json!("device.driver == 'other'");
    assert_eq!(
        allocate(&all, &claim(one_of_class()), "a"),
        Err(Failure::NoDevices)
    );
}

#[test]
fn missing_class_and_wrong_selector_are_problems_of_all_nodes() {
    let all = objects(Vec::new());
    let missing = claim(json!({"deviceClassName": "missing"}));
    let problem = prepare(&all, &[missing]).unwrap_err();
    let text = "request r: device class missing does not exist";
    assert_eq!(problem, Problem::Unschedulable(text.to_owned()));
    let wrong =
        claim(json!({"deviceClassName": "c", "selectors": [{"cel": {"expression": "device."}}]}));
    assert!(matches!(prepare(&all, &[wrong]), Err(Problem::Wrong(_))));
    let unknown = claim_of(json!({"requests": [{"name": "r"}]}));
    assert!(matches!(
        prepare(&all, &[unknown]),
        Err(Problem::Unschedulable(_))
    ));
}

#[test]
fn first_available_subrequest_is_taken() {
    let mut all = objects(vec![local_slice(
        "a",
        json!([
            attributed("a1", "model", "x"),
            attributed("a2", "model", "y")
        ]),
    )]);
    let sub = |name: &str, model: &str, count: i64| {
        let expression = format!("device.attributes['d'].model == '{model}'");
        json!({"name": name, "deviceClassName": "c", "allocationMode": "ExactCount", "count": count,
            "selectors": [{"cel": {"expression": expression}}]})
    };
    let wanted = claim_of(json!({"requests": [{"name": "r", "firstAvailable": [
        sub("two", "x", 2), sub("one", "x", 1), sub("else", "y", 1)]}]}));
    assert_eq!(allocate(&all, &wanted, "a"), Ok("r/one=a1".to_owned()));
    all.allocated = vec![allocated_claim("d", "a", "a1")];
    assert_eq!(allocate(&all, &wanted, "a"), Ok("r/else=a2".to_owned()));
}

#[test]
fn search_goes_back_when_a_later_request_finds_no_device() {
    let all = objects(vec![local_slice(
        "a",
        json!([
            attributed("a1", "model", "x"),
            attributed("a2", "model", "y")
        ]),
    )]);
    let wanted = claim_of(json!({"requests": [
        {"name": "any", "exactly": one_of_class()},
        {"name": "x", "exactly": {"deviceClassName": "c",
            "selectors": [{"cel": {"expression": "device.attributes['d'].model == 'x'"}}]}}]}));
    assert_eq!(allocate(&all, &wanted, "a"), Ok("any=a2 x=a1".to_owned()));
}

#[test]
fn constraints_bind_devices_of_a_claim_together() {
    let all = objects(vec![local_slice(
        "a",
        json!([
        attributed("a1", "numa", "0"), attributed("a2", "numa", "1"), attributed("a3", "numa", "1"),
        {"name": "a4"}]),
    )]);
    let two = |constraint: Value| {
        claim_of(json!({"requests": [{"name": "r", "exactly":
            {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 2}},
            {"name": "s", "exactly": one_of_class()}], "constraints": [constraint]}))
    };
    for (constraint, expect) in [
        (
            json!({"matchAttribute": "d/numa", "requests": ["r"]}),
            Ok("r=a2 r=a3 s=a1"),
        ),
        (json!({"matchAttribute": "d/numa"}), Err(Failure::NoDevices)),
        (
            json!({"matchAttribute": "other/numa", "requests": ["r"]}),
            Err(Failure::NoDevices),
        ),
        (
            json!({"distinctAttribute": "d/numa", "requests": ["r"]}),
            Ok("r=a1 r=a2 s=a3"),
        ),
        (
            json!({"distinctAttribute": "d/numa"}),
            Err(Failure::NoDevices),
        ),
    ] {
        let got = allocate(&all, &two(constraint.clone()), "a");
        assert_eq!(got, expect.map(str::to_owned), "{constraint}");
    }
}

#[test]
fn administrative_access_ignores_other_users_but_takes_a_device_once() {
    let mut all = objects(vec![local_slice("a", json!([device("a1")]))]);
    all.allocated = vec![allocated_claim("d", "a", "a1")];
    let admin = json!({"deviceClassName": "c", "adminAccess": true});
    let got = allocate_all(&all, &[claim(admin.clone())], "a").unwrap();
    let devices = got[0].devices.as_ref().unwrap().results.as_ref().unwrap();
    assert_eq!(devices[0].admin_access, Some(true));
    let twice = claim_of(json!({"requests": [
        {"name": "r", "exactly": admin}, {"name": "s", "exactly": admin}]}));
    assert_eq!(allocate(&all, &twice, "a"), Err(Failure::NoDevices));
    // A device that is only looked at stays free for its next user.
    all.allocated[0]["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = json!(true);
    assert_eq!(
        allocate(&all, &claim(one_of_class()), "a"),
        Ok("r=a1".to_owned())
    );
}

#[test]
fn tainted_device_needs_a_toleration() {
    let tainted = |effect: &str| json!({"name": "a1", "taints": [{"key": "k", "effect": effect}]});
    let plain = claim(one_of_class());
    let tolerant = claim(json!({"deviceClassName": "c",
        "tolerations": [{"key": "k", "operator": "Exists"}]}));
    for (effect, claim, fits) in [
        ("NoSchedule", &plain, false),
        ("NoExecute", &plain, false),
        ("None", &plain, true),
        ("NoSchedule", &tolerant, true),
    ] {
        let all = objects(vec![local_slice("a", json!([tainted(effect)]))]);
        assert_eq!(allocate(&all, claim, "a").is_ok(), fits, "{effect}");
    }
    let all = objects(vec![local_slice("a", json!([tainted("NoSchedule")]))]);
    let got = allocate_all(&all, &[tolerant], "a").unwrap();
    let devices = got[0].devices.as_ref().unwrap().results.as_ref().unwrap();
    assert_eq!(
        devices[0].tolerations.as_ref().unwrap()[0].key.as_deref(),
        Some("k")
    );
}

/// Returns a slice of a pool that several nodes share.
fn pool_slice(name: &str, generation: i64, count: i64, nodes: Value, devices: Value) -> Value {
    let mut spec = json!({"driver": "d", "devices": devices,
        "pool": {"name": "pool", "generation": generation, "resourceSliceCount": count}});
    for (key, value) in nodes.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

fn in_zone(zone: &str) -> Value {
    json!({"nodeSelectorTerms": [{"matchExpressions":
        [{"key": "zone", "operator": "In", "values": [zone]}]}]})
}

#[test]
fn slices_reach_the_nodes_that_they_select() {
    let per_device = json!([{"name": "x1", "nodeName": "a"}, {"name": "x2", "nodeSelector": in_zone("b")},
        {"name": "x3", "allNodes": true}]);
    for (nodes, devices, expect) in [
        (
            json!({"allNodes": true}),
            json!([device("x1")]),
            ["x1", "x1", "x1"],
        ),
        (
            json!({"nodeSelector": in_zone("b")}),
            json!([device("x1")]),
            ["", "x1", ""],
        ),
        (
            json!({"perDeviceNodeSelection": true}),
            per_device,
            ["x1", "x2", "x3"],
        ),
        (json!({}), json!([device("x1")]), ["", "", ""]),
    ] {
        let all = objects(vec![pool_slice("s", 1, 1, nodes.clone(), devices)]);
        let got = ["a", "b", "c"].map(|node| allocate(&all, &claim(one_of_class()), node));
        let want = expect.map(|name| match name {
            "" => Err(Failure::NoDevices),
            name => Ok(format!("r={name}")),
        });
        assert_eq!(got, want, "{nodes}");
    }
}

#[test]
fn only_complete_pools_of_the_newest_generation_are_used() {
    let everywhere = || json!({"allNodes": true});
    let slice = |name: &str, generation, count, device_name: &str| {
        pool_slice(
            name,
            generation,
            count,
            everywhere(),
            json!([device(device_name)]),
        )
    };
    let every = claim(json!({"deviceClassName": "c", "allocationMode": "All"}));
    let not_now = |state: &str| {
        let text = "request r: asks for all devices, but resource pool d/pool is currently";
        Err(Failure::NotNow(format!("{text} {state}")))
    };
    for (slices, one, all_of_them) in [
        (
            vec![slice("s1", 1, 1, "old"), slice("s2", 2, 1, "new")],
            Ok("r=new".to_owned()),
            Ok("r=new".to_owned()),
        ),
        (
            vec![slice("s1", 2, 2, "x1")],
            Err(Failure::NoDevices),
            not_now("being updated"),
        ),
        (
            vec![slice("s1", 1, 2, "x1"), slice("s2", 1, 2, "x1")],
            Err(Failure::NotNow(
                "invalid resource pools were encountered".to_owned(),
            )),
            not_now("invalid"),
        ),
    ] {
        let all = objects(slices);
        assert_eq!(allocate(&all, &claim(one_of_class()), "a"), one);
        assert_eq!(allocate(&all, &every, "a"), all_of_them);
    }
}

#[test]
fn slice_of_another_node_does_not_replace_the_pool_of_a_node() {
    let mut forged = local_slice("b", json!([device("b1")]));
    forged["spec"]["pool"] = json!({"name": "a", "generation": 9, "resourceSliceCount": 1});
    let all = objects(vec![local_slice("a", json!([device("a1")])), forged]);
    assert_eq!(
        allocate(&all, &claim(one_of_class()), "a"),
        Ok("r=a1".to_owned())
    );
}

#[test]
fn result_is_limited_to_the_nodes_of_its_devices() {
    let local = objects(vec![local_slice("a", json!([device("a1")]))]);
    let got = allocate_all(&local, &[claim(one_of_class())], "a").unwrap();
    let only_a = json!({"nodeSelectorTerms": [{"matchFields":
        [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]});
    let selector =
        |results: &[AllocationResult]| serde_json::to_value(&results[0].node_selector).unwrap();
    assert_eq!(selector(&got), only_a);
    for (nodes, devices, want) in [
        (
            json!({"allNodes": true}),
            json!([device("x1")]),
            Value::Null,
        ),
        (
            json!({"nodeSelector": in_zone("a")}),
            json!([device("x1")]),
            in_zone("a"),
        ),
        (
            json!({"allNodes": true}),
            json!([{"name": "x1", "bindsToNode": true}]),
            only_a,
        ),
    ] {
        let all = objects(vec![pool_slice("s", 1, 1, nodes.clone(), devices)]);
        let got = allocate_all(&all, &[claim(one_of_class())], "a").unwrap();
        assert_eq!(selector(&got), want, "{nodes}");
    }
}

#[test]
fn configurations_of_classes_and_claims_are_carried_over() {
    let opaque = |text: &str| json!({"opaque": {"driver": "d", "parameters": {"kind": text}}});
    let mut all = objects(vec![local_slice("a", json!([device("a1"), device("a2")]))]);
    all.classes[0]["spec"]["config"] = json!([opaque("class")]);
    let mut of_s = opaque("only s");
    of_s["requests"] = json!(["s"]);
    let mut of_other = opaque("not chosen");
    of_other["requests"] = json!(["s/second"]);
    let wanted = claim_of(
        json!({"requests": [{"name": "r", "exactly": one_of_class()},
        {"name": "s", "firstAvailable": [{"name": "first", "deviceClassName": "c"},
            {"name": "second", "deviceClassName": "c"}]}],
        "config": [opaque("every"), of_s, of_other]}),
    );
    let got = allocate_all(&all, &[wanted], "a").unwrap();
    let got = serde_json::to_value(&got[0].devices.as_ref().unwrap().config).unwrap();
    let short = |config: &Value| {
        let requests = config["requests"].to_string();
        let kind = config["opaque"]["parameters"]["kind"].as_str().unwrap();
        format!("{} {kind} {requests}", config["source"].as_str().unwrap())
    };
    let got: Vec<_> = got.as_array().unwrap().iter().map(short).collect();
    assert_eq!(
        got,
        [
            "FromClass class [\"r\",\"s/first\"]",
            "FromClaim every null",
            "FromClaim only s [\"s\"]",
        ]
    );
}

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

#[test]
fn claim_without_a_solution_does_not_search_for_ever() {
    let devices: Vec<_> = (0..60)
        .map(|i| attributed(&format!("x{i}"), "id", &i.to_string()))
        .collect();
    let all = objects(vec![local_slice("a", json!(devices))]);
    // The last request finds no pair beside any set of the first one.
    let hopeless = claim_of(json!({"requests": [
        {"name": "many", "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 30}},
        {"name": "pair", "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 2}}],
        "constraints": [{"matchAttribute": "d/id", "requests": ["pair"]}]}));
    assert_eq!(allocate(&all, &hopeless, "a"), Err(Failure::Expired));
    let allocator = prepare(&all, &[hopeless]).unwrap();
    let got = allocator.allocate(&node("a"), &Limits::new(&|| true), &String::new);
    assert_eq!(got, Err(Failure::Expired));
}

mod abuse;
