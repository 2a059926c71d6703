#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;

fn check(format: &str, good: &[&str], bad: &[&str]) {
    let known = StringFormat::for_type(format, "string").unwrap();
    for text in good {
        assert!(known.matches(text), "{format} accepts {text:?}");
    }
    for text in bad {
        assert!(!known.matches(text), "{format} rejects {text:?}");
    }
}

#[test]
fn codes_follow_their_formats() {
    check(
        "bsonobjectid",
        &["507f1f77bcf86cd799439011"],
        &["507f1f77bcf86cd79943901", "z07f1f77bcf86cd799439011"],
    );
    check(
        "byte",
        &["Zm9v", "Zm8=", "Zg=="],
        &["", "Zm9", "Zm9v=", "Zm_v", "===="],
    );
    check(
        "creditcard",
        &["4111-1111-1111-1111", "378282246310005", "6011000990139424"],
        &["4111-1111-1111-1112", "411", ""],
    );
    check(
        "isbn10",
        &["0321751043", "0-321-75104-3", "080442957X"],
        &["0321751044", "X321751043", ""],
    );
    check(
        "isbn13",
        &["978-0321751041"],
        &["978-0321751042", "0321751043"],
    );
    check("isbn", &["0321751043", "978 0321751041"], &["1"]);
    check(
        "ssn",
        &["111-11-1111", "111 11 1111"],
        &["111-11-111", "11111111111", ""],
    );
    check("hexcolor", &["#fff", "FFFFFF"], &["#ff", "#ggg", ""]);
    check(
        "rgbcolor",
        &["rgb(1,2,3)", "rgb( 255 , 0,10 )"],
        &["rgb(256,0,0)", "rgb(1,2)", "rgb(01,2,3)", "(1,2,3)"],
    );
}

#[test]
fn uuids_follow_their_versions() {
    let four = "c3b5dd5f-7bd3-4a6b-a1f7-2a4f3a1b0d11";
    check(
        "uuid",
        &[four, "C3B5DD5F7BD34A6BA1F72A4F3A1B0D11"],
        &["c3b5dd5f", "g3b5dd5f-7bd3-4a6b-a1f7-2a4f3a1b0d11", "é"],
    );
    check(
        "uuid4",
        &[four],
        &[
            "c3b5dd5f-7bd3-3a6b-a1f7-2a4f3a1b0d11",
            "c3b5dd5f-7bd3-4a6b-c1f7-2a4f3a1b0d11",
        ],
    );
    check("uuid3", &["c3b5dd5f-7bd3-3a6b-c1f7-2a4f3a1b0d11"], &[four]);
    check("uuid5", &["c3b5dd5f-7bd3-5a6b-91f7-2a4f3a1b0d11"], &[four]);
}

#[test]
fn addresses_follow_their_formats() {
    check(
        "ipv4",
        &["1.2.3.4", "01.002.3.4", "::ffff:1.2.3.4"],
        &["1.2.3", "1.2.3.256", "::1", "a"],
    );
    check(
        "ipv6",
        &["::1", "fe80::1:2", "::ffff:1.2.3.4"],
        &["1.2.3.4", ":::", "g::", ""],
    );
    check(
        "cidr",
        &["10.0.0.0/8", "10.1.2.3/8", "fd00::/64", "010.0.0.0/8"],
        &["10.0.0.0", "10.0.0.0/33", "/8", "10.0.0.0/+8"],
    );
    check(
        "mac",
        &[
            "01:23:45:67:89:ab",
            "01-23-45-67-89-AB-cd-ef",
            "0123.4567.89ab",
        ],
        &["01:23:45:67:89", "01:23:45:67:89:a", "0123.4567", ""],
    );
    check(
        "email",
        &[
            "a@example.com",
            "A B <a.b@x>",
            "\"a b\"@x.y",
            "a@[127.0.0.1]",
        ],
        &["a", "@x", "a@", "a b@x", ".a@x", "a@x."],
    );
    check(
        "hostname",
        &[
            "example.com",
            "localhost",
            "1a.example.london",
            "böse.de",
            "a--b.com",
            "x.\u{e9}\u{e9}",
            "😀.com",
            "a-com",
            "ab",
            "Zm9",
            "1",
        ],
        &[
            "-a.com",
            "exa mple.com",
            "",
            "a_b.com",
            "a.b",
            "a..com",
            "a--com",
            "x.-com",
            "a-.com",
            "my-host",
            "x.c1",
        ],
    );
}

#[test]
fn uris_follow_the_parser_of_go() {
    check(
        "uri",
        &[
            "http://example.com/a?b=%zz",
            "/path",
            "mailto:a@b",
            "//host/path",
            "https://u:p@h:8/x",
            "http://[::1]:80",
            "*",
        ],
        &[
            "",
            "relative",
            "http://a b",
            ":x",
            "http://h:port/",
            "/%zz",
            "a\nb",
            "http://[::1",
        ],
    );
}

#[test]
fn times_follow_their_formats() {
    check(
        "date",
        &["2006-01-02", "2024-02-29"],
        &["2006-1-2", "2023-02-29", "2006-01-02T", ""],
    );
    check(
        "date-time",
        &[
            "2014-12-15T19:30:20Z",
            "2014-12-15t19:30:20.000z",
            "2014-12-15T19:30:20+01:00",
            "2014-12-15T19:30:20.1-01:00",
        ],
        &[
            "2014-12-15",
            "2014-12-15T24:30:20Z",
            "2014-12-15T19:30:20",
            "2014-12-15T19:30Z",
            "2014-12-15T19:60:20Z",
            "",
        ],
    );
    check(
        "duration",
        &[
            "22ns",
            "1h2m",
            "1.5s",
            "-3ms",
            "0",
            "2 minutes",
            "1 wk",
            "3days 2 hours",
        ],
        &["", "5", "abc", "3 parsecs", "99999999999999999999 s"],
    );
}

#[test]
fn names_follow_the_rules_of_kubernetes() {
    check("k8s-short-name", &["a-1"], &["A", "a.b", "", "-a"]);
    check("k8s-long-name", &["a.b-c"], &["A.b", "a..b", ""]);
    check("password", &["", "anything"], &[]);
}

#[test]
fn formats_apply_to_their_types() {
    assert_eq!(
        StringFormat::for_type("datetime", ""),
        Some(StringFormat::DateTime)
    );
    assert_eq!(
        StringFormat::for_type("date-time", "string"),
        Some(StringFormat::DateTime)
    );
    assert_eq!(StringFormat::for_type("date", "integer"), None);
    assert_eq!(StringFormat::for_type("quantity", "string"), None);
    assert_eq!(
        NumberFormat::for_type("int32", "integer"),
        Some(NumberFormat::Int32)
    );
    assert_eq!(NumberFormat::for_type("int32", "number"), None);
    assert_eq!(
        NumberFormat::for_type("float", "number"),
        Some(NumberFormat::Float)
    );
}
