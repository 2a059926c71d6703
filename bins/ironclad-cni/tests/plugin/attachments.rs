//! Addition and deletion of pods.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::world::{Call, World, address, finish, run_script};

#[test]
fn pods_of_one_node_reach_each_other_with_their_own_addresses() {
    let Some(world) = World::start(&["a", "b"]) else {
        return;
    };
    let (a, b) = (world.add("a"), world.add("b"));
    world.serve("b", 8080);
    world.serve("node", 8081);
    for is_v4 in [true, false] {
        let (own, other) = (address(&a, is_v4), address(&b, is_v4));
        let target = |host: &str, port: u16| match is_v4 {
            true => format!("{host}:{port}"),
            false => format!("[{host}]:{port}"),
        };
        let seen = world.connect("a", &target(&other, 8080), true);
        assert_eq!(seen.as_deref(), Some(own.as_str()));
        let gateway = if is_v4 { "10.244.0.1" } else { "fd00::1" };
        let seen = world.connect("node", &target(&other, 8080), true);
        assert_eq!(seen.as_deref(), Some(gateway));
        let node = if is_v4 { "192.0.2.1" } else { "2001:db8::1" };
        let seen = world.connect("a", &target(node, 8081), true);
        assert_eq!(seen.as_deref(), Some(own.as_str()));
    }
    // The MTU of the node's default route.
    let mtu = world.exec("a", "cat /sys/class/net/eth0/mtu").unwrap();
    assert_eq!(mtu.trim(), "1400");
    let hairpin = "sh -c 'cat /sys/class/net/veth*/brport/hairpin_mode'";
    assert_eq!(world.exec("node", hairpin).unwrap(), "1\n1\n");
}

#[test]
fn deletion_removes_everything_and_may_be_repeated() {
    let Some(world) = World::start(&["a"]) else {
        return;
    };
    let mut config = world.config();
    config["runtimeConfig"]["portMappings"] = json!([{ "hostPort": 8080, "containerPort": 80 }]);
    world.call(&Call::new("ADD", "a"), &config).unwrap();
    assert_eq!(world.list_made().len(), 4);
    world.delete("a");
    assert_eq!(world.list_made(), Vec::<String>::new());
    world.delete("a");
    world.delete("never-added");
    assert!(world.exec("a", "ip link show eth0").is_err());
    // After its namespace.
    world.add("a");
    let name = world.name("a");
    run_script(&format!("ip netns del {name}; ip netns add {name}")).unwrap();
    world.delete("a");
    assert_eq!(world.list_made(), Vec::<String>::new());
}

#[test]
fn additions_at_the_same_time_get_different_addresses() {
    let Some(world) = World::start(&["a"]) else {
        return;
    };
    let names: Vec<_> = (0..12)
        .map(|n| (format!("c{n}"), format!("net{n}")))
        .collect();
    let program = env!("CARGO_BIN_EXE_ironclad-cni");
    let running: Vec<_> = names
        .iter()
        .map(|(container, interface)| {
            let call = Call {
                container,
                interface,
                ..Call::new("ADD", "a")
            };
            world.spawn(program, &call, &world.config())
        })
        .collect();
    let results: Vec<_> = running
        .into_iter()
        .map(|child| finish(child).unwrap())
        .collect();
    for is_v4 in [true, false] {
        let addresses: BTreeSet<_> = results
            .iter()
            .map(|result| address(result, is_v4))
            .collect();
        assert_eq!(addresses.len(), names.len(), "{addresses:?}");
    }
}

