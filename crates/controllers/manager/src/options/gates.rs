//! Feature gates. Only one has a switch: what is implemented is on by default otherwise.

use anyhow::Context;
use base_cli::parse_feature_gate;

use super::Options;

const MIGRATOR: &str = "StorageVersionMigrator";
/// The gate that sets all beta gates which are not given by name.
const ALL_BETA: &str = "AllBeta";

/// The feature gates of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gates {
    /// The switch of the storage version migrator.
    pub storage_version_migrator: bool,
    /// Gates that were given and have no switch.
    pub without_switch: Vec<String>,
}

impl Options {
    /// Parses `--feature-gates`; of several values of one gate, the last one counts.
    ///
    /// # Errors
    /// A pair that is not `[kube:]NAME=BOOL`.
    pub fn gates(&self) -> anyhow::Result<Gates> {
        let mut gates = Gates::default();
        let (mut named, mut of_stage) = (None, None);
        for pair in self.feature_gates.iter().filter(|pair| !pair.is_empty()) {
            let (name, value) = parse_feature_gate(pair).context("--feature-gates")?;
            match name {
                MIGRATOR => named = Some(value),
                ALL_BETA => of_stage = Some(value),
                name => gates.without_switch.push(name.to_owned()),
            }
        }
        gates.storage_version_migrator = named.or(of_stage).unwrap_or(false);
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
            assert_eq!(
                gates(value).unwrap().storage_version_migrator,
                expect,
                "{value}"
            );
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
