//! Parses durations and quantities in Go's notation.

use std::time::Duration;

/// Parses a duration such as `10s` or `5m0s`; none, and zero, are `default` seconds.
///
/// # Errors
/// The text is no duration; `name` is the setting.
pub(crate) fn duration(text: Option<&str>, default: u64, name: &str) -> anyhow::Result<Duration> {
    let Some(text) = text else {
        return Ok(Duration::from_secs(default));
    };
    let mut total = 0f64;
    let mut number = String::new();
    let mut unit = String::new();
    let bad = || anyhow::anyhow!("{name}: {text:?} is no duration such as 10s or 5m0s");
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c.is_ascii_digit() || c == '.' {
            number.push(c)
        } else {
            unit.push(c)
        }
        let ends = chars.peek().is_none_or(|n| n.is_ascii_digit()) && !unit.is_empty();
        if ends {
            let scale = match unit.as_str() {
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return Err(bad()),
            };
            total += number.parse::<f64>().map_err(|_| bad())? * scale;
            number.clear();
            unit.clear();
        }
    }
    if number.is_empty() {
        Ok(Duration::from_secs_f64(if total > 0.0 {
            total
        } else {
            default as f64
        }))
    } else {
        Err(bad())
    }
}

/// Parses a quantity of bytes.
///
/// # Errors
/// The text is no quantity; `name` is the setting.
pub(crate) fn bytes(text: &str, name: &str) -> anyhow::Result<u64> {
    let quantity = text
        .parse::<api_meta::Quantity>()
        .map_err(|_| anyhow::anyhow!("{name}: {text:?} is no quantity"))?;
    Ok(u64::try_from(quantity.value()).unwrap_or_default())
}
