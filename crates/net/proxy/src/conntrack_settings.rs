//! Limits and timeouts of the kernel's connection tracking.

use std::path::Path;
use std::time::Duration;

use base_duration::parse_unsigned;
use serde::Deserialize;

/// Connections that are tracked at most, however many cores the machine has.
const LARGEST_MAXIMUM: u64 = 1 << 20;
/// A hash table with fewer buckets than a quarter of the entries gets slow.
const ENTRIES_PER_BUCKET: u64 = 4;
const SYSCTLS: &str = "sys/net/netfilter";
const ONLINE_CORES: &str = "/sys/devices/system/cpu/online";
const HASH_SIZE: &str = "module/nf_conntrack/parameters/hashsize";

/// The section `conntrack` of the configuration; also filled by flags, which override the file.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ConntrackConfiguration {
    /// Connections for each core; 0 leaves the kernel's limit.
    pub max_per_core: Option<u32>,
    /// Smallest limit, whatever the number of cores.
    pub min: Option<u32>,
    /// Time after which an idle TCP connection is forgotten; 0 leaves the kernel's.
    pub tcp_established_timeout: Option<String>,
    /// The same for a TCP connection in CLOSE_WAIT.
    pub tcp_close_wait_timeout: Option<String>,
    /// Accept TCP packets outside the window.
    pub tcp_be_liberal: Option<bool>,
    /// Time after which an UDP connection without an answer is forgotten; 0 leaves the kernel's.
    pub udp_timeout: Option<String>,
    /// The same for an UDP connection that was answered.
    pub udp_stream_timeout: Option<String>,
}

/// Values that the proxy sets in the kernel; zero leaves the kernel's.
#[derive(Debug, Clone, PartialEq)]
pub struct ConntrackSettings {
    max_per_core: u64,
    min: u64,
    tcp_established: Duration,
    tcp_close_wait: Duration,
    tcp_be_liberal: bool,
    udp: Duration,
    udp_stream: Duration,
}

impl ConntrackConfiguration {
    /// Returns these values where they are set, and the other's elsewhere.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            max_per_core: self.max_per_core.or(other.max_per_core),
            min: self.min.or(other.min),
            tcp_established_timeout: self
                .tcp_established_timeout
                .or(other.tcp_established_timeout),
            tcp_close_wait_timeout: self.tcp_close_wait_timeout.or(other.tcp_close_wait_timeout),
            tcp_be_liberal: self.tcp_be_liberal.or(other.tcp_be_liberal),
            udp_timeout: self.udp_timeout.or(other.udp_timeout),
            udp_stream_timeout: self.udp_stream_timeout.or(other.udp_stream_timeout),
        }
    }

    /// Applies upstream's defaults.
    ///
    /// # Errors
    /// A timeout is no duration, or negative.
    pub fn settings(self) -> anyhow::Result<ConntrackSettings> {
        let timeout = |name: &str, text: Option<String>, default: Duration| match text {
            None => Ok(default),
            Some(text) => parse_unsigned(&text).map_err(|error| {
                anyhow::anyhow!("conntrack timeout {name}: {text:?} is no duration: {error}")
            }),
        };
        Ok(ConntrackSettings {
            max_per_core: self.max_per_core.unwrap_or(32 * 1024).into(),
            min: self.min.unwrap_or(128 * 1024).into(),
            tcp_established: timeout(
                "of established TCP connections",
                self.tcp_established_timeout,
                Duration::from_secs(24 * 3600),
            )?,
            tcp_close_wait: timeout(
                "of TCP connections in CLOSE_WAIT",
                self.tcp_close_wait_timeout,
                Duration::from_secs(3600),
            )?,
            tcp_be_liberal: self.tcp_be_liberal.unwrap_or(false),
            udp: timeout("of UDP", self.udp_timeout, Duration::ZERO)?,
            udp_stream: timeout("of UDP streams", self.udp_stream_timeout, Duration::ZERO)?,
        })
    }
}

