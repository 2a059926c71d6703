//! The machine: identity, versions, capacity.

use crate::config::Settings;
use api_meta::Quantity;
use k8s_openapi::api::core::v1::NodeSystemInfo;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Facts that do not change while the kubelet runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Machine {
    pub(crate) info: NodeSystemInfo,
}

fn read_file(path: &str) -> String {
    fs::read_to_string(path)
        .map(|t| t.trim().to_owned())
        .unwrap_or_default()
}

fn go_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

impl Machine {
    /// Reads the machine's facts.
    pub(crate) fn observe(node_name: &str, runtime: &str) -> Self {
        let boot_id = read_file("/proc/sys/kernel/random/boot_id");
        let machine_id = read_first(&[
            // Must survive a restart: other agents identify the machine by it.
            read_file("/etc/machine-id"),
            read_file("/var/lib/dbus/machine-id"),
            derive_identity(node_name),
        ]);
        let uuid = read_first(&[
            read_file("/sys/class/dmi/id/product_uuid"),
            machine_id.clone(),
        ]);
        Machine {
            info: NodeSystemInfo {
                architecture: go_architecture().to_owned(),
                boot_id: read_first(&[boot_id, derive_identity("boot")]),
                container_runtime_version: runtime.to_owned(),
                kernel_version: read_file("/proc/sys/kernel/osrelease"),
                kube_proxy_version: String::new(),
                kubelet_version: concat!("v1.36.2+ironclad.", env!("CARGO_PKG_VERSION")).to_owned(),
                machine_id,
                operating_system: "linux".to_owned(),
                os_image: read_os_image(),
                swap: None,
                system_uuid: uuid,
            },
        }
    }
}

fn read_first(candidates: &[String]) -> String {
    candidates
        .iter()
        .find(|c| !c.is_empty())
        .cloned()
        .unwrap_or_default()
}

/// Derives an identity for machines without one; it is the same after each start.
fn derive_identity(seed: &str) -> String {
    use sha2::Digest;
    let digest = sha2::Sha256::digest(seed.as_bytes());
    digest.iter().take(16).map(|b| format!("{b:02x}")).collect()
}

fn read_os_image() -> String {
    let text = read_file("/etc/os-release");
    let name = text.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="));
    name.map_or_else(|| "Linux".to_owned(), |n| n.trim_matches('"').to_owned())
}

fn to_quantity(units: u64) -> Quantity {
    Quantity::from_units(
        i64::try_from(units).unwrap_or(i64::MAX),
        api_meta::quantity::Format::DecimalSi,
    )
}

fn from_kibibytes(bytes: u64) -> Option<Quantity> {
    format!("{}Ki", bytes / 1024).parse().ok()
}

/// Returns cpu, memory, disk and pods of the machine.
pub(crate) fn measure_capacity(settings: &Settings) -> BTreeMap<String, Quantity> {
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let memory = read_file("/proc/meminfo")
        .lines()
        .find_map(|l| {
            l.strip_prefix("MemTotal:")?
                .trim()
                .strip_suffix(" kB")?
                .parse::<u64>()
                .ok()
        })
        .unwrap_or_default();
    let mut all = BTreeMap::from([
        ("cpu".to_owned(), to_quantity(cpus)),
        ("pods".to_owned(), to_quantity(settings.max_pods.into())),
    ]);
    all.extend(from_kibibytes(memory * 1024).map(|q| ("memory".to_owned(), q)));
    all.extend(
        measure_disk(&settings.root_dir)
            .and_then(from_kibibytes)
            .map(|q| ("ephemeral-storage".to_owned(), q)),
    );
    // Reported as zero: upstream lists the sizes of the machine, and no huge pages can be requested
    // here.
    for size in ["1Gi", "2Mi"] {
        let folder = format!(
            "/sys/kernel/mm/hugepages/hugepages-{}kB",
            if size == "2Mi" { 2048 } else { 1_048_576 }
        );
        if Path::new(&folder).exists() {
            all.insert(format!("hugepages-{size}"), to_quantity(0));
        }
    }
    all
}

fn measure_disk(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(stat.f_blocks * stat.f_frsize)
}

/// Returns the capacity minus the reserved resources.
pub(crate) fn compute_allocatable(
    capacity: &BTreeMap<String, Quantity>,
    reserved: &BTreeMap<String, Quantity>,
) -> BTreeMap<String, Quantity> {
    let left = |(name, amount): (&String, &Quantity)| {
        // Reservations are subtracted only from what the node has; one for another resource has no
        // effect.
        let left = reserved
            .get(name)
            .map_or(*amount, |kept| amount.minus(*kept));
        // The reservation may exceed the capacity.
        (
            name.clone(),
            if left.milli_value() < 0 {
                to_quantity(0)
            } else {
                left
            },
        )
    };
    capacity.iter().map(left).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn allocatable_is_what_reservations_leave_and_never_negative() {
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, Quantity> {
            pairs
                .iter()
                .map(|(name, text)| ((*name).to_owned(), text.parse().unwrap()))
                .collect()
        };
        let capacity = map(&[("cpu", "2"), ("memory", "1Gi"), ("pods", "110")]);
        let left = compute_allocatable(
            &capacity,
            &map(&[("cpu", "500m"), ("memory", "2Gi"), ("pid", "100")]),
        );
        let of = |name: &str| left.get(name).map(Quantity::milli_value);
        assert_eq!(
            (of("cpu"), of("memory"), of("pods"), of("pid")),
            (Some(1500), Some(0), Some(110_000), None)
        );
    }
}
