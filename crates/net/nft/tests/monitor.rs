//! Tests notifications of a real kernel, in a network namespace of the test's own thread.
//!
//! Skipped, with the reason printed, if namespaces or nftables are not available.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::time::Duration;

use net_nft::{
    Family, TableChanges, TableMonitor, TableWatch, TableWork, apply_commands, check_nft,
    delete_table,
};

/// Runs a test in a network namespace; its programs inherit that of the thread.
fn in_namespace<F: Future<Output = ()> + 'static>(test: fn() -> F) {
    let thread = std::thread::spawn(move || {
        if let Err(error) = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET) {
            return println!("skipped: no network namespace: {error}");
        }
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        runtime.block_on(async {
            match check_nft().await {
                Ok(()) => test().await,
                Err(error) => println!("skipped: {error}"),
            }
        });
    });
    thread.join().unwrap();
}

fn transactions(transactions: usize) -> TableChanges {
    TableChanges {
        transactions,
        lost: false,
    }
}

const OWN: &str = "table ip own { set s { type ipv4_addr; }; chain c { ip saddr @s drop; }; }\n";

#[test]
fn each_transaction_that_changes_the_table_is_counted() {
    in_namespace(|| async {
        let mut monitor = TableMonitor::open("own").unwrap();
        for (commands, expect) in [
            (OWN, 1),
            ("add table ip other\n", 0),
            ("add element ip own s { 192.0.2.1 }\n", 1),
            ("delete element ip own s { 192.0.2.1 }\n", 1),
            ("flush chain ip own c\nadd rule ip own c drop\n", 1),
            ("add table ip6 own\nadd table ip other\n", 1),
            ("flush ruleset\n", 1),
            ("flush ruleset\n", 0),
        ] {
            let (applied, seen) = monitor.watch_during(apply_commands(commands)).await;
            applied.unwrap();
            assert_eq!(seen.unwrap(), transactions(expect), "{commands}");
        }
    });
}

#[test]
fn waiting_ends_when_another_program_deletes_the_table() {
    in_namespace(|| async {
        let mut monitor = TableMonitor::open("own").unwrap();
        apply_commands(OWN).await.unwrap();
        assert_eq!(monitor.read_changes().unwrap(), transactions(1));
        let wait = Duration::from_millis(200);
        apply_commands("add table ip other\n").await.unwrap();
        let early = tokio::time::timeout(wait, monitor.wait_for_change()).await;
        assert!(early.is_err(), "the other table does not matter: {early:?}");
        delete_table(Family::V4, "own").await.unwrap();
        let seen = tokio::time::timeout(Duration::from_secs(20), monitor.wait_for_change()).await;
        assert_eq!(seen.unwrap().unwrap(), transactions(1));
    });
}

#[test]
fn watch_asks_for_a_repair_after_changes_of_others_only() {
    in_namespace(|| async {
        let mut watch = TableWatch::open("own", Duration::from_secs(30));
        for change in ["flush ruleset\n", "add element ip own s { 192.0.2.1 }\n"] {
            // An installation that counts as a repair, which delays the next one.
            let begun = std::time::Instant::now();
            watch.discard_changes();
            watch.begin_repair();
            watch
                .apply(&format!("add table ip own\ndelete table ip own\n{OWN}"))
                .await
                .unwrap();
            let wait = Duration::from_millis(200);
            let early = tokio::time::timeout(wait, watch.wait_for_work()).await;
            assert!(early.is_err(), "its own change: {early:?}");
            apply_commands(change).await.unwrap();
            // 20 times the duration of the installation, at most 300 s.
            let wait = Duration::from_secs(330);
            let work = tokio::time::timeout(wait, watch.wait_for_work()).await;
            assert_eq!(work.unwrap(), TableWork::Repair, "{change}");
            let took = begun.elapsed();
            assert!(took >= Duration::from_secs(5), "{change}: {took:?}");
        }
    });
}

/// A transaction that fills the buffer: the loss is reported, and later changes are seen.
#[test]
fn lost_notifications_are_reported() {
    in_namespace(|| async {
        let mut monitor = TableMonitor::open("own").unwrap();
        for table in ["other", "own"] {
            let chains: String = (0..60_000)
                .map(|n| format!("add chain ip {table} c{n:080}\n"))
                .collect();
            let commands = format!("add table ip {table}\n{chains}");
            apply_commands(&commands).await.unwrap();
            let seen = monitor.wait_for_change().await.unwrap();
            assert_eq!((seen.transactions, seen.lost), (0, true), "{table}");
        }
        apply_commands("add table ip later\n").await.unwrap();
        assert_eq!(monitor.read_changes().unwrap(), transactions(0));
        apply_commands(OWN).await.unwrap();
        assert_eq!(monitor.read_changes().unwrap(), transactions(1));
    });
}

/// Session affinity: each connection updates a set, and its clients time out.
#[test]
fn packets_that_change_a_set_cause_no_notification() {
    in_namespace(|| async {
        let commands = "table ip own {
            set s { type ipv4_addr; flags dynamic,timeout; timeout 1s; }
            chain c { type filter hook output priority 0; update @s { ip daddr }; }
        }\n";
        let mut monitor = TableMonitor::open("own").unwrap();
        apply_commands(commands).await.unwrap();
        assert_eq!(monitor.read_changes().unwrap(), transactions(1));
        let ip = |words: &'static [&'static str]| {
            tokio::process::Command::new("ip").args(words).status()
        };
        assert!(ip(&["link", "set", "lo", "up"]).await.unwrap().success());
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        // The element lives for a second, which the listing may take.
        let mut text = String::new();
        for _ in 0..30 {
            socket.send_to(b"x", "127.0.0.9:9").unwrap();
            let listed = net_nft::list_objects(&["list", "set", "ip", "own", "s"]);
            text = String::from_utf8(listed.await.unwrap().stdout).unwrap();
            if text.contains("127.0.0.9") {
                break;
            }
        }
        assert!(text.contains("127.0.0.9"), "{text}");
        let wait = Duration::from_millis(2500);
        let seen = tokio::time::timeout(wait, monitor.wait_for_change()).await;
        assert!(seen.is_err(), "{seen:?}");
    });
}