impl ConntrackSettings {
    /// Returns the limit of tracked connections on a machine with this number of cores, if it is to
    /// be set.
    fn maximum(&self, cores: u64) -> Option<u64> {
        if self.max_per_core == 0 {
            return None;
        }
        let scaled = self.max_per_core * cores;
        // The cap bounds memory on machines with many cores; a larger minimum was asked for by
        // name, and still yields to it only where the scaled value exceeds the cap, as in upstream.
        Some(match scaled > LARGEST_MAXIMUM {
            true => LARGEST_MAXIMUM,
            false => scaled.max(self.min),
        })
        .filter(|maximum| *maximum > 0)
    }

    /// Returns the settings to write, by name.
    fn sysctls(&self, cores: u64) -> Vec<(&'static str, u64)> {
        let seconds = |timeout: Duration| Some(timeout.as_secs()).filter(|seconds| *seconds > 0);
        [
            ("nf_conntrack_max", self.maximum(cores)),
            (
                "nf_conntrack_tcp_timeout_established",
                seconds(self.tcp_established),
            ),
            (
                "nf_conntrack_tcp_timeout_close_wait",
                seconds(self.tcp_close_wait),
            ),
            (
                "nf_conntrack_tcp_be_liberal",
                self.tcp_be_liberal.then_some(1),
            ),
            ("nf_conntrack_udp_timeout", seconds(self.udp)),
            ("nf_conntrack_udp_timeout_stream", seconds(self.udp_stream)),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
    }

    /// Writes the settings to the kernel. A setting that can't be written is logged: Services work
    /// without it.
    pub(crate) fn apply(&self) {
        // The machine's, and not those that a container's limit leaves to this process: the table
        // of connections is that of the machine.
        let online = std::fs::read_to_string(ONLINE_CORES).ok();
        let own = || std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        let cores = online.as_deref().and_then(count_cores).unwrap_or_else(own);
        for failure in self.write_below(Path::new("/proc"), Path::new("/sys"), cores) {
            tracing::warn!(
                "{failure}; the kernel's value stays: set it with sysctl, or leave it with the value 0"
            );
        }
    }

    fn write_below(&self, proc: &Path, sys: &Path, cores: u64) -> Vec<String> {
        let mut failures = Vec::new();
        for (name, value) in self.sysctls(cores) {
            write_number(&proc.join(SYSCTLS).join(name), value, &mut failures);
        }
        if let Some(maximum) = self.maximum(cores) {
            let file = sys.join(HASH_SIZE);
            let wanted = maximum / ENTRIES_PER_BUCKET;
            // A larger table that the administrator chose is kept.
            if read_number(&file).is_none_or(|size| size < wanted) {
                write_number(&file, wanted, &mut failures);
            }
        }
        failures
    }
}

/// Returns whether the kernel accepts TCP packets outside the window.
pub(crate) fn is_tcp_liberal() -> bool {
    let file = Path::new("/proc")
        .join(SYSCTLS)
        .join("nf_conntrack_tcp_be_liberal");
    base_task::blocking(|| read_number(&file)).is_some_and(|number| number > 0)
}

/// Counts the cores of a list such as `0-3,8`; None if it is not valid.
fn count_cores(list: &str) -> Option<u64> {
    let mut count = 0;
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        count = last
            .checked_sub(first)?
            .checked_add(1)?
            .checked_add(count)?;
    }
    Some(count)
}

