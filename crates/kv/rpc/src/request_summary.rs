//! Formats requests and responses for log lines: keys and sizes, never values.

use crate::method::Method;
use bytes::Bytes;
use kv_transport::PREFIX;
use prost::Message;
use proto_etcd::etcdserverpb::request_op::Request as Op;
use proto_etcd::etcdserverpb::{
    DeleteRangeRequest, PutRequest, RangeRequest, RangeResponse, RequestOp, TxnRequest,
};
use std::fmt::Write;

/// Maximum number of bytes of a key in a log line.
const KEY: usize = 128;
/// Maximum number of operations of a branch in a log line.
const OPS: usize = 4;

/// Formats a request with its size and that of the response.
pub(crate) fn summarize_call(method: Method, request: &Bytes, answer: Option<&Bytes>) -> String {
    let text = match method {
        Method::Range => {
            RangeRequest::decode(request.clone()).map(|request| summarize_range(&request))
        }
        Method::Put => PutRequest::decode(request.clone()).map(|request| summarize_put(&request)),
        Method::DeleteRange => {
            DeleteRangeRequest::decode(request.clone()).map(|request| summarize_delete(&request))
        }
        Method::Txn => TxnRequest::decode(request.clone()).map(|request| summarize_txn(&request)),
    };
    let text = text.unwrap_or_else(|_| "not a request".to_owned());
    let (size, answer_size) = (
        request.len(),
        answer.map_or(0, |answer| answer.len().saturating_sub(PREFIX)),
    );
    let found = answer.filter(|_| method == Method::Range && answer_size > 0);
    let found = found.and_then(|answer| RangeResponse::decode(answer.slice(PREFIX..)).ok());
    let found = found.map_or(String::new(), |found| {
        format!(" with {} of {} keys", found.kvs.len(), found.count)
    });
    format!("{text}; {size} bytes, answer {answer_size} bytes{found}")
}

fn format_key(key: &[u8], end: &[u8]) -> String {
    let shown = |key: &[u8]| {
        let more = if key.len() > KEY { "..." } else { "" };
        // Escaped: a key may contain line breaks and terminal codes.
        format!("\"{}{more}\"", key.get(..KEY).unwrap_or(key).escape_ascii())
    };
    if end.is_empty() {
        shown(key)
    } else {
        format!("{}..{}", shown(key), shown(end))
    }
}

fn summarize_range(request: &RangeRequest) -> String {
    let mut text = format!("range {}", format_key(&request.key, &request.range_end));
    let numbers = [("limit", request.limit), ("revision", request.revision)];
    for (name, number) in numbers.into_iter().filter(|(_, number)| *number != 0) {
        // Writing to a string can't fail.
        let _ = write!(text, " {name} {number}");
    }
    let flags = [
        ("serializable", request.serializable),
        ("keys only", request.keys_only),
        ("count only", request.count_only),
    ];
    for (name, _) in flags.into_iter().filter(|(_, set)| *set) {
        let _ = write!(text, " {name}");
    }
    text
}

fn summarize_put(request: &PutRequest) -> String {
    format!(
        "put {} of {} bytes",
        format_key(&request.key, b""),
        request.value.len()
    )
}

fn summarize_delete(request: &DeleteRangeRequest) -> String {
    format!("delete {}", format_key(&request.key, &request.range_end))
}

fn summarize_txn(request: &TxnRequest) -> String {
    let compares = request
        .compare
        .iter()
        .take(OPS)
        .map(|compare| format_key(&compare.key, &compare.range_end));
    let compares = join_shortened(compares.collect(), request.compare.len());
    format!(
        "txn if [{compares}] then [{}] else [{}]",
        summarize_branch(&request.success),
        summarize_branch(&request.failure)
    )
}

fn summarize_branch(ops: &[RequestOp]) -> String {
    let shown = ops.iter().take(OPS).map(|op| match &op.request {
        Some(Op::RequestRange(request)) => summarize_range(request),
        Some(Op::RequestPut(request)) => summarize_put(request),
        Some(Op::RequestDeleteRange(request)) => summarize_delete(request),
        Some(Op::RequestTxn(nested)) => {
            format!(
                "txn of {} comparisons, {} or {} operations",
                nested.compare.len(),
                nested.success.len(),
                nested.failure.len()
            )
        }
        None => "nothing".to_owned(),
    });
    join_shortened(shown.collect(), ops.len())
}

fn join_shortened(shown: Vec<String>, count: usize) -> String {
    let more = if count > shown.len() {
        format!(", and {} more", count - shown.len())
    } else {
        String::new()
    };
    format!("{}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_has_keys_and_sizes_but_no_values() {
        let put = PutRequest {
            key: "a\n".into(),
            value: "secret".into(),
            ..PutRequest::default()
        };
        let summary = summarize_call(Method::Put, &put.encode_to_vec().into(), None);
        assert_eq!(summary, "put \"a\\n\" of 6 bytes; 12 bytes, answer 0 bytes");
        let op = RequestOp {
            request: Some(Op::RequestPut(put)),
        };
        let txn = TxnRequest {
            success: vec![op; 6],
            ..TxnRequest::default()
        };
        let summary = summarize_call(Method::Txn, &txn.encode_to_vec().into(), None);
        assert!(
            summary.contains("txn if [] then [put \"a\\n\" of 6 bytes, ")
                && summary.contains(", and 2 more] else []"),
            "{summary}"
        );
        assert!(!summary.contains("secret"));
        let range = RangeRequest {
            key: vec![b'k'; 200].into(),
            range_end: "l".into(),
            limit: 3,
            ..Default::default()
        };
        let answer = RangeResponse {
            count: 7,
            kvs: vec![Default::default()],
            ..Default::default()
        };
        let summary = summarize_call(
            Method::Range,
            &range.encode_to_vec().into(),
            Some(&kv_transport::frame_message(&answer)),
        );
        assert!(
            summary.contains("kkk...\"..\"l\" limit 3;") && summary.ends_with("with 1 of 7 keys"),
            "{summary}"
        );
    }

    #[test]
    fn summary_names_what_a_range_is_restricted_to() {
        let range = |request: RangeRequest| {
            summarize_call(Method::Range, &request.encode_to_vec().into(), None)
        };
        let key = || RangeRequest {
            key: "k".into(),
            ..RangeRequest::default()
        };
        for (request, expect) in [
            (key(), "range \"k\";"),
            (
                RangeRequest {
                    revision: 7,
                    serializable: true,
                    ..key()
                },
                "range \"k\" revision 7 serializable;",
            ),
            (
                RangeRequest {
                    keys_only: true,
                    count_only: true,
                    ..key()
                },
                "range \"k\" keys only count only;",
            ),
        ] {
            let summary = range(request);
            assert!(summary.starts_with(expect), "{summary}");
        }
    }

    #[test]
    fn summary_of_bytes_that_are_no_request_has_their_size() {
        let summary = summarize_call(Method::Put, &Bytes::from_static(b"\x0a\x05a"), None);
        assert_eq!(summary, "not a request; 3 bytes, answer 0 bytes");
    }

    #[test]
    fn summary_of_a_deletion_has_its_range() {
        let delete = DeleteRangeRequest {
            key: "a".into(),
            range_end: "b".into(),
            ..DeleteRangeRequest::default()
        };
        let summary = summarize_call(Method::DeleteRange, &delete.encode_to_vec().into(), None);
        assert!(summary.starts_with("delete \"a\"..\"b\";"), "{summary}");
    }
}
