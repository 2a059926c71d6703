#![allow(clippy::unwrap_used)]
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::TXT;
use hickory_proto::rr::{RData, Record, RecordType};

use super::*;
use crate::test_resolver::{address, name, response_to, soa, text};

const MAX_TTL: Duration = Duration::from_secs(30);
const POD: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

fn question(owner: &str) -> (Question, Message) {
    let mut request = Message::new(7, MessageType::Query, OpCode::Query);
    request.add_query(Query::query(name(owner), RecordType::A));
    (Question::from_request(&request).unwrap(), request)
}

fn insert(cache: &AnswerCache, client: IpAddr, owner: &str, response: Message, now: Instant) {
    let question = question(owner).0;
    let answer = ForwardedAnswer::from_response(&question, response, Some(MAX_TTL), now);
    cache.insert(client, question, Arc::new(answer), now);
}

fn success(owner: &str) -> Message {
    let mut response = response_to(&question(owner).1, ResponseCode::NoError);
    response.add_answer(address(&name(owner), 60, 1));
    response
}

fn denial(owner: &str) -> Message {
    let mut response = response_to(&question(owner).1, ResponseCode::NXDomain);
    response.add_authority(soa(".", 60, 60));
    response
}

#[test]
fn answer_is_found_until_its_lifetime_ends() {
    let cache = AnswerCache::new(MAX_TTL);
    let now = Instant::now();
    insert(&cache, POD, "a.example.", success("a.example."), now);
    let found = |question: &Question, age| {
        let now = now + Duration::from_secs(age);
        cache.get(question, now).is_some()
    };
    let asked = question("A.Example.").0;
    assert!(found(&asked, 0) && found(&asked, 29) && !found(&asked, 30));
    let mut signed = asked.clone();
    signed.dnssec_ok = true;
    assert!(!found(&signed, 0), "the answer has no signatures");
    assert_eq!(
        (cache.requests(), cache.figures(Outcome::Success).hits),
        (4, 2)
    );
}

#[test]
fn newer_answer_replaces_one_of_the_other_outcome() {
    let cache = AnswerCache::new(MAX_TTL);
    let now = Instant::now();
    let code = || cache.get(&question("a.example.").0, now).unwrap().code;
    insert(&cache, POD, "a.example.", denial("a.example."), now);
    assert_eq!(code(), ResponseCode::NXDomain);
    insert(&cache, POD, "a.example.", success("a.example."), now);
    assert_eq!(code(), ResponseCode::NoError);
    insert(&cache, POD, "a.example.", denial("a.example."), now);
    assert_eq!(code(), ResponseCode::NXDomain);
    assert_eq!(cache.figures(Outcome::Success).entries, 0);
}

#[test]
fn memory_is_bounded_and_answers_in_use_stay() {
    let cache = AnswerCache::new(MAX_TTL);
    let now = Instant::now();
    insert(&cache, POD, "used.example.", success("used.example."), now);
    let used = question("used.example.").0;
    for n in 0..60_000_u32 {
        let owner = format!("n{n}.example.");
        // Of many clients: the share of one is smaller than the cache.
        let client = IpAddr::from(((10 << 24) | (n % 1000)).to_be_bytes());
        insert(&cache, client, &owner, success(&owner), now);
        if n % 100 == 0 {
            assert!(cache.get(&used, now).is_some(), "evicted after {n} names");
        }
    }
    let figures = cache.figures(Outcome::Success);
    assert!(figures.evictions > 20_000, "{figures:?}");
    assert!(cache.success.answers.weight() <= SUCCESS_BYTES);
}

#[test]
fn one_client_cannot_fill_the_cache() {
    let cache = AnswerCache::new(MAX_TTL);
    let now = Instant::now();
    let fill = |client, prefix: &str, now| {
        for n in 0..10_000 {
            let owner = format!("{prefix}{n}.example.");
            insert(&cache, client, &owner, success(&owner), now);
        }
        cache.success.answers.weight()
    };
    let first = fill(POD, "a", now);
    assert!(first <= Shares::BYTES, "{first}");
    let other = IpAddr::from([10, 0, 0, 2]);
    assert!(
        fill(other, "b", now) > first,
        "another client has its own share"
    );
    // Renewed answers are not counted again.
    let renewed = success("b1.example.");
    let soon = now + Duration::from_secs(29);
    insert(&cache, other, "b1.example.", renewed, soon);
    let asked = question("b1.example.").0;
    assert!(cache.get(&asked, soon + Duration::from_secs(20)).is_some());
    let later = now + Shares::MIN_PERIOD;
    let before = cache.success.answers.weight();
    assert!(
        fill(POD, "c", later) > before,
        "the share is one of a period"
    );
}