#[test]
fn exhausted_range_is_named_and_an_address_is_used_again() {
    let Some(world) = World::start(&["a", "b", "c"]) else {
        return;
    };
    let mut config = world.config();
    config["ipam"]["ranges"] = json!([[{ "subnet": "10.244.7.0/30" }]]);
    let add = |pod| world.call(&Call::new("ADD", pod), &config);
    let first = add("a").unwrap();
    let error = add("b").unwrap_err();
    let message = error["msg"].as_str().unwrap();
    for part in ["10.244.7.0/30", "maxPods"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    world.call(&Call::new("DEL", "a"), &config).unwrap();
    assert_eq!(address(&add("c").unwrap(), true), address(&first, true));
}

#[test]
fn failed_addition_leaves_nothing() {
    let Some(world) = World::start(&["a"]) else {
        return;
    };
    world
        .exec("a", "ip link add eth0 type veth peer name other")
        .unwrap();
    let error = world
        .call(&Call::new("ADD", "a"), &world.config())
        .unwrap_err();
    assert!(error["msg"].as_str().unwrap().contains("eth0"), "{error}");
    assert_eq!(world.list_made(), Vec::<String>::new());
    let call = Call {
        place: "node",
        ..Call::new("ADD", "a")
    };
    let error = world.call(&call, &world.config()).unwrap_err();
    assert_eq!(error["code"], 4, "{error}");
    let call = Call {
        place: "gone",
        ..Call::new("ADD", "a")
    };
    let error = world.call(&call, &world.config()).unwrap_err();
    assert_eq!(error["code"], 3, "{error}");
    assert_eq!(world.list_made(), Vec::<String>::new());
}

/// A second addition must leave the device of the first in place.
#[test]
fn repeated_addition_is_refused() {
    let Some(world) = World::start(&["a"]) else {
        return;
    };
    let first = world.add("a");
    let error = world
        .call(&Call::new("ADD", "a"), &world.config())
        .unwrap_err();
    assert_eq!(error["code"], 101, "{error}");
    let present = world.exec("a", "ip -4 -o addr show eth0").unwrap();
    assert!(present.contains(&address(&first, true)), "{present}");
}

/// The record of a killed addition is there when its `nft` still runs: the deletion has to wait.
#[test]
fn transaction_of_a_killed_addition_does_not_follow_its_deletion() {
    let Some(world) = World::start(&["a"]) else {
        return;
    };
    let mut config = world.config();
    config["runtimeConfig"]["portMappings"] = json!([{ "hostPort": 8080, "containerPort": 80 }]);
    let (slow, began) = (
        world.data.path().join("slow"),
        world.data.path().join("began"),
    );
    let script = format!(
        "mkdir {slow}; nft=$(command -v nft)
         printf '#!/bin/sh\n[ \"$1\" = -f ] || exec %s \"$@\"\n' \"$nft\" > {slow}/nft
         printf 'cat > {slow}/input; touch {began}; sleep 1; exec %s -f {slow}/input\n' \"$nft\" >> {slow}/nft
         chmod +x {slow}/nft",
        slow = slow.display(),
        began = began.display()
    );
    run_script(&script).unwrap();
    let path = format!("{}:{}", slow.display(), std::env::var("PATH").unwrap());
    let call = Call::new("ADD", "a");
    let program = env!("CARGO_BIN_EXE_ironclad-cni");
    let mut child = world.spawn_with(program, &call, &config, &[("PATH", &path)]);
    let started = Instant::now();
    while !began.exists() {
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "nft is not run"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    // By now it has written the whole transaction.
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!world.list_made().is_empty(), "killed before its record");
    world.call(&Call::new("DEL", "a"), &config).unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(world.list_made(), Vec::<String>::new());
}

/// CVE-2020-10749: a router advertisement of a pod must change no other pod and not the node.
#[test]
fn devices_ignore_router_advertisements() {
    let Some(world) = World::start(&["a", "b"]) else {
        return;
    };
    let mut single = world.config();
    single["ipam"]["ranges"] = json!([[{ "subnet": "10.244.7.0/24" }]]);
    for (pod, config) in [("a", single), ("b", world.config())] {
        world.call(&Call::new("ADD", pod), &config).unwrap();
        for (place, devices) in [("node", "cni0 veth*"), (pod, "eth0")] {
            let command = format!(
                "sh -c 'cd /proc/sys/net/ipv6/conf; for d in {devices}; do cat $d/accept_ra $d/autoconf; done'"
            );
            let values = world.exec(place, &command).unwrap();
            assert!(
                !values.is_empty() && !values.contains('1'),
                "{place}: {values}"
            );
        }
    }
}

/// The delays cover an addition, which takes about 50 ms with host ports.
#[test]
fn killed_addition_leaves_nothing_after_a_deletion_or_a_collection() {
    let Some(world) = World::start(&["a", "b"]) else {
        return;
    };
    let mut config = world.config();
    config["runtimeConfig"]["portMappings"] = json!([{ "hostPort": 8080, "containerPort": 80 }]);
    config["cni.dev/valid-attachments"] = json!([]);
    for milliseconds in (0..60).step_by(3) {
        let call = Call::new("ADD", "a");
        let mut child = world.spawn(env!("CARGO_BIN_EXE_ironclad-cni"), &call, &config);
        let until = Instant::now() + Duration::from_millis(milliseconds);
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
        child.kill().unwrap();
        child.wait().unwrap();
        let clean = if milliseconds % 2 == 0 { "DEL" } else { "GC" };
        world.call(&Call::new(clean, "a"), &config).unwrap();
        assert_eq!(
            world.list_made(),
            Vec::<String>::new(),
            "{milliseconds} ms, {clean}"
        );
    }
    world.call(&Call::new("ADD", "b"), &config).unwrap();
}
