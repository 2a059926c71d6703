//! Kubernetes' time formats: RFC 3339 in UTC, with whole seconds (`metav1.Time`) or microseconds
//! (`metav1.MicroTime`).

use jiff::Timestamp;

/// Formats a time as `2026-01-02T03:04:05Z`.
pub fn format(at: Timestamp) -> String {
    // The canonical form has no fraction, so equal times of one second are equal texts.
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Formats a time as `2026-01-02T03:04:05.000006Z`.
pub fn format_micro(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Returns the current time as `metav1.Time`.
pub fn now() -> String {
    format(Timestamp::now())
}

/// Parses any RFC 3339 time with a capital `T` and `Z`, as Go does. A leap second is no time, also
/// as in Go.
pub fn parse(text: &str) -> Option<Timestamp> {
    // jiff parses more forms: without seconds, with a space, or with the name of a zone. Stock
    // components would not accept such a text, for instance as the end of a token.
    let is_known = is_rfc3339(text.as_bytes());
    text.parse().ok().filter(|_| is_known)
}

/// Returns whether a text has the shape of RFC 3339. The ranges of its numbers are the parser's.
fn is_rfc3339(text: &[u8]) -> bool {
    let Some((date, rest)) = text.split_at_checked("2006-01-02T15:04:05".len()) else {
        return false;
    };
    let zone = match rest.strip_prefix(b".") {
        Some(fraction) => {
            let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit());
            match fraction.split_at_checked(digits.count()) {
                Some(([_, ..], zone)) => zone,
                _ => return false,
            }
        }
        None => rest,
    };
    has_shape(date, b"0000-00-00T00:00:00")
        && !date.ends_with(b"60")
        && (zone == b"Z" || has_shape(zone, b"+00:00") || has_shape(zone, b"-00:00"))
}

/// Returns whether a text has digits where the shape has `0`, and is equal to it elsewhere.
fn has_shape(text: &[u8], shape: &[u8]) -> bool {
    let fits = |(byte, expected): (&u8, &u8)| match expected {
        b'0' => byte.is_ascii_digit(),
        _ => byte == expected,
    };
    text.len() == shape.len() && text.iter().zip(shape).all(fits)
}

/// Formats kubectl's short age: `5s`, `3m20s`, `5h`, `2d3h`, `400d`, `2y10d`.
pub fn human_duration(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match seconds {
        i64::MIN..=-2 => "<invalid>".into(),
        // Upstream tolerates clocks of server and client that differ by a second.
        -1 => "0s".into(),
        // The steps of `duration.HumanDuration` of apimachinery, which kubectl prints.
        0..=119 => format!("{seconds}s"),
        120..=599 => format_pair(minutes, "m", seconds % 60, "s"),
        600..=10_799 => format!("{minutes}m"),
        10_800..=28_799 => format_pair(hours, "h", minutes % 60, "m"),
        28_800..=172_799 => format!("{hours}h"),
        172_800..=691_199 => format_pair(days, "d", hours % 24, "h"),
        691_200..=63_071_999 => format!("{days}d"),
        63_072_000..=252_287_999 => format_pair(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

fn format_pair(large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    if small == 0 {
        format!("{large}{large_unit}")
    } else {
        format!("{large}{large_unit}{small}{small_unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_times_of_rfc_3339_are_parsed() {
        for (text, expected) in [
            ("2026-01-02T03:04:05Z", Some("2026-01-02T03:04:05Z")),
            ("2026-01-02T03:04:05.5Z", Some("2026-01-02T03:04:05Z")),
            (
                "2026-01-02T03:04:05.123456789Z",
                Some("2026-01-02T03:04:05Z"),
            ),
            ("2026-01-02T03:04:05+02:00", Some("2026-01-02T01:04:05Z")),
            ("2026-01-02T03:04:05.5-00:30", Some("2026-01-02T03:34:05Z")),
            ("2026-01-02 03:04:05Z", None),
            ("2026-01-02t03:04:05Z", None),
            ("2026-01-02T03:04:05z", None),
            ("2026-01-02T03:04Z", None),
            ("2026-01-02T03Z", None),
            ("2026-01-02T03:04:05", None),
            ("2026-01-02T03:04:05.Z", None),
            ("2026-01-02T03:04:05,5Z", None),
            ("2026-01-02T03:04:05.5", None),
            ("2026-01-02T03:04:05+02", None),
            ("2026-01-02T03:04:05+0200", None),
            ("2026-01-02T03:04:05+02:00:00", None),
            ("2026-01-02T03:04:05+00:00[UTC]", None),
            ("2026-01-02T03:04:05Z[UTC]", None),
            ("2026-01-02T03:04:05Z ", None),
            ("20260102T030405Z", None),
            ("+002026-01-02T03:04:05Z", None),
            ("2026-13-02T03:04:05Z", None),
            ("2026-02-30T03:04:05Z", None),
            ("2026-01-02T24:00:00Z", None),
            ("2026-12-31T23:59:60Z", None),
            ("2026-01-02T03:04:05\u{661}Z", None),
            ("yesterday", None),
            ("", None),
        ] {
            assert_eq!(parse(text).map(format).as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn age_has_the_form_of_kubectl() {
        let check = |s, text: &str| assert_eq!(human_duration(s), text);
        check(0, "0s");
        check(119, "119s");
        check(125, "2m5s");
        check(3600, "60m");
        check(10_860, "3h1m");
        check(90_000, "25h");
        check(180_000, "2d2h");
        check(86_400 * 400, "400d");
        check(86_400 * 740, "2y10d");
    }
}
