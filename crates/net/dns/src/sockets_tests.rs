#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout)]
use std::net::{IpAddr, Ipv4Addr};

use base_task::CancellationToken;
use hickory_proto::op::{Edns, Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use tokio::io::DuplexStream;
use tokio::net::{TcpSocket, TcpStream};
use tokio_util::sync::DropGuard;

use super::*;
use crate::stub_domain::StubDomain;
use crate::test_resolver::{TestResolver, addresses, response_to, soa, text};
use crate::test_server::{new_server, question, request};

/// Time after which a request counts as ignored, and deadline of the responses that are expected.
const SOON: Duration = Duration::from_millis(300);
const DEADLINE: Duration = Duration::from_secs(10);

async fn start(allow: &str) -> (SocketAddr, Started) {
    start_with(allow, Vec::new()).await
}

async fn start_with(allow: &str, upstreams: Vec<SocketAddr>) -> (SocketAddr, Started) {
    let started = start_server(allow, upstreams, Vec::new()).await;
    (started.address, started)
}

struct Started {
    server: Arc<Server>,
    address: SocketAddr,
    tasks: Tasks,
    /// Ends the thread for UDP, which the end of a test waits for.
    _shutdown: DropGuard,
}

async fn start_server(
    allow: &str,
    upstreams: Vec<SocketAddr>,
    stub_domains: Vec<StubDomain>,
) -> Started {
    let tasks = Tasks::new(CancellationToken::new());
    let server = Arc::new(new_server(allow, upstreams, stub_domains));
    let sockets = loop {
        // A request of another test may have the port that the kernel chose for TCP.
        if let Ok(sockets) = Sockets::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await {
            break sockets;
        }
    };
    let address = sockets.tcp.local_addr().unwrap();
    serve_dns(&server, sockets, &tasks);
    Started {
        server,
        address,
        _shutdown: tasks.shutdown().clone().drop_guard(),
        tasks,
    }
}

async fn start_forwarding(resolver: &TestResolver) -> (SocketAddr, Started) {
    start_with("127.0.0.0/8", vec![resolver.address]).await
}

async fn ask(server: SocketAddr, bytes: &[u8]) -> Option<Message> {
    ask_from([127, 0, 0, 1], server, bytes, DEADLINE).await
}

async fn is_ignored(server: SocketAddr, bytes: &[u8]) -> bool {
    let response = ask_from([127, 0, 0, 1], server, bytes, SOON).await;
    response.is_none()
}

async fn ask_from(
    from: [u8; 4],
    server: SocketAddr,
    bytes: &[u8],
    patience: Duration,
) -> Option<Message> {
    let bytes = ask_raw(from, server, bytes, patience).await?;
    Some(Message::from_vec(&bytes).unwrap())
}

async fn ask_raw(
    from: [u8; 4],
    server: SocketAddr,
    bytes: &[u8],
    patience: Duration,
) -> Option<Vec<u8>> {
    let socket = UdpSocket::bind((Ipv4Addr::from(from), 0)).await.unwrap();
    socket.send_to(bytes, server).await.unwrap();
    let mut buffer = [0; 4096];
    let length = timeout(patience, socket.recv(&mut buffer))
        .await
        .ok()?
        .unwrap();
    Some(buffer[..length].to_vec())
}

async fn connect(from: [u8; 4], server: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(IpAddr::from(from), 0)).unwrap();
    socket.connect(server).await.unwrap()
}

