//! Output of figures.

use crate::figures::{Figure, Quantity};
use anyhow::{Context, Result};
use std::io::Write;
use std::path::Path;

/// Prints a line.
pub fn print_line(line: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}

/// Prints the latency of the disk.
pub fn print_disk_latency(latencies: &[[f64; 3]]) -> Result<()> {
    print_line("| fdatasync on this disk | p50 ms | mean ms | p99 ms |\n|---|---|---|---|")?;
    for (what, [p50, mean, p99]) in ["file that grows", "blocks written before"]
        .iter()
        .zip(latencies)
    {
        print_line(&format!("| {what} | {p50:.2} | {mean:.2} | {p99:.2} |"))?;
    }
    print_line("")
}

/// Prints a table, with the ratio to etcd if it was measured.
pub fn print_table(figures: &[Figure]) -> Result<()> {
    if figures.is_empty() {
        return Ok(());
    }
    print_line(
        "| work | members | clients | server | a second | p50 ms | p99 ms | server CPU us | client CPU us | against etcd |",
    )?;
    print_line("|---|---|---|---|---|---|---|---|---|---|")?;
    for figure in figures {
        let peer = figures.iter().find(|other| {
            other.server == "etcd"
                && other.work == figure.work
                && other.clients == figure.clients
                && other.members == figure.members
        });
        let ratio = match peer {
            Some(peer) if figure.server != "etcd" => format!(
                "{:.2}x, p99 {:.2}x, CPU {:.2}x",
                figure.ops_per_second() / peer.ops_per_second(),
                figure.p99_ms / peer.p99_ms,
                figure.cpu_per_op() / peer.cpu_per_op()
            ),
            _ => String::new(),
        };
        let Figure {
            server,
            members,
            work,
            clients,
            p50_ms,
            p99_ms,
            ..
        } = figure;
        print_line(&format!(
            "| {work} | {members} | {clients} | {server} | {:.0} | {p50_ms:.2} | {p99_ms:.2} | {:.1} | {:.1} | {ratio} |",
            figure.ops_per_second(),
            figure.cpu_per_op(),
            figure.client_cpu_per_op()
        ))?;
    }
    print_line("")
}

/// Prints quantities, one per line, with the servers side by side.
pub fn print_quantities(found: &[Quantity]) -> Result<()> {
    let mut servers: Vec<&str> = Vec::new();
    let mut whats: Vec<(&str, &str)> = Vec::new();
    for Quantity {
        server, what, unit, ..
    } in found
    {
        if !servers.contains(&server.as_str()) {
            servers.push(server);
        }
        if !whats.contains(&(what, unit)) {
            whats.push((what, unit));
        }
    }
    if servers.is_empty() {
        return Ok(());
    }
    print_line(&format!(
        "| what | {} |\n|---|{}",
        servers.join(" | "),
        "---|".repeat(servers.len())
    ))?;
    for (what, unit) in whats {
        let cell = |server: &&str| match found
            .iter()
            .find(|found| found.server == **server && found.what == what)
        {
            Some(found) => format!("{:.1} {unit}", found.value),
            None => String::new(),
        };
        print_line(&format!(
            "| {what} | {} |",
            servers.iter().map(cell).collect::<Vec<_>>().join(" | ")
        ))?;
    }
    print_line("")
}

/// Writes the figures as JSON.
pub fn write_json(
    path: &Path,
    disks: &[[f64; 3]],
    figures: &[Figure],
    quantities: &[Quantity],
) -> Result<()> {
    let all =
        serde_json::json!({ "fdatasync_ms": disks, "figures": figures, "quantities": quantities });
    std::fs::write(path, serde_json::to_string_pretty(&all)?)
        .with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn json_has_the_disk_the_figures_and_the_quantities() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("figures.json");
        let figure = Figure {
            server: "kvstore".to_owned(),
            work: "put".to_owned(),
            ..Figure::default()
        };
        let quantity = Quantity {
            server: "kvstore".to_owned(),
            what: "RSS idle".to_owned(),
            value: 9.5,
            unit: "MiB",
        };
        write_json(&path, &[[1.0, 2.0, 3.0]], &[figure], &[quantity]).unwrap();
        let found: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(found["fdatasync_ms"][0][2], 3.0);
        assert_eq!(found["figures"][0]["work"], "put");
        assert_eq!(found["quantities"][0]["value"], 9.5);
        assert!(
            write_json(folder.path(), &[], &[], &[]).is_err(),
            "a directory"
        );
    }
}
