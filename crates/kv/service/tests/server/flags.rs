//! etcd's flags about connections and files, tested from outside.

use crate::member::{Member, free_port, refusal};
use crate::pages::page;
use base_task::CancellationToken;
use clap::Parser;
use kv_service::Flags;
use proto_etcd::etcdserverpb::MemberListRequest;
use proto_etcd::etcdserverpb::cluster_client::ClusterClient;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

const SETTINGS: u8 = 4;
const PING: u8 = 6;

/// Opens a connection that sends the HTTP/2 preface and then stays silent.
async fn silent(port: u16) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await
        .unwrap();
    stream
}

/// Returns the next frame as kind and payload, or `None` if the connection has ended.
async fn frame(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let read = async {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.ok()?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).await.ok()?;
        Some((head[3], payload))
    };
    tokio::time::timeout(Duration::from_secs(20), read)
        .await
        .expect("a frame or the end")
}

#[tokio::test]
async fn server_announces_its_limit_of_concurrent_streams() {
    let member = Member::start(&["--max-concurrent-streams=7"]).await;
    let (kind, settings) = frame(&mut silent(member.port).await).await.unwrap();
    assert_eq!(kind, SETTINGS);
    assert!(
        settings.chunks(6).any(|one| one == [0, 3, 0, 0, 0, 7]),
        "{settings:?}"
    );
    member.stop().await;
}

#[tokio::test]
async fn connection_without_answers_to_pings_is_closed() {
    let member = Member::start(&[
        "--grpc-keepalive-interval=200ms",
        "--grpc-keepalive-timeout=200ms",
    ])
    .await;
    let mut stream = silent(member.port).await;
    let mut pings = 0;
    while let Some((kind, _)) = frame(&mut stream).await {
        pings += u32::from(kind == PING);
    }
    assert!(pings > 0);
    member.stop().await;
}

#[tokio::test]
async fn basic_metrics_have_no_durations_of_calls() {
    for (flag, wanted) in [("--metrics=basic", false), ("--metrics=extensive", true)] {
        let member = Member::start(&[flag]).await;
        ClusterClient::new(member.channel().await)
            .member_list(MemberListRequest::default())
            .await
            .unwrap();
        let (_, metrics) = page(member.port, "/metrics").await;
        assert!(metrics.contains("grpc_server_handled_total{"), "{flag}");
        assert_eq!(
            metrics.contains("grpc_server_handling_seconds"),
            wanted,
            "{flag}"
        );
        member.stop().await;
    }
}

#[tokio::test]
async fn auto_tls_creates_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let data = format!("--data-dir={}", folder.path().join("data").display());
    let peer = format!("--listen-peer-urls=https://127.0.0.1:{}", free_port());
    let flags = [
        &data,
        "--listen-client-urls=https://127.0.0.1:0",
        &peer,
        "--auto-tls",
        "--peer-auto-tls=true",
    ];
    let read = |name: &str| {
        std::fs::read_to_string(folder.path().join("data/fixtures").join(name)).unwrap()
    };
    let mut before = None;
    for _ in 0..2 {
        let member = Member::start(&flags).await;
        let made = [
            "client/cert.pem",
            "client/key.pem",
            "peer/cert.pem",
            "peer/key.pem",
        ]
        .map(read);
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&made[0]))
            .domain_name("127.0.0.1");
        let url = format!("https://127.0.0.1:{}", member.port);
        let channel = Endpoint::from_shared(url)
            .unwrap()
            .tls_config(tls)
            .unwrap()
            .connect()
            .await
            .unwrap();
        ClusterClient::new(channel)
            .member_list(MemberListRequest::default())
            .await
            .unwrap();
        member.stop().await;
        assert!(
            before
                .replace(made.clone())
                .is_none_or(|before| before == made),
            "another start keeps them"
        );
    }
    let said = refusal(&["--auto-tls", "--self-signed-cert-validity=0"]).await;
    assert!(
        said.contains("--self-signed-cert-validity 0 is invalid"),
        "{said}"
    );
}