/// Returns the length of the response over TCP; None if the server closed the connection.
async fn ask_over(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Option<u16> {
    let bytes = question("w.ns.svc.cluster.local.");
    let framed = [
        &u16::try_from(bytes.len()).unwrap().to_be_bytes()[..],
        &bytes,
    ]
    .concat();
    stream.write_all(&framed).await.ok()?;
    timeout(DEADLINE, stream.read_u16()).await.ok()?.ok()
}

#[tokio::test]
async fn client_outside_the_ranges_gets_no_answer() {
    let (server, _tasks) = start("127.0.0.2/32").await;
    assert!(is_ignored(server, &question("w.ns.svc.cluster.local.")).await);
    assert_eq!(
        ask_over(&mut connect([127, 0, 0, 1], server).await).await,
        None
    );
    assert!(
        ask_over(&mut connect([127, 0, 0, 2], server).await)
            .await
            .is_some()
    );
}

#[tokio::test]
async fn node_outside_the_ranges_is_answered() {
    let (server, _tasks) = start("127.0.0.2/32").await;
    let bytes = question("w.ns.svc.cluster.local.");
    for (address, expect) in [([127, 0, 0, 9], true), ([127, 0, 0, 8], false)] {
        let patience = if expect { DEADLINE } else { SOON };
        let udp = ask_from(address, server, &bytes, patience).await;
        let tcp = ask_over(&mut connect(address, server).await).await;
        assert_eq!(
            (udp.is_some(), tcp.is_some()),
            (expect, expect),
            "{address:?}"
        );
    }
}

/// Returns the client's end of a connection from an address.
fn connect_from(address: [u8; 4], started: &Started) -> DuplexStream {
    let (own, served) = tokio::io::duplex(4096);
    let peer = SocketAddr::from((address, 1024));
    start_connection(&started.server, served, peer, &started.tasks);
    own
}

async fn is_open(stream: &mut DuplexStream) -> bool {
    ask_over(stream).await.is_some()
}

#[tokio::test]
async fn one_client_cannot_take_all_connections() {
    let (_, started) = start("127.0.0.0/8").await;
    let mut silent: Vec<_> = (0..=255)
        .map(|n| connect_from([127, 0, n, 1], &started))
        .collect();
    assert!(is_open(&mut connect_from([10, 0, 0, 2], &started)).await);
    assert!(is_open(&mut silent[15]).await && !is_open(&mut silent[16]).await);
}

#[tokio::test]
async fn client_without_a_connection_gets_one_from_the_client_with_the_most() {
    let (_, started) = start("127.0.0.0/8").await;
    let mut many: Vec<_> = (0..=255)
        .map(|n| connect_from([10, 0, 0, n / 16], &started))
        .collect();
    let mut other = connect_from([10, 0, 1, 1], &started);
    assert!(is_open(&mut other).await);
    // One connection was closed: the longest one of a client.
    let mut closed = Vec::new();
    for (index, stream) in many.iter_mut().enumerate() {
        if !is_open(stream).await {
            closed.push(index);
        }
    }
    assert!(closed.len() == 1 && closed[0] % 16 == 0, "{closed:?}");
}

#[tokio::test]
async fn request_that_panics_stops_nothing_else() {
    let (server, started) = start("127.0.0.0/8").await;
    assert!(is_ignored(server, &question("planted-panic.svc.cluster.local.")).await);
    assert!(
        ask(server, &question("w.ns.svc.cluster.local."))
            .await
            .is_some()
    );
    assert_eq!(started.tasks.failure(), None);
}

/// Sends a request over TCP and returns the response.
async fn ask_tcp(server: SocketAddr, request: &Message) -> Option<Message> {
    let mut stream = connect([127, 0, 0, 1], server).await;
    let bytes = request.to_vec().unwrap();
    let length = u16::try_from(bytes.len()).unwrap();
    stream.write_all(&length.to_be_bytes()).await.unwrap();
    stream.write_all(&bytes).await.unwrap();
    let length = timeout(DEADLINE, stream.read_u16()).await.ok()?.ok()?;
    let mut response = vec![0; usize::from(length)];
    stream.read_exact(&mut response).await.unwrap();
    Some(Message::from_vec(&response).unwrap())
}

#[tokio::test]
async fn cached_answer_has_the_parts_of_each_client() {
    let resolver = TestResolver::start(|request, _| vec![addresses(request, 3600, &[1])]).await;
    let (server, _tasks) = start_forwarding(&resolver).await;
    let mut plain = request("WWW.example.COM.", RecordType::A);
    plain.metadata.id = 0x1111;
    let mut extended = request("www.Example.com.", RecordType::A);
    extended.metadata.id = 0x2222;
    extended.set_edns(Edns::new());
    for request in [&plain, &extended, &plain] {
        let response = ask(server, &request.to_vec().unwrap()).await.unwrap();
        assert_eq!(response.metadata.id, request.metadata.id);
        let [asked, returned] = [request, &response].map(|m| m.queries[0].name().clone());
        assert!(asked.eq_case(&returned), "{asked} {returned}");
        assert_eq!(response.edns.is_some(), request.edns.is_some());
        assert_eq!(response.answers.len(), 1);
        assert!(response.answers[0].ttl <= 30, "{}", response.answers[0]);
    }
    assert_eq!(resolver.requests().len(), 1);
}

#[tokio::test]
async fn denial_is_cached_with_the_soa_record() {
    let resolver = TestResolver::start(|request, _| {
        let mut response = response_to(request, ResponseCode::NXDomain);
        response.add_authority(soa("example.com.", 60, 60));
        vec![response]
    })
    .await;
    let (server, _tasks) = start_forwarding(&resolver).await;
    for _ in 0..3 {
        let response = ask(server, &question("x.example.com.")).await.unwrap();
        assert_eq!(response.metadata.response_code, ResponseCode::NXDomain);
        assert_eq!(response.authorities.len(), 1);
    }
    assert_eq!(resolver.requests().len(), 1);
}

#[tokio::test]
async fn requests_at_one_time_share_one_question() {
    let gate = CancellationToken::new();
    // A TTL of 0: nothing is cached.
    let resolver =
        TestResolver::start_gated(gate.clone(), |request, _| vec![addresses(request, 0, &[1])])
            .await;
    let (server, started) = start_forwarding(&resolver).await;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..50 {
        waiting.spawn(async move {
            let bytes = question("www.example.com.");
            ask(server, &bytes).await
        });
    }
    while started.server.forwarder.count_waiting() < waiting.len() {
        assert!(
            waiting.try_join_next().is_none(),
            "no request has a response yet"
        );
        tokio::task::yield_now().await;
    }
    gate.cancel();
    for response in waiting.join_all().await {
        assert_eq!(response.unwrap().answers.len(), 1);
    }
    assert_eq!(resolver.requests().len(), 1);
    ask(server, &question("www.example.com.")).await.unwrap();
    assert_eq!(resolver.requests().len(), 2);
}

#[tokio::test]
async fn large_answer_is_fetched_once_and_truncated_for_udp() {
    let resolver = TestResolver::start(|request, transport| {
        let mut response = response_to(request, ResponseCode::NoError);
        let name = request.queries[0].name();
        response.add_answers((0..20).map(|_| text(name, 200)));
        if transport == Transport::Udp {
            response.answers.clear();
            response.metadata.truncation = true;
        }
        vec![response]
    })
    .await;
    let (server, _tasks) = start_forwarding(&resolver).await;
    let mut large = request("big.example.com.", RecordType::TXT);
    for (payload, limit) in [(None, 512), (Some(4096), 1232), (Some(100), 512)] {
        large.edns = payload.map(|payload| {
            let mut edns = Edns::new();
            edns.set_max_payload(payload);
            edns
        });
        let bytes = large.to_vec().unwrap();
        let response = ask_raw([127, 0, 0, 1], server, &bytes, DEADLINE)
            .await
            .unwrap();
        assert!(response.len() <= limit, "{} of {limit}", response.len());
        assert!(Message::from_vec(&response).unwrap().metadata.truncation);
    }
    let complete = ask_tcp(server, &large).await.unwrap();
    assert!(complete.answers.len() == 20 && !complete.metadata.truncation);
    let transports: Vec<_> = resolver.requests().iter().map(|(t, _)| *t).collect();
    assert_eq!(transports, [Transport::Udp, Transport::Tcp]);
}

/// The answers to such requests are the largest: forged source addresses would amplify traffic.
#[tokio::test]
async fn any_is_answered_over_tcp_only() {
    let resolver = TestResolver::start(|request, _| vec![addresses(request, 60, &[1, 2])]).await;
    let (server, _tasks) = start_forwarding(&resolver).await;
    let any = request("example.com.", RecordType::ANY);
    let response = ask(server, &any.to_vec().unwrap()).await.unwrap();
    assert!(response.metadata.truncation && response.answers.is_empty());
    assert!(resolver.requests().is_empty());
    assert_eq!(ask_tcp(server, &any).await.unwrap().answers.len(), 2);
}

#[tokio::test]
async fn external_name_is_resolved_through_the_cache() {
    let resolver = TestResolver::start(|request, _| vec![addresses(request, 60, &[1])]).await;
    let (server, _tasks) = start_forwarding(&resolver).await;
    for _ in 0..2 {
        let response = ask(server, &question("out.ns.svc.cluster.local."))
            .await
            .unwrap();
        let kinds: Vec<_> = response.answers.iter().map(|r| r.record_type()).collect();
        assert_eq!(kinds, [RecordType::CNAME, RecordType::A]);
    }
    assert_eq!(resolver.requests().len(), 1);
}

#[tokio::test]
async fn malformed_requests_get_an_error_or_no_response() {
    let (server, _tasks) = start("127.0.0.0/8").await;
    let known = || request("w.ns.svc.cluster.local.", RecordType::A);
    let change = |change: &dyn Fn(&mut Message)| {
        let mut request = known();
        change(&mut request);
        request.to_vec().unwrap()
    };
    let records = |count: u8| {
        let name = Name::from_ascii("x.").unwrap();
        (0..count).map(move |n| crate::test_resolver::address(&name, 1, n))
    };
    let two = change(&|m| {
        m.add_query(m.queries[0].clone());
    });
    let mut looped = question("w.ns.svc.cluster.local.");
    // The name is a pointer to itself.
    looped.splice(12.., [0xc0, 12, 0, 1, 0, 1]);
    use ResponseCode::{BADVERS, FormErr, NotImp, Refused};
    for (case, bytes, expected) in [
        ("two questions", two, Some(FormErr)),
        ("no question", change(&|m| m.queries.clear()), Some(FormErr)),
        (
            "answers",
            change(&|m| {
                m.add_answers(records(2));
            }),
            Some(FormErr),
        ),
        (
            "many records",
            change(&|m| {
                m.add_additionals(records(3));
            }),
            Some(FormErr),
        ),
        (
            "update",
            change(&|m| m.metadata.op_code = OpCode::Update),
            Some(NotImp),
        ),
        (
            "version",
            change(&|m| {
                let mut edns = Edns::new();
                edns.set_version(1);
                m.set_edns(edns);
            }),
            Some(BADVERS),
        ),
        (
            "transfer",
            change(&|m| {
                m.queries[0].set_query_type(RecordType::AXFR);
            }),
            Some(Refused),
        ),
        (
            "response",
            change(&|m| m.metadata.message_type = MessageType::Response),
            None,
        ),
        ("short", vec![0, 1, 2], None),
        ("endless name", looped, None),
    ] {
        let patience = expected.map_or(SOON, |_| DEADLINE);
        let response = ask_from([127, 0, 0, 1], server, &bytes, patience).await;
        // As numbers: BADVERS and BADSIG are the same one.
        let code = response.map(|m| u16::from(m.metadata.response_code));
        assert_eq!(code, expected.map(u16::from), "{case}");
    }
    assert!(ask(server, &known().to_vec().unwrap()).await.is_some());
}

#[tokio::test]
async fn random_bytes_stop_nothing() {
    use rand::{Rng, SeedableRng};
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let mut random = rand::rngs::StdRng::seed_from_u64(seed);
    let (server, started) = start("127.0.0.0/8").await;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let valid = question("w.ns.svc.cluster.local.");
    for _ in 0..5000 {
        let mut bytes = valid.clone();
        for _ in 0..random.random_range(1..6) {
            let at = random.random_range(0..bytes.len());
            bytes[at] = random.random();
        }
        bytes.truncate(random.random_range(0..=bytes.len()));
        socket.send_to(&bytes, server).await.unwrap();
    }
    // Full socket buffers may have dropped a request.
    let answered = async { while is_ignored(server, &valid).await {} };
    assert!(timeout(DEADLINE, answered).await.is_ok());
    assert_eq!(started.tasks.failure(), None);
}

#[tokio::test]
async fn connection_ends_after_its_requests_or_with_a_large_one() {
    let (server, _tasks) = start("127.0.0.0/8").await;
    let mut stream = connect([127, 0, 0, 1], server).await;
    let mut answered = 0;
    while let Some(length) = ask_over(&mut stream).await {
        let mut rest = vec![0; usize::from(length)];
        stream.read_exact(&mut rest).await.unwrap();
        answered += 1;
    }
    assert_eq!(answered, MAX_CONNECTION_REQUESTS);
    let mut stream = connect([127, 0, 0, 1], server).await;
    let length = u16::try_from(MAX_REQUEST + 1).unwrap();
    stream.write_all(&length.to_be_bytes()).await.unwrap();
    let closed = timeout(DEADLINE, stream.read_u16()).await.unwrap();
    assert!(closed.is_err());
}

/// Returns a page of the health server.
async fn fetch(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).await.unwrap();
    page
}

