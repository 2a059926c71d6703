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
mod consumption;
mod pools;
