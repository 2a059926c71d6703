//! The command that looks for problems.

use std::io::Write;

use anyhow::bail;
use base_cli::{escape_controls, escape_json_controls};
use operator_cluster::{Diagnosis, Severity};

use crate::args::{Output, Status};

/// Executes the command.
pub async fn run_doctor(options: Status) -> anyhow::Result<()> {
    let data_dir = std::path::absolute(options.folder.data_dir)?;
    let diagnosis = operator_cluster::diagnose(&data_dir).await?;
    let text = match options.output {
        Output::Json => format_json(&diagnosis)?,
        Output::Text => format_findings(&diagnosis),
    };
    writeln!(std::io::stdout(), "{}", text.trim_end())?;
    // Warnings do not change the exit code, by which a script sees that the cluster works.
    let errors = diagnosis.findings.iter();
    match errors
        .filter(|finding| finding.severity == Severity::Error)
        .count()
    {
        0 => Ok(()),
        1 => bail!("one problem keeps a part of the cluster from working"),
        errors => bail!("{errors} problems keep parts of the cluster from working"),
    }
}

fn format_json(diagnosis: &Diagnosis) -> anyhow::Result<String> {
    let json = serde_json::to_string_pretty(diagnosis)?;
    Ok(escape_json_controls(&json))
}

fn format_findings(diagnosis: &Diagnosis) -> String {
    let mut text = String::new();
    for finding in &diagnosis.findings {
        let severity = match finding.severity {
            Severity::Error => "ERROR",
            Severity::Warning => "WARNING",
        };
        // Messages come from objects that others write.
        text += &format!(
            "{severity:<9}{}: {}\n         {}\n",
            escape_controls(&finding.subject),
            escape_controls(&finding.problem),
            escape_controls(&finding.remedy)
        );
    }
    let count = match diagnosis.findings.len() {
        0 => "no problems".to_owned(),
        1 => "1 problem".to_owned(),
        count => format!("{count} problems"),
    };
    text + &format!("examined {}: {count}\n", diagnosis.examined.join(", "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use operator_cluster::Finding;

    use super::*;

    fn diagnosis() -> Diagnosis {
        let hostile = "\u{1b}[2J\u{9b}2J\u{202e}x\nERROR: forged".to_owned();
        Diagnosis {
            examined: vec!["pods"],
            findings: vec![Finding {
                severity: Severity::Warning,
                subject: hostile.clone(),
                problem: hostile.clone(),
                remedy: hostile,
            }],
        }
    }

    #[test]
    fn control_characters_that_a_tenant_wrote_do_not_reach_the_terminal() {
        let text = format_findings(&diagnosis());
        assert_eq!(text.lines().count(), 3, "{text}");
        let json = format_json(&diagnosis()).unwrap();
        assert!(text.contains("\\u{1b}[2J"), "{text}");
        assert!(json.contains("\\u001b[2J"), "{json}");
        for shown in [&text, &json] {
            assert!(!shown.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{shown}");
        }
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            read["findings"][0]["problem"],
            diagnosis().findings[0].problem
        );
    }
}