#[tokio::test]
async fn metrics_have_the_names_and_labels_of_coredns() {
    let resolver = TestResolver::start(|request, _| vec![addresses(request, 60, &[1])]).await;
    let started = start_server("127.0.0.0/8", vec![resolver.address], Vec::new()).await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let health = listener.local_addr().unwrap();
    let client = client::Client::new(client::Config::builder("https://127.0.0.1:1"));
    crate::health::serve_health(listener, &client, &started.server, &started.tasks);
    for (name, kind) in [
        ("www.example.com.", RecordType::A),
        ("www.example.com.", RecordType::A),
        ("x.ns.svc.cluster.local.", RecordType::AAAA),
        ("w.ns.svc.cluster.local.", RecordType::Unknown(12345)),
        ("w.ns.svc.cluster.local.", RecordType::AXFR),
    ] {
        let bytes = request(name, kind).to_vec().unwrap();
        ask(started.address, &bytes).await.unwrap();
    }
    let known = request("w.ns.svc.cluster.local.", RecordType::A);
    ask_tcp(started.address, &known).await.unwrap();
    ask(
        started.address,
        &question("planted-panic.svc.cluster.local."),
    )
    .await;
    let page = fetch(health, "/metrics").await;
    let server = "server=\"dns://127.0.0.1:53\",view=\"\"";
    for line in [
        format!(
            "coredns_dns_requests_total{{{server},zone=\".\",proto=\"udp\",family=\"1\",type=\"A\"}} 2"
        ),
        format!(
            "coredns_dns_requests_total{{{server},zone=\".\",proto=\"tcp\",family=\"1\",type=\"A\"}} 1"
        ),
        format!(
            "coredns_dns_requests_total{{{server},zone=\".\",proto=\"udp\",family=\"1\",type=\"other\"}} 1"
        ),
        format!(
            "coredns_dns_responses_total{{{server},zone=\".\",rcode=\"NXDOMAIN\",plugin=\"kubernetes\"}} 1"
        ),
        format!(
            "coredns_dns_responses_total{{{server},zone=\".\",rcode=\"NOERROR\",plugin=\"cache\"}} 1"
        ),
        format!(
            "coredns_dns_responses_total{{{server},zone=\".\",rcode=\"NOERROR\",plugin=\"forward\"}} 1"
        ),
        format!(
            "coredns_dns_responses_total{{{server},zone=\".\",rcode=\"REFUSED\",plugin=\"\"}} 1"
        ),
        format!("coredns_dns_request_duration_seconds_count{{{server},zone=\".\"}} 6"),
        format!("coredns_cache_entries{{{server},type=\"success\",zones=\".\"}} 1"),
        format!("coredns_cache_hits_total{{{server},type=\"success\",zones=\".\"}} 1"),
        format!("coredns_cache_requests_total{{{server},zones=\".\"}} 2"),
        format!("coredns_cache_misses_total{{{server},zones=\".\"}} 1"),
        format!(
            "coredns_proxy_request_duration_seconds_count{{proxy_name=\"forward\",to=\"{}\",rcode=\"NOERROR\"}} 1",
            resolver.address
        ),
        "coredns_forward_max_concurrent_rejects_total 0".to_owned(),
        "coredns_panics_total 1".to_owned(),
        "# TYPE process_resident_memory_bytes gauge".to_owned(),
    ] {
        assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
    }
}

