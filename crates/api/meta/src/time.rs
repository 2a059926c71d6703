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

/// Parses any RFC 3339 time.
pub fn parse(text: &str) -> Option<Timestamp> {
    text.parse().ok()
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
