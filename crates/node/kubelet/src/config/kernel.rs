//! Checks of the node's kernel before pods run: `protectKernelDefaults` and `failSwapOn`.

use std::path::Path;

/// Upstream's values for overcommit, kernel panics and key quotas.
const SYSCTLS: [(&str, i64); 6] = [
    ("vm/overcommit_memory", 1),
    ("vm/panic_on_oom", 0),
    ("kernel/panic", 10),
    ("kernel/panic_on_oops", 1),
    ("kernel/keys/root_maxkeys", 1_000_000),
    ("kernel/keys/root_maxbytes", 25_000_000),
];

/// Checks the kernel's settings beneath `proc`, which is `/proc`.
///
/// # Errors
/// The settings that differ from [`SYSCTLS`].
pub(crate) fn check_sysctls(proc: &Path) -> anyhow::Result<()> {
    let read = |name: &str| {
        std::fs::read_to_string(proc.join("sys").join(name))
            .ok()?
            .trim()
            .parse::<i64>()
            .ok()
    };
    // All wrong settings at once, so that an administrator needs one attempt only.
    let wrong = SYSCTLS
        .iter()
        .filter(|(name, want)| read(name) != Some(*want));
    let wrong: Vec<String> = wrong
        .map(|(name, want)| format!("{}={want}", name.replace('/', ".")))
        .collect();
    if wrong.is_empty() {
        return Ok(());
    }
    anyhow::bail!(
        "protectKernelDefaults is on, and the kernel's settings differ: set {}",
        wrong.join(", ")
    )
}

/// Checks that no swap is on.
///
/// # Errors
/// The first swap device.
pub(crate) fn check_swap(proc: &Path) -> anyhow::Result<()> {
    let table = std::fs::read_to_string(proc.join("swaps")).unwrap_or_default();
    // The first line names the columns. Compressed swap in memory (zram) counts too, as it does
    // upstream.
    let Some(first) = table
        .lines()
        .nth(1)
        .and_then(|line| line.split_whitespace().next())
    else {
        return Ok(());
    };
    anyhow::bail!("swap is on ({first}): turn it off, or set failSwapOn to false")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn kernel_settings_that_differ_stop_the_start() {
        let proc = tempfile::tempdir().unwrap();
        for (name, value) in SYSCTLS {
            let path = proc.path().join("sys").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{value}\n")).unwrap();
        }
        assert!(check_sysctls(proc.path()).is_ok());
        std::fs::write(proc.path().join("sys/kernel/panic"), "0\n").unwrap();
        let error = check_sysctls(proc.path()).unwrap_err().to_string();
        assert!(
            error.contains("kernel.panic=10") && !error.contains("overcommit"),
            "{error}"
        );
    }

    #[test]
    fn swap_stops_the_start() {
        let proc = tempfile::tempdir().unwrap();
        let header = "Filename\tType\tSize\tUsed\tPriority\n";
        std::fs::write(proc.path().join("swaps"), header).unwrap();
        assert!(check_swap(proc.path()).is_ok());
        std::fs::write(
            proc.path().join("swaps"),
            format!("{header}/dev/sda2 partition 1 0 -2\n"),
        )
        .unwrap();
        assert!(check_swap(proc.path()).is_err());
    }
}
