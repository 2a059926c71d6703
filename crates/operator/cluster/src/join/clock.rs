//! Compares the clock of a machine that joins the control plane with that of the API server.

use client::{Client, Request};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;

use crate::error::{Error, Result};

/// The longest difference, in seconds. Certificates are valid from 5 minutes before their issue on,
/// so that those of a machine which is further ahead are rejected by the others; a minute is left
/// for the join itself.
const TOLERANCE: i64 = 240;

/// Rejects a clock that differs from that of the API server. A server that sends no time is not
/// compared.
///
/// # Errors
/// The clocks differ by more than 4 minutes.
pub(super) async fn check_clock(client: &Client) -> Result<()> {
    let response = client.send(Request::get("/version")).await;
    let Ok(response) = response else {
        // The next request reports why.
        return Ok(());
    };
    let date = response
        .headers()
        // An origin server with a clock sends it (RFC 9110, section 6.6.1).
        .get("date")
        .and_then(|date| date.to_str().ok());
    match date.and_then(read_date) {
        Some(server) => compare_clocks(Timestamp::now(), server),
        None => Ok(()),
    }
}

fn read_date(text: &str) -> Option<Timestamp> {
    DateTimeParser::new().parse_timestamp(text).ok()
}

fn compare_clocks(own: Timestamp, server: Timestamp) -> Result<()> {
    let difference = own.as_second() - server.as_second();
    if difference.abs() <= TOLERANCE {
        return Ok(());
    }
    let format = |time: Timestamp| time.strftime("%Y-%m-%d %H:%M:%S UTC");
    Err(Error::Refused(format!(
        "the clock of this machine is at {}, and that of the API server at {}; certificates of this machine would not be valid \
         there; set the clocks, for example with NTP, and run the command again",
        format(own),
        format(server)
    )))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn clock_that_differs_by_minutes_is_rejected_with_both_times() {
        // The format of HTTP.
        let server = read_date("Sat, 28 Nov 2026 10:00:00 GMT").unwrap();
        let own = |seconds: i64| Timestamp::from_second(server.as_second() + seconds).unwrap();
        for (seconds, is_accepted) in [
            (0, true),
            (240, true),
            (-240, true),
            (241, false),
            (-7200, false),
        ] {
            let compared = compare_clocks(own(seconds), server);
            assert_eq!(compared.is_ok(), is_accepted, "{seconds}");
        }
        let error = compare_clocks(own(600), server).unwrap_err().to_string();
        for time in ["2026-11-28 10:10:00 UTC", "2026-11-28 10:00:00 UTC"] {
            assert!(error.contains(time), "{error}");
        }
        assert_eq!(read_date("yesterday"), None);
    }
}
