//! HTTP pages beside gRPC.

use crate::member::{Member, free_port};
use proto_etcd::etcdserverpb::alarm_request::AlarmAction;
use proto_etcd::etcdserverpb::kv_client::KvClient;
use proto_etcd::etcdserverpb::maintenance_client::MaintenanceClient;
use proto_etcd::etcdserverpb::{AlarmRequest, AlarmType, DeleteRangeRequest, PutRequest};
use std::net::ToSocketAddrs;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Returns status code and body of a page.
pub async fn page(port: u16, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (
        head.split(' ').nth(1).unwrap().parse().unwrap(),
        body.to_owned(),
    )
}

async fn raise(member: &Member, alarm: AlarmType) {
    let request = AlarmRequest {
        action: AlarmAction::Activate.into(),
        member_id: 1,
        alarm: alarm.into(),
    };
    MaintenanceClient::new(member.channel().await)
        .alarm(request)
        .await
        .unwrap();
}

#[tokio::test]
async fn excluded_alarm_leaves_the_member_healthy() {
    // A quota so small that the alarm can't be deactivated.
    let member = Member::start(&["--quota-backend-bytes=1"]).await;
    raise(&member, AlarmType::Nospace).await;
    let (code, body) = page(member.port, "/health").await;
    assert!(
        code == 503 && body.contains("ALARM NOSPACE"),
        "{code} {body}"
    );
    assert_eq!(page(member.port, "/health?exclude=CORRUPT").await.0, 503);
    assert_eq!(page(member.port, "/health?exclude=NOSPACE").await.0, 200);
    assert_eq!(
        page(
            member.port,
            "/health?serializable=true&exclude=CORRUPT&exclude=NOSPACE"
        )
        .await
        .0,
        200
    );
    assert_eq!(page(member.port, "/readyz").await, (200, "ok\n".to_owned()));
    member.stop().await;
}

#[tokio::test]
async fn checks_can_be_excluded_or_requested_alone() {
    let member = Member::start(&[]).await;
    raise(&member, AlarmType::Corrupt).await;
    let (code, body) = page(member.port, "/readyz").await;
    assert!(
        code == 503 && body.contains("[-]data_corruption failed: alarm activated: CORRUPT\n"),
        "{code} {body}"
    );
    assert!(body.contains("[+]linearizable_read ok\n"), "{body}");
    let (code, body) = page(
        member.port,
        "/readyz?verbose&exclude=data_corruption&exclude=unheard_of",
    )
    .await;
    assert!(
        code == 200 && !body.contains("corruption") && body.ends_with("ok\n"),
        "{code} {body}"
    );
    assert_eq!(page(member.port, "/readyz/data_corruption").await.0, 503);
    let (code, body) = page(member.port, "/readyz/linearizable_read?verbose=").await;
    assert_eq!(
        (code, body.as_str()),
        (200, "[+]linearizable_read ok\nok\n")
    );
    assert_eq!(
        page(member.port, "/livez/serializable_read").await,
        (200, "ok\n".to_owned())
    );
    assert_eq!(page(member.port, "/livez/linearizable_read").await.0, 404);
    assert_eq!(
        page(member.port, "/livez?verbose=true").await,
        (200, "[+]serializable_read ok\nok\n".to_owned())
    );
    member.stop().await;
}

#[tokio::test]
async fn pages_are_served_on_extra_ports_and_all_addresses_of_a_name() {
    let (pages, clients) = (free_port(), free_port());
    let member = Member::start(&[
        &format!("--listen-client-http-urls=http://127.0.0.1:{pages}"),
        &format!("--listen-client-urls=http://localhost:{clients}"),
    ])
    .await;
    assert_eq!(
        (member.port, page(pages, "/health").await.0),
        (clients, 200)
    );
    for address in ("localhost", clients).to_socket_addrs().unwrap() {
        // Addresses that this host does not have can't be bound.
        if std::net::TcpListener::bind((address.ip(), 0)).is_ok() {
            TcpStream::connect(address)
                .await
                .unwrap_or_else(|error| panic!("{address}: {error}"));
        }
    }
    member.stop().await;
}

#[tokio::test]
async fn keys_metric_excludes_deleted_keys() {
    let member = Member::start(&[]).await;
    let mut client = KvClient::new(member.channel().await);
    let keys = async || {
        let (_, text) = page(member.port, "/metrics").await;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("etcd_debugging_mvcc_keys_total "));
        line.unwrap_or_default().to_owned()
    };
    for key in ["a", "b", "a"] {
        client
            .put(PutRequest {
                key: key.into(),
                ..PutRequest::default()
            })
            .await
            .unwrap();
    }
    assert_eq!(keys().await, "2");
    client
        .delete_range(DeleteRangeRequest {
            key: "b".into(),
            ..DeleteRangeRequest::default()
        })
        .await
        .unwrap();
    assert_eq!(keys().await, "1");
    client
        .put(PutRequest {
            key: "b".into(),
            ..PutRequest::default()
        })
        .await
        .unwrap();
    assert_eq!(keys().await, "2");
    drop(client);
    member.stop().await;
}
