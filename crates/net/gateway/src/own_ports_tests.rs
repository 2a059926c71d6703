//! Servers of Gateways whose ports or whose Gateway changes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::listener_ports::Ports;
use crate::metrics::Metrics;
use crate::proxy::{Limits, Timeouts};
use crate::table::tests::{build_owned, entry};

const DEADLINE: Duration = Duration::from_secs(30);
/// A rule without a backend has the request.
const NO_BACKEND: Option<u16> = Some(500);

/// Servers that follow the tables which a test sends.
struct Setting {
    address: SocketAddr,
    tables: watch::Sender<Vec<OwnTable>>,
    tasks: Tasks,
}

impl Setting {
    /// Starts the servers of a Gateway. Their ports are fixed, and therefore at an address of the
    /// loopback network that no other process uses, and no test with another number.
    fn start(test: u8, table: OwnTable) -> Self {
        let [_, a, b, c] = std::process::id().to_be_bytes();
        let address = Ipv4Addr::new(127, 128 + a % 64 + 64 * test, b, c);
        let tasks = Tasks::new(CancellationToken::new());
        let (tables, followed) = watch::channel(vec![table]);
        let limits = Limits {
            timeouts: Timeouts {
                response: DEADLINE,
                idle: DEADLINE,
                drain: Duration::ZERO,
            },
            body: None,
            requests: 10,
        };
        let metrics = Arc::new(Metrics::default());
        let proxy = Proxy::new(limits, metrics, tasks.clone(), tasks.clone());
        let own = OwnPorts {
            address: address.into(),
            range: "20000-20001".parse().unwrap(),
            options: base_serve::Options::default(),
            places: FairPlaces::new(100),
            clients: FairPlaces::new(100),
            fallback: Arc::new(base_tls::self_signed_key(vec!["x.com".to_owned()]).unwrap()),
            proxy: Arc::new(proxy),
        };
        let follow = own.follow_tables(followed, tasks.shutdown().clone());
        tasks.spawn_isolated("own-ports", follow);
        Self {
            address: (address, 20000).into(),
            tables,
            tasks,
        }
    }

    async fn connect(&self) -> TcpStream {
        loop {
            match TcpStream::connect(self.address).await {
                Ok(stream) => return stream,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    }
}

/// Returns a table with one rule, for a path.
fn table(gateway: &str, ports: (u16, u16), path: &str) -> OwnTable {
    let rule = entry("a/r", "", "", path, &[Scheme::Http]);
    OwnTable {
        slot: 0,
        gateway: gateway.to_owned(),
        ports: Ports {
            http: ports.0,
            https: ports.1,
        },
        table: Arc::new(build_owned(vec![rule])),
    }
}

/// Returns the status of a response; `None` if the connection is closed.
async fn request(stream: &mut TcpStream, path: &str) -> Option<u16> {
    let head = format!("GET {path} HTTP/1.1\r\nHost: a.com\r\n\r\n");
    stream.write_all(head.as_bytes()).await.ok()?;
    let mut received = Vec::new();
    loop {
        received.push(stream.read_u8().await.ok()?);
        if received.ends_with(b"\r\n\r\n") {
            break;
        }
    }
    let head = String::from_utf8(received).unwrap().to_lowercase();
    let length = head.split("content-length: ").nth(1).unwrap();
    let length = length.lines().next().unwrap().parse().unwrap();
    stream.read_exact(&mut vec![0; length]).await.ok()?;
    head.split(' ').nth(1)?.parse().ok()
}

#[tokio::test]
async fn port_of_one_protocol_changes_without_an_effect_on_the_other() {
    let setting = Setting::start(0, table("g", (80, 443), "/first"));
    let test = async {
        let mut open = setting.connect().await;
        assert_eq!(request(&mut open, "/first").await, NO_BACKEND);
        let changed = table("g", (80, 8443), "/second");
        setting.tables.send_replace(vec![changed]);
        loop {
            match request(&mut open, "/second").await {
                NO_BACKEND => break,
                // The former table.
                found => assert_eq!(found, Some(404)),
            }
        }
    };
    tokio::time::timeout(DEADLINE, test).await.unwrap();
    setting.tasks.shutdown().cancel();
}

#[tokio::test]
async fn open_connection_gets_no_requests_of_another_gateway() {
    let setting = Setting::start(1, table("g", (80, 443), "/first"));
    let test = async {
        let mut open = setting.connect().await;
        assert_eq!(request(&mut open, "/first").await, NO_BACKEND);
        let other = table("other", (80, 443), "/second");
        setting.tables.send_replace(vec![other]);
        while request(&mut setting.connect().await, "/second").await != NO_BACKEND {}
        for path in ["/first", "/second"] {
            assert_ne!(request(&mut open, path).await, NO_BACKEND, "{path}");
        }
    };
    tokio::time::timeout(DEADLINE, test).await.unwrap();
    setting.tasks.shutdown().cancel();
}
