//! The commands for certificates.

use std::io::Write;
use std::path::Path;

use base_cli::{escape_controls, escape_json_controls};
use jiff::Timestamp;
use operator_cluster::CertificateFile;

use crate::args::{Certs, Output};
use crate::progress::print_progress;

/// Executes the command.
pub fn run_certs_command(command: Certs) -> anyhow::Result<()> {
    match command {
        Certs::List(options) => {
            let data_dir = std::path::absolute(options.folder.data_dir)?;
            let all = operator_cluster::list_certificates(&data_dir)?;
            let text = match options.output {
                Output::Json => escape_json_controls(&serde_json::to_string_pretty(&all)?),
                Output::Text => format_table(&all, Timestamp::now()),
            };
            writeln!(std::io::stdout(), "{}", text.trim_end())?;
            print_warnings(&data_dir)
        }
        Certs::Renew(folder) => {
            let data_dir = std::path::absolute(folder.data_dir)?;
            let (written, restarts) = operator_cluster::renew_certificates(&data_dir)?;
            print_progress(&format!("renewed: {}", written.join(", ")));
            print_progress(match restarts {
                true => "what uses them restarts now; `ironclad status` shows when it is ready",
                false => "the cluster does not run; `ironclad up` starts it",
            });
            print_progress("copies of admin.kubeconfig have the old certificate: copy it again");
            Ok(())
        }
    }
}

/// Prints a warning for each certificate whose end is near.
pub fn print_warnings(data_dir: &Path) -> anyhow::Result<()> {
    let now = Timestamp::now();
    let all = operator_cluster::list_certificates(data_dir)?;
    let warnings = all
        .iter()
        .filter_map(|certificate| certificate.warning(now));
    warnings.for_each(|text| print_progress(&format!("warning: {text}")));
    Ok(())
}

fn format_table(all: &[CertificateFile], now: Timestamp) -> String {
    let mut text = format!(
        "{:<32}{:<34}{:<26}{:<12}{:<7}RENEWED\n",
        "FILE", "SUBJECT", "ISSUER", "EXPIRES", "DAYS"
    );
    for certificate in all {
        text += &format!(
            "{:<32}{:<34}{:<26}{:<12}{:<7}{}\n",
            escape_controls(&certificate.name),
            escape_controls(&certificate.subject),
            escape_controls(&certificate.issuer),
            certificate.expires.strftime("%Y-%m-%d").to_string(),
            certificate.days_left(now),
            if certificate.is_renewed { "yes" } else { "no" },
        );
    }
    text
}
