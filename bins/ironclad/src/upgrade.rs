//! The command `upgrade`.

use std::io::Write;

use base_cli::escape_controls;
use operator_cluster::{PlannedStep, UpgradeOptions, UpgradeOutcome, UpgradeTarget};

use crate::args::Upgrade;
use crate::progress::print_progress;

/// Executes the command.
pub async fn run_upgrade(options: Upgrade) -> anyhow::Result<()> {
    let library_options = UpgradeOptions {
        data_dir: options.folder.data_dir,
        // The parser demands the directory or --rollback.
        target: match options.bin_dir {
            Some(directory) => UpgradeTarget::Directory(directory),
            None => UpgradeTarget::Former,
        },
        allow_downgrade: options.allow_downgrade,
        timeout: options.timeout,
        dry_run: options.dry_run,
    };
    match operator_cluster::upgrade_cluster(&library_options, &print_progress).await? {
        UpgradeOutcome::Planned(steps) => write!(std::io::stdout(), "{}", format_steps(&steps))?,
        UpgradeOutcome::Upgraded => {
            print_progress("upgraded; the supervisor itself keeps its program until it ends");
        }
        UpgradeOutcome::RolledBack => print_progress("all components run their former programs"),
    }
    Ok(())
}

fn format_steps(steps: &[PlannedStep]) -> String {
    let mut text = format!("{:<26}{:<16}{:<12}TO\n", "COMPONENT", "NODE", "FROM");
    for step in steps {
        // The text behind the `+` of a version is any that the program prints.
        let [from, to] = [&step.from, &step.to].map(|version| version.as_deref().unwrap_or("-"));
        let [name, node, from, to] =
            [step.name.as_str(), &step.node, from, to].map(escape_controls);
        text += &format!("{name:<25} {node:<15} {from:<11} {to}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser as _;

    #[test]
    fn plan_has_a_row_for_each_component_in_the_order_of_replacement() {
        let step = |name: &str, from: Option<&str>, to: Option<&str>| PlannedStep {
            name: name.to_owned(),
            node: "n1".to_owned(),
            from: from.map(str::to_owned),
            to: to.map(str::to_owned),
        };
        let text = format_steps(&[
            step("kvstore", Some("0.1.0"), Some("0.2.0")),
            step("added", None, Some("0.2.0")),
            step("kube\nproxy", Some("0.1.0+\u{1b}[2J"), Some("0.2.0")),
        ]);
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows[1], ["kvstore", "n1", "0.1.0", "0.2.0"]);
        assert_eq!(rows[2], ["added", "n1", "-", "0.2.0"]);
        let escaped = ["kube\\nproxy", "n1", "0.1.0+\\u{1b}[2J", "0.2.0"];
        assert_eq!(rows[3], escaped, "controls of a terminal");
    }

    #[test]
    fn command_needs_a_directory_or_a_rollback() {
        for (options, valid) in [
            (&["--bin-dir=/new"][..], true),
            (&["--bin-dir=/new", "--dry-run", "--allow-downgrade"], true),
            (&["--rollback"], true),
            (&["--rollback", "--bin-dir=/new"], false),
            (&["--rollback", "--allow-downgrade"], false),
            (&[], false),
            (&["--bin-dir=/new", "--timeout=-1s"], false),
        ] {
            let words = ["ironclad", "upgrade"].iter().chain(options);
            assert_eq!(Cli::try_parse_from(words).is_ok(), valid, "{options:?}");
        }
        let cli = Cli::try_parse_from(["ironclad", "upgrade", "--rollback"]).unwrap();
        let Command::Upgrade(options) = cli.command else {
            unreachable!()
        };
        assert_eq!(options.timeout.as_secs(), 120);
    }
}