#[tokio::test]
async fn members_with_auto_tls_form_a_cluster() {
    let ports = ["a", "b"].map(|name| (name, free_port()));
    let cluster = ports
        .map(|(name, port)| format!("{name}=https://127.0.0.1:{port}"))
        .join(",");
    let folder = tempfile::tempdir().unwrap();
    let stop = CancellationToken::new();
    let members = ports.map(|(name, port)| {
        let path = folder.path().join(name).display().to_string();
        let words = [
            "kvstore".to_owned(),
            format!("--name={name}"),
            format!("--data-dir={path}"),
            format!("--port-file={path}.port"),
            "--engine=memory".to_owned(),
            "--peer-auto-tls".to_owned(),
            "--allow-insecure-peers".to_owned(),
            "--listen-client-urls=http://127.0.0.1:0".to_owned(),
            format!("--listen-peer-urls=https://127.0.0.1:{port}"),
            format!("--initial-cluster={cluster}"),
        ];
        tokio::spawn(kv_service::run(
            Flags::try_parse_from(words).unwrap(),
            stop.clone(),
        ))
    });
    // A cluster of two serves only when both members run.
    for (name, _) in ports {
        until_there(&folder.path().join(format!("{name}.port"))).await;
    }
    stop.cancel();
    for member in members {
        member.await.unwrap().unwrap();
    }
}

async fn until_there(file: &std::path::Path) -> String {
    let written = async {
        loop {
            match std::fs::read_to_string(file) {
                Ok(text) if !text.is_empty() => return text,
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), written)
        .await
        .expect("it serves")
}

#[tokio::test]
async fn configuration_file_replaces_flags_and_environment() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let (file, peer) = (format!("{path}/etcd.yaml"), free_port());
    let text = format!(
        "name: from-the-file\ndata-dir: {path}/data\nlisten-client-urls: http://127.0.0.1:0\nport-file: {path}/port\n\
         listen-peer-urls: http://127.0.0.1:{peer}\nengine: memory\nstrict-reconfig-check: true\nwarning-apply-duration: 100000000\n"
    );
    std::fs::write(&file, text).unwrap();
    let words = ["kvstore", "--name=from-a-flag", "--config-file", &file];
    let stop = CancellationToken::new();
    let member = tokio::spawn(kv_service::run(
        Flags::try_parse_from(words).unwrap(),
        stop.clone(),
    ));
    let port = until_there(&folder.path().join("port")).await;
    let url = format!("http://127.0.0.1:{}", port.trim());
    let channel = Endpoint::from_shared(url).unwrap().connect_lazy();
    let mut client = ClusterClient::new(channel);
    let list = client
        .member_list(MemberListRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        list.members
            .iter()
            .map(|member| member.name.as_str())
            .collect::<Vec<_>>(),
        ["from-the-file"]
    );
    stop.cancel();
    member.await.unwrap().unwrap();
    std::fs::write(&file, "nmae: typed-badly\n").unwrap();
    let said = refusal(&[&format!("--config-file={file}")]).await;
    assert!(said.contains(&file) && said.contains("--nmae"), "{said}");
}

#[tokio::test]
async fn clients_are_served_on_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("unix://{}/clients.sock", folder.path().display());
    let listen = format!("--listen-client-urls=http://127.0.0.1:0,{url}");
    let member = Member::start(&[&listen, &format!("--advertise-client-urls={url}")]).await;
    let channel = Endpoint::from_shared(url.clone())
        .unwrap()
        .connect()
        .await
        .unwrap();
    let list = ClusterClient::new(channel)
        .member_list(MemberListRequest { linearizable: true })
        .await
        .unwrap();
    assert_eq!(list.into_inner().members[0].client_ur_ls, [url]);
    member.stop().await;
    assert!(
        !folder.path().join("clients.sock").exists(),
        "the file ends with the socket"
    );
}
