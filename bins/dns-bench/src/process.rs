//! Processor time and memory of a process.

use anyhow::Context;

/// Clock ticks per second (USER_HZ).
const TICKS: f64 = 100.0;

/// Figures of a process.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    pub cpu_seconds: f64,
    pub rss_mb: f64,
}

impl Usage {
    /// Reads the figures from `/proc`.
    pub fn read(pid: u32) -> anyhow::Result<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The process name may contain blanks: fields are counted after it.
        let rest = stat.rsplit(')').next().unwrap_or_default();
        let fields: Vec<f64> = rest
            .split_whitespace()
            .map(|field| field.parse().unwrap_or_default())
            .collect();
        // utime and stime, fields 14 and 15 of proc_pid_stat(5).
        let [user, system] = [11, 12].map(|index| fields.get(index).copied());
        let ticks = user.context("no utime")? + system.context("no stime")?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = rss.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
        Ok(Self {
            cpu_seconds: ticks / TICKS,
            rss_mb: kib.context("no VmRSS")? / 1024.0,
        })
    }
}