/// A pod in the node's network can send from each of 16 million addresses.
#[test]
fn loopback_addresses_have_one_share_of_the_cache() {
    let cache = AnswerCache::new(MAX_TTL);
    let now = Instant::now();
    for n in 0..20_000_u32 {
        let owner = format!("n{n}.example.");
        let client = IpAddr::from(((127 << 24) | n).to_be_bytes());
        insert(&cache, client, &owner, success(&owner), now);
    }
    let weight = cache.success.answers.weight();
    assert!(weight <= Shares::BYTES, "{weight}");
}

/// A tenant may control the zone, and with it the size of each answer.
#[test]
fn growing_renewals_are_counted_for_the_share_of_a_client() {
    let cache = AnswerCache::new(MAX_TTL);
    let now = Instant::now();
    for round in 0..2_u8 {
        for n in 0..1_500 {
            let owner = format!("a{n}.example.");
            let mut response = success(&owner);
            let more = (0..40 * round).map(|n| address(&name(&owner), 60, n));
            response.add_answers(more);
            insert(&cache, POD, &owner, response, now);
        }
        let weight = cache.success.answers.weight();
        assert!(weight <= Shares::BYTES, "round {round}: {weight}");
    }
    assert_eq!(cache.figures(Outcome::Success).evictions, 0);
}

/// Each string of a TXT record has an allocation of its own, however short it is.
#[test]
fn short_strings_are_weighed_by_their_memory() {
    let cache = AnswerCache::new(MAX_TTL);
    let now = Instant::now();
    let mut request = Message::new(7, MessageType::Query, OpCode::Query);
    request.add_query(Query::query(name("a.example."), RecordType::TXT));
    let asked = Question::from_request(&request).unwrap();
    let answer = |strings: usize| {
        let mut response = response_to(&request, ResponseCode::NoError);
        let texts = TXT::new(vec!["x".to_owned(); strings]);
        let record = Record::from_rdata(name("a.example."), 60, RData::TXT(texts));
        response.add_answer(record);
        ForwardedAnswer::from_response(&asked, response, Some(MAX_TTL), now)
    };
    assert!(answer(400).estimate_memory() > 400 * 48);
    cache.insert(POD, asked.clone(), Arc::new(answer(400)), now);
    assert!(cache.get(&asked, now).is_none(), "as large as a long text");
    cache.insert(POD, asked.clone(), Arc::new(answer(30)), now);
    assert!(cache.get(&asked, now).is_some());
}

#[test]
fn names_that_do_not_exist_evict_no_answers() {
    let cache = AnswerCache::new(MAX_TTL);
    let now = Instant::now();
    insert(&cache, POD, "a.example.", success("a.example."), now);
    for n in 0..30_000_u32 {
        let owner = format!("n{n}.example.");
        let client = IpAddr::from(((10 << 24) | (n % 1000)).to_be_bytes());
        insert(&cache, client, &owner, denial(&owner), now);
    }
    assert!(cache.get(&question("a.example.").0, now).is_some());
    assert_eq!(cache.figures(Outcome::Success).evictions, 0);
    assert!(cache.denial.answers.weight() <= DENIAL_BYTES);
}

#[test]
fn huge_answer_is_not_cached() {
    let cache = AnswerCache::new(MAX_TTL);
    let now = Instant::now();
    let owner = "a.example.";
    let mut response = success(owner);
    response.add_answers((0..=255).map(|n| address(&name(owner), 60, n)));
    insert(&cache, POD, owner, response, now);
    assert!(cache.get(&question(owner).0, now).is_none());
    // Records that were not asked for do not count.
    let mut response = success(owner);
    response.add_answers((0..300).map(|_| text(&name(owner), 250)));
    insert(&cache, POD, owner, response, now);
    assert!(cache.get(&question(owner).0, now).is_some());
}
