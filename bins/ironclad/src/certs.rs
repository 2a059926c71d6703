//! The commands for certificates.

use std::io::Write;
use std::path::Path;

use base_cli::{escape_controls, escape_json_controls};
use jiff::Timestamp;
use operator_cluster::{CertificateFile, Renewer};

use crate::args::{Certs, Output};
use crate::progress::print_progress;

/// Executes the command.
pub async fn run_certs_command(command: Certs) -> anyhow::Result<()> {
    match command {
        Certs::List(options) => {
            let data_dir = std::path::absolute(options.folder.data_dir)?;
            let all = operator_cluster::list_certificates(&data_dir)?;
            let text = match options.output {
                // Names in a certificate that an administrator brought may hold control sequences.
                Output::Json => escape_json_controls(&serde_json::to_string_pretty(&all)?),
                Output::Text => format_table(&all, Timestamp::now()),
            };
            writeln!(std::io::stdout(), "{}", text.trim_end())?;
            // On standard error, so that standard output stays parseable as JSON.
            print_all_warnings(&all);
            Ok(())
        }
        Certs::Renew(options) => {
            let data_dir = std::path::absolute(options.folder.data_dir)?;
            let renewed =
                operator_cluster::renew_kubelet_certificates(&data_dir, &options.names).await?;
            let written = match renewed {
                Some(written) => written,
                None => operator_cluster::renew_certificates(&data_dir, &options.names)?,
            };
            print_progress(&format!("renewed: {}", written.join(", ")));
            print_progress("running components use them within about a minute, without a restart");
            if written.iter().any(|name| name == "admin") {
                // The kubeconfig embeds its certificate, so a copy does not follow the renewal.
                print_progress(
                    "copies of admin.kubeconfig have the old certificate: copy it again",
                );
            }
            Ok(())
        }
    }
}

/// Prints a warning for each certificate whose expiration is near. The commands that call it have
/// another purpose, so an error is a warning, too.
pub fn print_warnings(data_dir: &Path) {
    match operator_cluster::list_certificates(data_dir) {
        Ok(all) => print_all_warnings(&all),
        Err(error) => print_progress(&format!("warning: {error}")),
    }
}

fn print_all_warnings(all: &[CertificateFile]) {
    let now = Timestamp::now();
    for warning in all
        .iter()
        .filter_map(|certificate| certificate.warning(now))
    {
        print_progress(&format!("warning: {warning}"));
    }
}

fn format_table(all: &[CertificateFile], now: Timestamp) -> String {
    let mut text = format!(
        "{:<32}{:<34}{:<26}{:<12}{:<7}RENEWED BY\n",
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
            match (certificate.renewed_by, certificate.is_ca) {
                (Some(Renewer::Supervisor), _) => "supervisor",
                (Some(Renewer::Kubelet), _) => "kubelet",
                // Nothing renews a CA: all certificates that it signed would have to change with
                // it.
                (None, true) => "-",
                (None, false) => "- (unused)",
            },
        );
    }
    text
}
