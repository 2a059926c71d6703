#![allow(clippy::unwrap_used)]
use hickory_proto::op::{MessageType, OpCode, Query};
use hickory_proto::rr::RecordType;
use nix::net::if_::if_nametoindex;

use super::*;
use crate::reply::Transport;
use crate::test_resolver::{TestResolver, address, addresses, name, response_to};

#[test]
fn name_servers_of_a_resolv_conf_are_parsed() {
    let scoped = format!("[fe80::1%{}]:53", if_nametoindex("lo").unwrap());
    for (text, expect) in [
        (
            "# x\nsearch a.b\nnameserver 192.0.2.1\noptions ndots:1\n",
            "192.0.2.1:53",
        ),
        (" nameserver\t192.0.2.1 # x\n", "192.0.2.1:53"),
        ("nameserver 2001:db8::1\n", "[2001:db8::1]:53"),
        // The scope of a link-local address is a part of it.
        ("nameserver fe80::1%lo\n", scoped.as_str()),
        ("nameserver fe80::1%7\n", "[fe80::1%7]:53"),
        ("nameserver fe80::1%missing\n", ""),
        ("nameserver fe80::1\n", "[fe80::1]:53"),
        ("nameserver 2001:db8::1%lo\n", "[2001:db8::1]:53"),
        ("nameserver 192.0.2.1%lo\n", ""),
        (
            "nameservers 192.0.2.1\nnameserver192.0.2.1\nnameserver\n",
            "",
        ),
        (
            "nameserver 192.0.2.1\nnameserver 192.0.2.2\nnameserver x\nnameserver 192.0.2.3\n\
             nameserver 192.0.2.4\n",
            "192.0.2.1:53 192.0.2.2:53 192.0.2.3:53",
        ),
    ] {
        let found = parse_name_servers(text);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found.join(" "), expect, "{text}");
    }
}

fn question() -> Question {
    let mut request = Message::new(1, MessageType::Query, OpCode::Query);
    request.add_query(Query::query(name("www.example.com."), RecordType::A));
    Question::from_request(&request).unwrap()
}

fn own() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 53))
}

async fn ask(servers: Vec<SocketAddr>) -> Option<Message> {
    Upstreams::new(servers, own(), &mut Resolvers::new())
        .ask(&question())
        .await
}

async fn closed_port() -> SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    socket.local_addr().unwrap()
}

/// A packet that does not fit the request may come from an attacker who guesses.
#[tokio::test]
async fn forged_responses_are_ignored() {
    let resolver = TestResolver::start(|request, _| {
        let forge = |change: &dyn Fn(&mut Message)| {
            let mut forged = addresses(request, 60, &[66]);
            change(&mut forged);
            forged
        };
        vec![
            forge(&|m| m.metadata.id ^= 1),
            forge(&|m| m.metadata.message_type = MessageType::Query),
            forge(&|m| m.metadata.op_code = OpCode::Update),
            forge(&|m| m.queries.clear()),
            forge(&|m| {
                m.queries[0].set_name(name("bank.example."));
            }),
            forge(&|m| {
                m.queries[0].set_query_type(RecordType::AAAA);
            }),
            addresses(request, 60, &[1]),
        ]
    })
    .await;
    let response = ask(vec![resolver.address]).await.unwrap();
    assert_eq!(
        response.answers,
        [address(&name("www.example.com."), 60, 1)]
    );
}

