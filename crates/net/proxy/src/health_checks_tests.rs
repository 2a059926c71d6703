#![allow(clippy::unwrap_used)]
use std::net::{Ipv4Addr, TcpListener as StdListener};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

#[test]
fn health_check_needs_local_endpoints_and_a_healthy_proxy() {
    for (local, healthy, expect) in [(2, true, 200), (0, true, 503), (2, false, 503)] {
        let response = local_health("ns/web", local, healthy);
        assert_eq!(response.status(), expect, "{local} {healthy}");
        let headers = response.headers();
        assert_eq!(
            headers["x-load-balancing-endpoint-weight"],
            local.to_string()
        );
        assert_eq!(headers["x-content-type-options"], "nosniff");
    }
}

fn checks() -> Checks {
    let health = Arc::new(Health::default());
    health.record_success();
    Checks::new(Tasks::new(CancellationToken::new()), health)
}

fn check(port: u16, counts: &[(Family, usize)]) -> HealthCheck {
    let addresses = |count: usize| {
        (0..count)
            .map(|n| IpAddr::from([10, 0, 0, n as u8]))
            .collect()
    };
    let local = counts
        .iter()
        .map(|(family, count)| (*family, addresses(*count)));
    HealthCheck {
        port,
        local: local.collect(),
    }
}

fn loopback() -> Vec<IpAddr> {
    vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()]
}

fn one(service: &str, check: Option<HealthCheck>) -> BTreeMap<String, Option<HealthCheck>> {
    BTreeMap::from([(service.to_owned(), check)])
}

/// Returns the response to a request, or "closed".
async fn ask(ip: &str, port: u16) -> String {
    let mut text = String::new();
    let Ok(mut stream) = TcpStream::connect((ip.parse::<IpAddr>().unwrap(), port)).await else {
        return "closed".into();
    };
    let request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let _ = stream.read_to_string(&mut text).await;
    text
}

async fn wait_until_closed(ip: &str, port: u16) {
    let closed = async {
        while ask(ip, port).await != "closed" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), closed)
        .await
        .unwrap();
}

fn free_port() -> u16 {
    let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

#[tokio::test]
async fn each_family_is_served_with_its_own_count() {
    let (mut checks, port) = (checks(), free_port());
    let both = check(port, &[(Family::V4, 2), (Family::V6, 0)]);
    checks.set_all(loopback(), BTreeMap::from([("ns/web".into(), both)]));
    let v4 = ask("127.0.0.1", port).await;
    assert!(
        v4.starts_with("HTTP/1.1 200") && v4.contains("\"localEndpoints\":2"),
        "{v4}"
    );
    // The machine may have no IPv6.
    let v6 = ask("::1", port).await;
    assert!(v6 == "closed" || v6.starts_with("HTTP/1.1 503"), "{v6}");
    checks.set(one("ns/web", Some(check(port, &[(Family::V6, 1)]))));
    wait_until_closed("127.0.0.1", port).await;
}

#[tokio::test]
async fn port_in_use_is_tried_again() {
    let taken = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut checks = checks();
    checks.set_all(loopback(), BTreeMap::new());
    checks.set(one("ns/web", Some(check(port, &[(Family::V4, 1)]))));
    assert!(checks.open.is_empty());
    drop(taken);
    checks.wait_for_retry().await;
    checks.retry();
    assert!(ask("127.0.0.1", port).await.starts_with("HTTP/1.1 200"));
    assert!(checks.waiting.is_empty());
}

/// The first attempt is soon after the failure. Syncs between the attempts delay or hasten none.
#[tokio::test]
async fn attempts_back_off_in_spite_of_syncs() {
    let taken = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut checks = checks();
    checks.set_all(loopback(), BTreeMap::new());
    let began = Instant::now();
    checks.set(one("ns/web", Some(check(port, &[(Family::V4, 1)]))));
    for attempts in 0..4 {
        for endpoints in 1..4 {
            let own = check(port, &[(Family::V4, endpoints)]);
            checks.set(one("ns/web", Some(own)));
        }
        let retry = &checks.waiting["ns/web"];
        assert_eq!(retry.delay, FIRST_RETRY * (1 << attempts));
        checks.wait_for_retry().await;
        checks.retry();
    }
    let took = began.elapsed();
    assert!(took >= FIRST_RETRY * 15, "{took:?}");
    // Another port is tried at once.
    let other = free_port();
    checks.set(one("ns/web", Some(check(other, &[(Family::V4, 1)]))));
    assert!(ask("127.0.0.1", other).await.starts_with("HTTP/1.1 200"));
    assert!(checks.waiting.is_empty());
}

#[tokio::test]
async fn port_moves_to_another_service_in_one_sync() {
    let (mut checks, port) = (checks(), free_port());
    let own = check(port, &[(Family::V4, 1)]);
    checks.set_all(loopback(), BTreeMap::from([("ns/z".into(), own.clone())]));
    let move_port = [("ns/a".to_owned(), Some(own)), ("ns/z".to_owned(), None)];
    checks.set(BTreeMap::from(move_port));
    let moved = async {
        while !ask("127.0.0.1", port).await.contains("\"name\":\"a\"") {
            tokio::time::timeout(Duration::from_millis(100), checks.wait_for_retry())
                .await
                .ok();
            checks.retry();
        }
    };
    tokio::time::timeout(Duration::from_secs(20), moved)
        .await
        .unwrap();
}

#[tokio::test]
async fn ports_of_services_and_addresses_that_are_not_listed_are_closed() {
    let (mut checks, port) = (checks(), free_port());
    let own = check(port, &[(Family::V4, 1)]);
    checks.set_all(loopback(), BTreeMap::from([("ns/web".into(), own.clone())]));
    let elsewhere = vec!["127.0.0.2".parse().unwrap()];
    checks.set_all(elsewhere, BTreeMap::from([("ns/web".into(), own)]));
    wait_until_closed("127.0.0.1", port).await;
    assert!(ask("127.0.0.2", port).await.starts_with("HTTP/1.1 200"));
    checks.set_all(loopback(), BTreeMap::new());
    wait_until_closed("127.0.0.2", port).await;
    assert!(checks.open.is_empty());
}
