//! Metrics of the process itself, read from the kernel, named as in Prometheus' client libraries.

use crate::page::MetricsPage;

/// Clock ticks per second (USER_HZ) on every architecture that is supported.
const TICKS: f64 = 100.0;
const PAGE_BYTES: f64 = 4096.0;

/// File descriptors of the process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FileDescriptors {
    /// Number of open ones.
    pub open: f64,
    /// Maximum number.
    pub max: f64,
}

impl FileDescriptors {
    /// Reads both numbers; 0 if the kernel does not show them.
    pub fn read() -> Self {
        Self {
            // One too many, since reading the directory opens a descriptor; the client libraries of
            // Prometheus count it, too.
            open: std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count) as f64,
            max: number_after(&read_file("/proc/self/limits"), "Max open files"),
        }
    }
}

impl MetricsPage {
    /// Writes memory, processor time, start and file descriptors of the process.
    pub fn write_process(&mut self, files: FileDescriptors) {
        let fields = read_stat();
        let field = |number: usize| stat_field(&fields, number);
        self.gauge(
            "process_resident_memory_bytes",
            "Resident memory size in bytes.",
            field(24) * PAGE_BYTES,
        );
        self.gauge(
            "process_virtual_memory_bytes",
            "Virtual memory size in bytes.",
            field(23),
        );
        self.counter(
            "process_cpu_seconds_total",
            "User and system CPU time in seconds.",
            (field(14) + field(15)) / TICKS,
        );
        self.gauge(
            "process_start_time_seconds",
            "Start time since the epoch in seconds.",
            start_time(&fields),
        );
        self.gauge("process_open_fds", "Open file descriptors.", files.open);
        self.gauge(
            "process_max_fds",
            "Maximum number of open file descriptors.",
            files.max,
        );
    }
}

/// Reads the start of the process in seconds since the epoch.
pub fn read_start_time() -> f64 {
    start_time(&read_stat())
}

fn start_time(fields: &[f64]) -> f64 {
    number_after(&read_file("/proc/stat"), "btime") + stat_field(fields, 22) / TICKS
}

/// Reads the fields of /proc/self/stat after the process name.
fn read_stat() -> Vec<f64> {
    let stat = read_file("/proc/self/stat");
    // The process name, in parentheses, may contain blanks: fields are counted after it.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    fields
        .split_whitespace()
        .map(|field| field.parse().unwrap_or(0.0))
        .collect()
}

/// Returns a field by its number in proc_pid_stat(5); the first field after the name is the third.
fn stat_field(fields: &[f64], number: usize) -> f64 {
    fields.get(number - 3).copied().unwrap_or(0.0)
}

fn read_file(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Returns the first number of the line with this prefix.
fn number_after(text: &str, prefix: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(prefix));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_this_process_are_plausible() {
        let mut page = MetricsPage::default();
        page.write_process(FileDescriptors::read());
        let text = page.finish();
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|value| value.trim().parse::<f64>().ok())
                .unwrap_or(-1.0)
        };
        let resident = value("process_resident_memory_bytes");
        assert!(resident > 1e5 && resident < value("process_virtual_memory_bytes"));
        assert!(value("process_cpu_seconds_total") >= 0.0);
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0.0, |now| now.as_secs_f64());
        let age = now - value("process_start_time_seconds");
        assert!((-2.0..86_400.0).contains(&age), "{age}");
        assert!((1.0..value("process_max_fds")).contains(&value("process_open_fds")));
    }
}