#[tokio::test]
async fn requests_have_random_ids_and_no_option_of_clients() {
    let resolver = TestResolver::start(|request, _| vec![addresses(request, 60, &[1])]).await;
    for _ in 0..8 {
        ask(vec![resolver.address]).await.unwrap();
    }
    let requests = resolver.requests();
    let mut ids: Vec<_> = requests.iter().map(|(_, m)| m.metadata.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert!(ids.len() > 6, "{ids:?}");
    let edns = requests[0].1.edns.clone().unwrap();
    assert!(edns.options().options.is_empty());
}

#[tokio::test]
async fn next_resolver_is_used_if_one_does_not_listen() {
    let resolver = TestResolver::start(|request, _| vec![addresses(request, 60, &[1])]).await;
    assert!(
        ask(vec![closed_port().await, resolver.address])
            .await
            .is_some()
    );
}

/// A pod can ask for a name whose servers are silent; the order of the resolvers is that of the
/// administrator.
#[tokio::test]
async fn resolver_is_passed_over_after_three_failures_in_a_row() {
    let silent = TestResolver::start(|_, _| Vec::new()).await;
    let resolver = TestResolver::start(|request, _| vec![addresses(request, 60, &[1])]).await;
    let upstreams = Upstreams::new(
        vec![silent.address, resolver.address],
        own(),
        &mut Resolvers::new(),
    );
    for _ in 0..5 {
        upstreams.ask(&question()).await.unwrap();
    }
    assert_eq!((silent.requests().len(), resolver.requests().len()), (3, 5));
}

#[test]
fn resolver_is_up_again_after_a_response_or_some_seconds() {
    let mut known = Resolvers::new();
    let upstreams = Upstreams::new(
        vec![SocketAddr::from(([192, 0, 2, 1], 53))],
        own(),
        &mut known,
    );
    let resolver = &upstreams.servers[0];
    let fail = |count| (0..count).for_each(|_| resolver.record_failure(Instant::now()));
    fail(2);
    assert!(!resolver.is_down(Instant::now()));
    fail(1);
    assert!(resolver.is_down(Instant::now()));
    assert!(!resolver.is_down(Instant::now() + DOWN_TIME));
    resolver.failures.lock().count = 0;
    assert!(!resolver.is_down(Instant::now()));
}

#[tokio::test]
async fn failure_of_a_resolver_is_returned_if_no_other_one_has_an_answer() {
    let failing = |code| TestResolver::start(move |request, _| vec![response_to(request, code)]);
    let (refusing, broken) = (
        failing(ResponseCode::Refused).await,
        failing(ResponseCode::ServFail).await,
    );
    let working = TestResolver::start(|request, _| vec![addresses(request, 60, &[1])]).await;
    let code = async |servers| ask(servers).await.unwrap().metadata.response_code;
    let servers = vec![refusing.address, broken.address];
    assert_eq!(code(servers.clone()).await, ResponseCode::Refused);
    let all = [servers, vec![working.address]].concat();
    assert_eq!(code(all).await, ResponseCode::NoError);
    assert_eq!(
        (refusing.requests().len(), working.requests().len()),
        (2, 1)
    );
}

#[tokio::test]
async fn resolver_without_edns_is_asked_again_without() {
    let resolver = TestResolver::start(|request, _| {
        vec![if request.edns.is_some() {
            response_to(request, ResponseCode::FormErr)
        } else {
            addresses(request, 60, &[1])
        }]
    })
    .await;
    let response = ask(vec![resolver.address]).await.unwrap();
    assert_eq!(response.answers.len(), 1);
}

#[tokio::test]
async fn truncated_response_is_completed_over_tcp() {
    let truncate = |request: &Message, transport| {
        let mut response = addresses(request, 60, &[1, 2, 3]);
        if transport == Transport::Udp {
            response.answers.clear();
            response.metadata.truncation = true;
        }
        vec![response]
    };
    let resolver = TestResolver::start(truncate).await;
    let response = ask(vec![resolver.address]).await.unwrap();
    assert!(response.answers.len() == 3 && !response.metadata.truncation);
    // A forged one over TCP is not used; the truncated response sends the client to TCP.
    let forged = TestResolver::start(move |request, transport| {
        let mut responses = truncate(request, transport);
        if transport == Transport::Tcp {
            responses[0].queries[0].set_name(name("bank.example."));
        }
        responses
    })
    .await;
    let response = ask(vec![forged.address]).await.unwrap();
    assert!(response.answers.is_empty() && response.metadata.truncation);
}

#[test]
fn own_address_is_no_upstream() {
    let any = SocketAddr::from(([0, 0, 0, 0], 53));
    let other = SocketAddr::from(([127, 0, 0, 1], 5353));
    for (case, servers, own, kept) in [
        ("the same", vec![own(), other], own(), 1),
        ("loopback, all addresses", vec![own(), other], any, 1),
        (
            "another host",
            vec![SocketAddr::from(([192, 0, 2, 1], 53))],
            any,
            1,
        ),
    ] {
        assert_eq!(
            Upstreams::new(servers, own, &mut Resolvers::new())
                .servers
                .len(),
            kept,
            "{case}"
        );
    }
}

/// Firewalls often drop packets of TCP: the port does not even reject a connection.
#[tokio::test]
async fn truncated_response_is_used_if_the_connection_hangs() {
    let resolver = TestResolver::start(|request, transport| {
        let mut response = addresses(request, 60, &[1]);
        response.metadata.truncation = true;
        match transport {
            Transport::Udp => vec![response],
            Transport::Tcp => Vec::new(),
        }
    })
    .await;
    let response = ask(vec![resolver.address]).await.unwrap();
    assert!(response.answers.len() == 1 && response.metadata.truncation);
    assert_eq!(resolver.requests().len(), 2);
}
