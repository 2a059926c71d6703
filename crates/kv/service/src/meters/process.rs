//! Process metrics, named like in Prometheus' client libraries.

use super::page::Page;

/// Clock ticks per second in `/proc`.
const TICKS: f64 = 100.0;
const PAGE: f64 = 4096.0;

pub(super) fn write(page: &mut Page) {
    let read = |name: &str| std::fs::read_to_string(name).unwrap_or_default();
    let statm = read("/proc/self/statm");
    let pages = |at: usize| {
        statm
            .split(' ')
            .nth(at)
            .and_then(|n| n.parse::<f64>().ok())
            .unwrap_or_default()
    };
    page.gauge(
        "process_virtual_memory_bytes",
        "Virtual memory.",
        pages(0) * PAGE,
    );
    page.gauge(
        "process_resident_memory_bytes",
        "Resident memory.",
        pages(1) * PAGE,
    );
    let stat = read("/proc/self/stat");
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks = |at: usize| {
        after
            .split(' ')
            .nth(at)
            .and_then(|n| n.parse::<f64>().ok())
            .unwrap_or_default()
    };
    page.counter(
        "process_cpu_seconds_total",
        "Processor time.",
        (ticks(12) + ticks(13)) / TICKS,
    );
    let booted = number_behind(&read("/proc/stat"), "btime");
    page.gauge(
        "process_start_time_seconds",
        "When it began, since 1970.",
        booted + ticks(20) / TICKS,
    );
    let files = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count) as f64;
    let most = number_behind(&read("/proc/self/limits"), "Max open files");
    page.gauge("process_open_fds", "Open files.", files);
    page.gauge("process_max_fds", "Files that may be open.", most);
    page.gauge("os_fd_used", "Open files.", files);
    page.gauge("os_fd_limit", "Files that may be open.", most);
}

/// Returns the first number of the line with this prefix.
fn number_behind(text: &str, name: &str) -> f64 {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap_or_default();
    line.split_whitespace()
        .next()
        .and_then(|n| n.parse().ok())
        .unwrap_or_default()
}
