//! Formats of dates, times and durations.

/// Returns whether the text is a date such as `2006-01-02`.
pub(super) fn is_date(text: &str) -> bool {
    let form = text.len() == 10
        && text.bytes().enumerate().all(|(i, b)| match i {
            4 | 7 => b == b'-',
            _ => b.is_ascii_digit(),
        });
    form && text.parse::<jiff::civil::Date>().is_ok()
}

/// Returns whether the text is a date and time of RFC 3339.
pub(super) fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(clock)) = (parts.next(), parts.next()) else {
        return false;
    };
    is_date(date) && is_clock_time(clock)
}

fn is_clock_time(clock: &str) -> bool {
    let Some((time, mut rest)) = clock.split_at_checked(8) else {
        return false;
    };
    let two = |from: usize, max: &str| {
        let part = time.get(from..from + 2).unwrap_or_default();
        part.bytes().all(|b| b.is_ascii_digit()) && part.len() == 2 && part <= max
    };
    let colons = time.get(2..3) == Some(":") && time.get(5..6) == Some(":");
    // Upstream's expression has an unescaped dot: any character may precede the fraction.
    if let Some(zone) = rest
        .find(['z', '+', '-'])
        .filter(|at| *at > 0)
        .or_else(|| second_sign(rest))
    {
        let (fraction, after) = rest.split_at(zone);
        let digits = fraction.chars().skip(1).collect::<String>();
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return false;
        }
        rest = after;
    }
    colons && two(0, "23") && two(3, "59") && two(6, "59") && is_zone(rest)
}

// The character before the fraction may be a sign itself.
fn second_sign(rest: &str) -> Option<usize> {
    let after = rest.get(1..)?;
    let at = after.find(['z', '+', '-'])? + 1;
    rest.get(1..at)
        .is_some_and(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()))
        .then_some(at)
}

fn is_zone(zone: &str) -> bool {
    zone == "z"
        || zone.len() == 6
            && zone.bytes().enumerate().all(|(i, b)| match i {
                0 => matches!(b, b'+' | b'-'),
                3 => b == b':',
                _ => b.is_ascii_digit(),
            })
}

/// Returns whether the text is a duration of Go, or has a number with a unit somewhere.
pub(super) fn is_duration(text: &str) -> bool {
    is_go_duration(text) || has_worded_duration(text)
}

fn is_go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    let mut nanoseconds = 0.0;
    while !rest.is_empty() {
        let number = rest.len()
            - rest
                .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.')
                .len();
        let (value, after) = rest.split_at(number);
        let unit = after.len()
            - after
                .trim_start_matches(|c: char| !c.is_ascii_digit() && c != '.')
                .len();
        let (unit, after) = after.split_at(unit);
        let digits = value.bytes().any(|b| b.is_ascii_digit()) && value.matches('.').count() <= 1;
        let factor = match unit {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            _ => return false,
        };
        if !digits {
            return false;
        }
        nanoseconds += factor * format!("0{value}").parse::<f64>().unwrap_or(f64::INFINITY);
        rest = after;
    }
    // Go's durations are 64-bit nanoseconds.
    !text.is_empty() && text != "-" && text != "+" && nanoseconds <= i64::MAX as f64
}

// The last form of each unit may be continued: `2 minutes` is `min` and more.
const UNITS: [(&[&str], &str); 8] = [
    (&["ns"], "nano"),
    (&["us", "µs"], "micro"),
    (&["ms"], "milli"),
    (&["s"], "sec"),
    (&["m"], "min"),
    (&["h", "hr"], "hour"),
    (&["d"], "day"),
    (&["w", "wk"], "week"),
];

fn has_worded_duration(text: &str) -> bool {
    let mut rest = text;
    let mut found = false;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        rest = rest.get(start..).unwrap_or_default();
        let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let number = rest.strip_suffix(after).unwrap_or_default();
        let spaced = after.trim_start_matches([' ', '\t', '\n', '\r', '\x0c']);
        let end = spaced.trim_start_matches(|c: char| c.is_ascii_alphabetic() || c == 'µ');
        let unit = spaced.strip_suffix(end).unwrap_or_default().to_lowercase();
        if !unit.is_empty() {
            // A number above 64 bits ends the parsing with an error.
            if number.parse::<i64>().is_err() {
                return false;
            }
            found |= UNITS
                .iter()
                .any(|(names, prefix)| names.contains(&unit.as_str()) || unit.starts_with(prefix));
        }
        rest = end;
    }
    found
}
