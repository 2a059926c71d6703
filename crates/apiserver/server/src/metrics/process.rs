//! Process metrics from the kernel.

use super::text::Page;
use std::time::{SystemTime, UNIX_EPOCH};

/// Clock ticks per second (USER_HZ) on every architecture that is supported.
const TICKS: f64 = 100.0;
const PAGE_BYTES: f64 = 4096.0;

pub(super) fn write_process_metrics(page: &mut Page) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The process name, in parentheses, may contain blanks: fields are counted after it.
    let fields: Vec<f64> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .map(|f| f.parse().unwrap_or(0.0))
        .collect();
    let field = |at: usize| fields.get(at - 3).copied().unwrap_or(0.0);
    let mut one = |name: &str, ty: &str, help: &str, value: f64| {
        page.head(name, ty, help);
        page.line(name, &[], value);
    };
    one(
        "process_resident_memory_bytes",
        "gauge",
        "Resident memory size in bytes.",
        field(24) * PAGE_BYTES,
    );
    one(
        "process_virtual_memory_bytes",
        "gauge",
        "Virtual memory size in bytes.",
        field(23),
    );
    one(
        "process_cpu_seconds_total",
        "counter",
        "User and system CPU time in seconds.",
        (field(14) + field(15)) / TICKS,
    );
    one(
        "process_start_time_seconds",
        "gauge",
        "Start time since the epoch in seconds.",
        start_time(field(22)),
    );
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    one(
        "process_open_fds",
        "gauge",
        "Open file descriptors.",
        open as f64,
    );
}

fn start_time(ticks_after_boot: f64) -> f64 {
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let uptime: f64 = uptime
        .split_whitespace()
        .next()
        .and_then(|t| t.parse().ok())
        .unwrap_or(0.0);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |d| d.as_secs_f64());
    now - uptime + ticks_after_boot / TICKS
}