#[tokio::test]
async fn names_of_stub_domains_reach_their_resolvers_only() {
    let start = |last| TestResolver::start(move |request, _| vec![addresses(request, 60, &[last])]);
    let (outer, corp, deep) = (start(1).await, start(2).await, start(3).await);
    let silent = TestResolver::start(|_, _| Vec::new()).await;
    let stub = |domain: &str, resolver: &TestResolver| {
        format!("{domain}={}", resolver.address).parse().unwrap()
    };
    let stubs = vec![
        stub("corp", &corp),
        stub("deep.corp", &deep),
        // Shorter than the cluster's domain, which comes first.
        stub("local", &corp),
        stub("down", &silent),
    ];
    let started = start_server("127.0.0.0/8", vec![outer.address], stubs).await;
    for (name, expected) in [
        ("a.corp.", Some("192.0.2.2")),
        ("corp.", Some("192.0.2.2")),
        ("A.Deep.Corp.", Some("192.0.2.3")),
        ("acorp.", Some("192.0.2.1")),
        ("printer.local.", Some("192.0.2.2")),
        ("w.ns.svc.cluster.local.", Some("10.96.0.7")),
        ("x.ns.svc.cluster.local.", None),
    ] {
        let response = ask(started.address, &question(name)).await.unwrap();
        let found = response
            .answers
            .first()
            .map(|record| record.data.to_string());
        assert_eq!(found.as_deref(), expected, "{name}");
    }
    let response = ask(started.address, &question("a.down.")).await;
    assert_eq!(
        response.unwrap().metadata.response_code,
        ResponseCode::ServFail
    );
    let names: Vec<_> = outer
        .requests()
        .iter()
        .map(|(_, m)| m.queries[0].name().to_ascii())
        .collect();
    assert_eq!(names, ["acorp."]);
    let page = started.server.write_metrics();
    for (zone, count) in [("corp.", 2), ("deep.corp.", 1), ("local.", 1), (".", 3)] {
        let rest = "proto=\"udp\",family=\"1\",type=\"A\"";
        let line = format!("zone=\"{zone}\",{rest}}} {count}");
        assert!(page.contains(&line), "{line} in\n{page}");
    }
}
