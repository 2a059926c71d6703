//! Feature gates. Few have a switch: what is implemented is on by default otherwise.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use base_cli::parse_feature_gate;

use super::Options;

/// The gate of the storage version migrator.
pub const STORAGE_VERSION_MIGRATOR: &str = "StorageVersionMigrator";
/// The gate of the cleaner of pod certificates' requests.
pub const POD_CERTIFICATE_REQUEST: &str = "PodCertificateRequest";
/// Gates with a switch. All are beta, and off by default.
const SWITCHES: [&str; 2] = [POD_CERTIFICATE_REQUEST, STORAGE_VERSION_MIGRATOR];
/// The gate that sets all beta gates which are not given by name.
const ALL_BETA: &str = "AllBeta";

/// The feature gates of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gates {
    enabled: BTreeSet<&'static str>,
    /// Gates that were given and have no switch.
    pub without_switch: Vec<String>,
}

impl Gates {
    /// Returns whether a gate with a switch is enabled.
    pub fn is_enabled(&self, gate: &str) -> bool {
        self.enabled.contains(gate)
    }
}

impl Options {
    /// Parses `--feature-gates`; of several values of one gate, the last one counts.
    ///
    /// # Errors
    /// A pair that is not `[kube:]NAME=BOOL`.
    pub fn gates(&self) -> anyhow::Result<Gates> {
        let mut gates = Gates::default();
        let mut named = BTreeMap::new();
        let mut of_stage = false;
        for pair in self.feature_gates.iter().filter(|pair| !pair.is_empty()) {
            let (name, value) = parse_feature_gate(pair).context("--feature-gates")?;
            if name == ALL_BETA {
                of_stage = value;
            } else if SWITCHES.contains(&name) {
                named.insert(name, value);
            } else {
                gates.without_switch.push(name.to_owned());
            }
        }
        let is_enabled = |gate: &&str| named.get(*gate).copied().unwrap_or(of_stage);
        gates.enabled = SWITCHES.into_iter().filter(is_enabled).collect();
        Ok(gates)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::Parser;

    #[test]
    fn migrator_is_switched_by_its_gate_or_that_of_its_stage() {
        let gates = |value: &str| {
            let flag = format!("--feature-gates={value}");
            Options::try_parse_from(["x", &flag]).unwrap().gates()
        };
        for (value, expect) in [
            ("", false),
            ("StorageVersionMigrator=true", true),
            (
                "StorageVersionMigrator=true,StorageVersionMigrator=false",
                false,
            ),
            ("kube:StorageVersionMigrator=true", true),
            ("AllBeta=true", true),
            ("StorageVersionMigrator=false,AllBeta=true", false),
            ("AllAlpha=true", false),
        ] {
            let found = gates(value).unwrap();
            let is_enabled = found.is_enabled(STORAGE_VERSION_MIGRATOR);
            assert_eq!(is_enabled, expect, "{value}");
        }
        assert_eq!(gates("A=true,AllBeta=false").unwrap().without_switch, ["A"]);
        for wrong in [
            "StorageVersionMigrator",
            "StorageVersionMigrator=yes",
            "A=2",
            "x:StorageVersionMigrator=true",
        ] {
            assert!(gates(wrong).is_err(), "{wrong}");
        }
    }
}
