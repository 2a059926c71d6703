//! Rules of the CNI specification.

use serde_json::{Value, json};

use crate::world::{Call, World, find_project_plugin, finish};

/// Returns a tree with the kinds of its values in the place of the values.
fn shape(tree: &Value) -> Value {
    match tree {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), shape(value)))
            .collect(),
        Value::Array(list) => list.iter().map(shape).collect(),
        Value::String(_) => json!("string"),
        Value::Number(_) => json!("number"),
        other => other.clone(),
    }
}

#[test]
fn result_has_the_shape_of_the_projects_bridge() {
    let Some(world) = World::start(&["a", "b"]) else {
        return;
    };
    let Some(bridge) = find_project_plugin("bridge") else {
        println!("skipped: the CNI project's plugins are not installed");
        return;
    };
    for version in ["0.3.0", "0.3.1", "0.4.0", "1.0.0"] {
        let mut config = world.config();
        config["cniVersion"] = json!(version);
        for field in ["isGateway", "isDefaultGateway", "hairpinMode"] {
            config[field] = json!(true);
        }
        let own = world.call(&Call::new("ADD", "a"), &config).unwrap();
        let mut theirs = config.clone();
        theirs["type"] = json!("bridge");
        theirs["name"] = json!("theirs");
        theirs["bridge"] = json!("cni1");
        let other = finish(world.spawn(&bridge, &Call::new("ADD", "b"), &theirs)).unwrap();
        assert_eq!(shape(&own), shape(&other), "{version}\n{own:#}\n{other:#}");
        assert_eq!(own["ips"][0]["interface"], other["ips"][0]["interface"]);
        world.call(&Call::new("DEL", "a"), &config).unwrap();
        finish(world.spawn(&bridge, &Call::new("DEL", "b"), &theirs)).unwrap();
    }
}

#[test]
fn loopback_has_the_result_of_the_projects_plugin() {
    let Some(world) = World::create(&["node", "a", "b"]) else {
        return;
    };
    for pod in ["a", "b"] {
        world.exec(pod, "ip link set lo down").unwrap();
    }
    let call = |command, pod| Call {
        interface: "lo",
        ..Call::new(command, pod)
    };
    let config = json!({ "cniVersion": "1.0.0", "name": "cni-loopback", "type": "loopback" });
    let own = world.call(&call("ADD", "a"), &config).unwrap();
    assert!(
        world
            .exec("a", "ip link show lo up")
            .unwrap()
            .contains("LOOPBACK")
    );
    assert_eq!(world.call(&call("CHECK", "a"), &config), Ok(Value::Null));
    assert_eq!(world.call(&call("DEL", "a"), &config), Ok(Value::Null));
    if let Some(program) = find_project_plugin("loopback") {
        let other = finish(world.spawn(&program, &call("ADD", "b"), &config)).unwrap();
        assert_eq!(shape(&own), shape(&other), "{own:#}\n{other:#}");
    }
}

#[test]
fn versions_are_listed_and_others_refused() {
    let Some(world) = World::start(&[]) else {
        return;
    };
    let call = Call::new("VERSION", "");
    let answer = world
        .call(&call, &json!({ "cniVersion": "1.0.0" }))
        .unwrap();
    assert_eq!(answer["cniVersion"], "1.0.0");
    let listed = answer["supportedVersions"].as_array().unwrap();
    assert!(listed.contains(&json!("0.4.0")) && listed.contains(&json!("1.1.0")));
    for (version, command) in [
        ("0.2.0", "DEL"),
        ("2.0.0", "DEL"),
        ("0.3.1", "CHECK"),
        ("1.0.0", "GC"),
        ("1.0.0", "STATUS"),
    ] {
        let mut config = world.config();
        config["cniVersion"] = json!(version);
        let call = Call {
            place: "node",
            ..Call::new(command, "a")
        };
        let error = world.call(&call, &config).unwrap_err();
        assert_eq!(error["code"], 1, "{version} {command}: {error}");
        assert_eq!(error["cniVersion"], version);
    }
    let status = world.call(&Call::new("STATUS", ""), &world.config());
    assert_eq!(status, Ok(Value::Null));
}

/// A configuration survives a restart of the node, but routes and rules do not.
#[test]
fn configuration_of_an_earlier_boot_adds_no_pod() {
    let Some(world) = World::start(&["a"]) else {
        return;
    };
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let mut config = world.config();
    config["bootId"] = json!(boot.trim());
    assert_eq!(
        world.call(&Call::new("STATUS", ""), &config),
        Ok(Value::Null)
    );
    world.call(&Call::new("ADD", "a"), &config).unwrap();
    config["bootId"] = json!("of-an-earlier-boot");
    for command in ["ADD", "STATUS"] {
        let error = world.call(&Call::new(command, "a"), &config).unwrap_err();
        assert_eq!(error["code"], 50, "{command}: {error}");
    }
    world.call(&Call::new("DEL", "a"), &config).unwrap();
    assert_eq!(world.list_made(), Vec::<String>::new());
}

#[test]
fn check_finds_what_has_changed() {
    let Some(world) = World::start(&["a"]) else {
        return;
    };
    let mut config = world.config();
    config["prevResult"] = world.add("a");
    let check = || world.call(&Call::new("CHECK", "a"), &config);
    assert_eq!(check(), Ok(Value::Null));
    for (place, change, undo) in [
        (
            "a",
            "ip route del default",
            "ip route add default via 10.244.0.1",
        ),
        (
            "a",
            "ip link set eth0 down",
            "sh -c 'ip link set eth0 up; ip -6 addr add fd00::2/64 dev eth0 nodad; ip route add default via 10.244.0.1; \
             ip -6 route add default via fd00::1'",
        ),
        (
            "a",
            "ip addr del 10.244.0.2/24 dev eth0",
            "ip addr add 10.244.0.2/24 dev eth0",
        ),
        (
            "node",
            "sh -c 'ip link set dev $(ls /sys/class/net/cni0/brif) nomaster'",
            "true",
        ),
    ] {
        world.exec(place, change).unwrap();
        let error = check().unwrap_err();
        assert_eq!(error["code"], 103, "{change}: {error}");
        world.exec(place, undo).unwrap();
    }
    world.delete("a");
    assert_eq!(check().unwrap_err()["code"], 3);
}

#[test]
fn collection_keeps_valid_attachments_only() {
    let Some(world) = World::start(&["a", "b", "c"]) else {
        return;
    };
    for pod in ["a", "b", "c"] {
        world.add(pod);
    }
    let collect = |config: &Value| world.call(&Call::new("GC", ""), config);
    let error = collect(&world.config()).unwrap_err();
    assert_eq!(error["code"], 7, "{error}");
    assert_eq!(world.list_made().len(), 6);
    let records = world.data.path().join("pods");
    for digit in ["0", "f"] {
        std::fs::write(records.join(format!("{}.json", digit.repeat(32))), "{").unwrap();
    }
    let mut config = world.config();
    let list = json!([{ "containerID": "b", "ifname": "eth0" }]);
    config["cni.dev/valid-attachments"] = list.clone();
    config["cni.dev/attachments"] = list;
    assert_eq!(collect(&config), Ok(Value::Null));
    assert_eq!(world.list_made().len(), 2);
    assert!(world.exec("b", "ip link show eth0").is_ok());
    assert!(world.exec("a", "ip link show eth0").is_err());
}