fn read_number(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Writes a number to a file, unless it stands there already: in a network namespace of its own
/// some settings are read-only, which is no failure where the value is right.
fn write_number(file: &Path, value: u64, failures: &mut Vec<String>) {
    if read_number(file) == Some(value) {
        return;
    }
    tracing::info!(file = %file.display(), value, "setting of connection tracking changed");
    if let Err(error) = std::fs::write(file, value.to_string()) {
        failures.push(format!(
            "{} can't be set to {value}: {error}",
            file.display()
        ));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn settings(yaml: &str) -> ConntrackSettings {
        serde_yaml::from_str::<ConntrackConfiguration>(yaml)
            .unwrap()
            .settings()
            .unwrap()
    }

    #[test]
    fn limit_grows_with_the_cores_between_its_bounds() {
        for (yaml, cores, want) in [
            ("{}", 1, Some(131_072)),
            ("{}", 8, Some(262_144)),
            ("{}", 64, Some(1_048_576)),
            ("{maxPerCore: 0}", 8, None),
            ("{maxPerCore: 1000, min: 0}", 2, Some(2000)),
            ("{maxPerCore: 1, min: 2000000}", 2, Some(2_000_000)),
            ("{maxPerCore: 1048576, min: 2000000}", 2, Some(1_048_576)),
        ] {
            assert_eq!(settings(yaml).maximum(cores), want, "{yaml} {cores}");
        }
    }

    #[test]
    fn cores_of_the_machine_are_counted() {
        for (list, expect) in [
            ("0\n", Some(1)),
            ("0-3\n", Some(4)),
            ("0-1,4,6-7\n", Some(5)),
            ("", None),
            ("3-0", None),
            ("0-18446744073709551615", None),
        ] {
            assert_eq!(count_cores(list), expect, "{list:?}");
        }
    }

    #[test]
    fn timeouts_have_upstreams_defaults_and_zero_leaves_the_kernels() {
        assert_eq!(
            settings("{maxPerCore: 0}").sysctls(1),
            [
                ("nf_conntrack_tcp_timeout_established", 86_400),
                ("nf_conntrack_tcp_timeout_close_wait", 3600),
            ]
        );
        let all = "{maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 1m30s, tcpBeLiberal: true, \
                   udpTimeout: 10s, udpStreamTimeout: 2m}";
        assert_eq!(
            settings(all).sysctls(1),
            [
                ("nf_conntrack_tcp_timeout_close_wait", 90),
                ("nf_conntrack_tcp_be_liberal", 1),
                ("nf_conntrack_udp_timeout", 10),
                ("nf_conntrack_udp_timeout_stream", 120),
            ]
        );
    }

    #[test]
    fn timeout_that_is_no_duration_is_an_error() {
        for timeout in ["soon", "-1s"] {
            let configuration = ConntrackConfiguration {
                udp_timeout: Some(timeout.into()),
                ..ConntrackConfiguration::default()
            };
            assert!(configuration.settings().is_err(), "{timeout}");
        }
    }

    #[test]
    fn values_are_written_and_a_larger_hash_table_is_kept() {
        let root = tempfile::tempdir().unwrap();
        let (proc, sys) = (root.path().join("proc"), root.path().join("sys"));
        let hash_size = sys.join(HASH_SIZE);
        std::fs::create_dir_all(proc.join(SYSCTLS)).unwrap();
        std::fs::create_dir_all(hash_size.parent().unwrap()).unwrap();
        std::fs::write(&hash_size, "1000\n").unwrap();
        let maximum = proc.join(SYSCTLS).join("nf_conntrack_max");

        assert!(settings("{}").write_below(&proc, &sys, 4).is_empty());
        assert_eq!(read_number(&maximum), Some(131_072));
        assert_eq!(read_number(&hash_size), Some(32_768));

        let small = settings("{maxPerCore: 1000, min: 0}");
        assert!(small.write_below(&proc, &sys, 4).is_empty());
        assert_eq!(read_number(&maximum), Some(4000));
        assert_eq!(read_number(&hash_size), Some(32_768));
    }

    #[test]
    fn setting_that_cannot_be_written_is_named() {
        let root = tempfile::tempdir().unwrap();
        let failures = settings("{maxPerCore: 0, tcpEstablishedTimeout: 0s}").write_below(
            &root.path().join("proc"),
            &root.path().join("sys"),
            1,
        );
        assert_eq!(failures.len(), 1, "{failures:?}");
        assert!(failures[0].contains("nf_conntrack_tcp_timeout_close_wait can't be set to 3600"));
    }
}
