//! Who may ask a member what on its peer port.

use crate::member::Member;
use bytes::Bytes;
use kv_raft::{Node, PeerTls};

/// Who is in the cluster.
const MEMBERS: u32 = 3;

#[tokio::test]
async fn a_stranger_may_ask_for_the_members_only() {
    let member = Member::start(&[]).await;
    let url = format!("http://127.0.0.1:{}", member.peer);
    let ask = |kind| Node::ask_url(&url, PeerTls::default(), kind, Bytes::from_static(&[0; 8]));
    assert!(ask(MEMBERS).await.unwrap().is_some());
    for kind in (0..8).filter(|kind| *kind != MEMBERS) {
        let refused = ask(kind).await.expect_err("it is no member").to_string();
        assert!(refused.contains("not a call from a member"), "{kind}: {refused}");
    }
    member.stop().await;
}
