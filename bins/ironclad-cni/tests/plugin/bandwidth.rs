//! Rates of pods.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::world::{Call, World, address};

/// Bytes of a transfer, and the burst.
const BYTES: usize = 1_500_000;
const BURST: u64 = 500_000;
/// Bytes for each second.
const RATE: u64 = 1_000_000;

/// Sends bytes from a pod or the node to another one; returns the duration.
fn transfer(world: &World, from: &str, to: &str, target: &str) -> Duration {
    let (ready, is_ready) = mpsc::channel();
    let received = world.run_inside(to, move || {
        let listener = TcpListener::bind("[::]:0").unwrap();
        ready.send(listener.local_addr().unwrap().port()).unwrap();
        let mut bytes = Vec::new();
        listener
            .accept()
            .unwrap()
            .0
            .read_to_end(&mut bytes)
            .unwrap();
        bytes.len()
    });
    let target = format!("{target}:{}", is_ready.recv().unwrap());
    let began = Instant::now();
    let sent = world.run_inside(from, move || {
        TcpStream::connect(target)
            .unwrap()
            .write_all(&vec![7; BYTES])
            .unwrap();
    });
    sent.join().unwrap();
    assert_eq!(received.join().unwrap(), BYTES);
    began.elapsed()
}

#[test]
fn rates_of_both_directions_are_limited() {
    let Some(world) = World::start(&["a"]) else {
        return;
    };
    let mut config = world.config();
    config["capabilities"] = json!({ "portMappings": true, "bandwidth": true });
    // The names as containerd writes them.
    config["runtimeConfig"]["bandwidth"] = json!({
        "IngressRate": RATE * 8, "IngressBurst": BURST * 8, "EgressRate": RATE * 8, "EgressBurst": BURST * 8
    });
    let result = world.call(&Call::new("ADD", "a"), &config).unwrap();
    let pod = address(&result, true);
    // 1 s for what the burst does not cover; without a limit it takes milliseconds.
    for (from, to, target) in [("node", "a", pod.as_str()), ("a", "node", "192.0.2.1")] {
        let took = transfer(&world, from, to, target);
        assert!(took > Duration::from_millis(700), "{from} {to} {took:?}");
        assert!(took < Duration::from_secs(20), "{from} {to} {took:?}");
    }
    world.call(&Call::new("DEL", "a"), &config).unwrap();
    assert_eq!(world.list_made(), Vec::<String>::new());
}
