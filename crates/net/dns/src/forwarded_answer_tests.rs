#![allow(clippy::unwrap_used)]
use hickory_proto::op::{MessageType, OpCode, Query};

use super::*;
use crate::reply::empty_response;
use crate::test_resolver::{address, alias, name, response_to, soa, text};

fn request(owner: &str) -> Message {
    let mut request = Message::new(7, MessageType::Query, OpCode::Query);
    request.add_query(Query::query(name(owner), RecordType::A));
    request
}

fn answer_of(
    code: ResponseCode,
    answers: Vec<Record>,
    authorities: Vec<Record>,
) -> ForwardedAnswer {
    let request = request("www.example.com.");
    let mut response = response_to(&request, code);
    response.answers = answers;
    response.authorities = authorities;
    let question = Question::from_request(&request).unwrap();
    let cap = Some(Duration::from_secs(30));
    ForwardedAnswer::from_response(&question, response, cap, Instant::now())
}

#[test]
fn lifetime_follows_the_records_and_the_response_code() {
    use ResponseCode::{BADVERS, NXDomain, NoError, Refused, ServFail};
    let www = name("www.example.com.");
    let a = |ttl| vec![address(&www, ttl, 1)];
    let soa_of = |ttl, minimum| vec![soa("example.com.", ttl, minimum)];
    let half = || vec![alias("www.example.com.", "cdn.example.net.", 9)];
    let whole = || [half(), vec![address(&name("cdn.example.net."), 20, 1)]].concat();
    for (case, code, answers, authorities, seconds, outcome) in [
        ("long TTL", NoError, a(3600), vec![], 30, Outcome::Success),
        ("short TTL", NoError, a(7), vec![], 7, Outcome::Success),
        ("TTL 0", NoError, a(0), vec![], 0, Outcome::Success),
        ("alias", NoError, whole(), vec![], 9, Outcome::Success),
        ("alias alone", NoError, half(), vec![], 0, Outcome::Denial),
        (
            "SOA of another zone",
            NXDomain,
            vec![],
            vec![soa("example.org.", 9, 9)],
            0,
            Outcome::Denial,
        ),
        (
            "no data",
            NoError,
            vec![],
            soa_of(3600, 3600),
            30,
            Outcome::Denial,
        ),
        (
            "no name, SOA minimum",
            NXDomain,
            vec![],
            soa_of(3600, 8),
            8,
            Outcome::Denial,
        ),
        (
            "no name, SOA TTL",
            NXDomain,
            vec![],
            soa_of(6, 3600),
            6,
            Outcome::Denial,
        ),
        (
            "no name without SOA",
            NXDomain,
            vec![],
            vec![],
            0,
            Outcome::Denial,
        ),
        ("extended code", BADVERS, vec![], vec![], 5, Outcome::Denial),
        ("failure", ServFail, vec![], vec![], 5, Outcome::Denial),
        ("refused", Refused, vec![], vec![], 0, Outcome::Denial),
    ] {
        let answer = answer_of(code, answers, authorities);
        assert_eq!(answer.lifetime, Duration::from_secs(seconds), "{case}");
        assert_eq!(answer.outcome, outcome, "{case}");
        assert_eq!(answer.code.high(), 0, "{case}");
    }
}

#[test]
fn truncated_response_is_not_cached() {
    let request = request("www.example.com.");
    let mut response = response_to(&request, ResponseCode::NoError);
    response.metadata.truncation = true;
    response.add_answer(address(&name("www.example.com."), 60, 1));
    let question = Question::from_request(&request).unwrap();
    let answer = ForwardedAnswer::from_response(&question, response, None, Instant::now());
    assert_eq!(answer.lifetime, Duration::ZERO);
}

/// A resolver, or a packet that pretends to be its, may add records of any name.
#[test]
fn only_records_of_the_requested_name_are_kept() {
    let www = name("www.example.com.");
    let bank = name("bank.example.");
    let mut ns = address(&bank, 60, 66);
    ns.name = name("com.");
    let answer = answer_of(
        ResponseCode::NoError,
        vec![
            alias("www.example.com.", "b.example.", 60),
            alias("b.example.", "c.example.", 60),
            // A loop has no end.
            alias("c.example.", "www.example.com.", 60),
            address(&name("c.example."), 60, 1),
            address(&bank, 60, 66),
            alias("bank.example.", "attacker.example.", 60),
            text(&www, 10),
        ],
        vec![soa("bank.example.", 60, 60), ns],
    );
    let mut response = empty_response(&request("www.example.com."), ResponseCode::NoError);
    answer.write_to(&request("www.example.com."), &mut response, Instant::now());
    let owners: Vec<_> = response.answers.iter().map(|r| r.name.to_ascii()).collect();
    let expected = ["www.example.com.", "b.example.", "c.example.", "c.example."];
    assert_eq!(owners, expected);
    assert!(response.authorities.is_empty() && response.additionals.is_empty());
}

#[test]
fn ttls_count_down_until_the_answer_is_stale() {
    let answer = answer_of(
        ResponseCode::NoError,
        vec![address(&name("www.example.com."), 3600, 1)],
        vec![],
    );
    let request = request("www.example.com.");
    for (age, fresh, ttl) in [(0, true, 30), (1, true, 29), (29, true, 1), (30, false, 0)] {
        let now = answer.received + Duration::from_secs(age);
        let mut response = empty_response(&request, ResponseCode::NoError);
        answer.write_to(&request, &mut response, now);
        assert_eq!(answer.is_fresh(now), fresh, "after {age} s");
        assert_eq!(response.answers[0].ttl, ttl, "after {age} s");
    }
}

#[test]
fn authentic_data_is_shown_to_clients_that_know_the_bit() {
    let question = Question::from_request(&request("www.example.com.")).unwrap();
    let mut response = response_to(&request("www.example.com."), ResponseCode::NoError);
    response.metadata.authentic_data = true;
    let answer = ForwardedAnswer::from_response(&question, response, None, Instant::now());
    for (asks, expected) in [(false, false), (true, true)] {
        let mut request = request("www.example.com.");
        request.metadata.authentic_data = asks;
        let mut response = empty_response(&request, ResponseCode::NoError);
        answer.write_to(&request, &mut response, Instant::now());
        assert_eq!(response.metadata.authentic_data, expected);
    }
}
