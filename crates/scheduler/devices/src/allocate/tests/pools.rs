//! Pools of slices, and the nodes that their devices are for.

use super::*;

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
