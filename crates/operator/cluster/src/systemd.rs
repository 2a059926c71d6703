//! Starts and restarts the supervisor: by a systemd unit where systemd runs, else only by
//! `ironclad up`.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::command::run_command;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::process::{Record, Running, choose_grace};
use crate::settings::Settings;
use crate::supervisor_record::{NAME, running_supervisor};

/// Unit file with placeholders; `deploy/package` fills it too.
const UNIT_TEMPLATE: &str = include_str!("ironclad.service");

/// Grace period of the supervisor, which stops its processes one layer after the other: the API
/// server has 75 s, and four other layers have 15 s each. Also `TimeoutStopSec` of the unit.
const SUPERVISOR_GRACE: Duration = Duration::from_secs(150);

/// Returns whether systemd manages this machine and may be used.
pub fn is_systemd_running() -> bool {
    Path::new("/run/systemd/system").is_dir() && rustix::process::geteuid().is_root()
}

/// Returns the name of the cluster's unit.
pub fn unit_name(settings: &Settings) -> String {
    match settings.instance().as_str() {
        "" => "ironclad.service".to_owned(),
        word => format!("ironclad-{word}.service"),
    }
}

fn unit_path(settings: &Settings) -> PathBuf {
    Path::new("/etc/systemd/system").join(unit_name(settings))
}

/// Makes the supervisor read the plan: signals the running one, or starts one.
pub fn start_supervisor(settings: &Settings, layout: &Layout, program: &Path) -> Result<()> {
    if is_systemd_running() {
        // Also for a running supervisor: the unit must name the new program after an upgrade.
        install_unit(settings, program)?;
    }
    if let Some(record) = running_supervisor(layout) {
        return hang_up(&record);
    }
    if is_systemd_running() {
        return run_command("systemctl", &["start", &unit_name(settings)]).map(drop);
    }
    spawn_detached(settings, layout, program)
}

/// Makes the running supervisor read the plan. Returns false if none runs.
pub fn notify_supervisor(layout: &Layout) -> Result<bool> {
    match running_supervisor(layout) {
        Some(record) => hang_up(&record).map(|()| true),
        None => Ok(false),
    }
}

fn hang_up(record: &Record) -> Result<()> {
    let pid = rustix::process::Pid::from_raw(record.pid);
    // SIGHUP makes the supervisor read the plan; it starts, stops and restarts what differs.
    let sent = pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::HUP));
    match sent {
        Some(Ok(())) => Ok(()),
        _ => Err(Error::Refused(
            "the supervisor ended just now; run the command again".into(),
        )),
    }
}

fn install_unit(settings: &Settings, program: &Path) -> Result<()> {
    let text = unit_text(settings, program);
    let changed = crate::files::write_if_changed(&unit_path(settings), text.as_bytes())?;
    if changed {
        run_command("systemctl", &["daemon-reload"])?;
    }
    run_command("systemctl", &["enable", "--quiet", &unit_name(settings)]).map(drop)
}

/// Returns the unit file. Components survive a kill of the supervisor (`KillMode=process`) and are
/// adopted by the next one.
fn unit_text(settings: &Settings, program: &Path) -> String {
    let description = escape_text(&settings.data_dir.display().to_string());
    let data = quote_word(&format!("--data-dir={}", settings.data_dir.display()));
    let program = quote_word(&program.display().to_string());
    // The colon in the file disables the expansion of variables: a dollar sign is literal.
    let values = [
        ("@DESCRIPTION@", description),
        ("@PROGRAM@", program),
        ("@DATA@", data),
    ];
    UNIT_TEMPLATE
        .split_inclusive('\n')
        .map(|line| fill_line(line, &values))
        .collect()
}

/// Replaces the first placeholder of each kind in a line from left to right. Values are not
/// searched again: a path may contain the text of a placeholder.
fn fill_line(line: &str, values: &[(&str, String)]) -> String {
    let mut filled = String::with_capacity(line.len());
    let mut rest = line;
    for (placeholder, value) in values {
        if let Some((before, after)) = rest.split_once(placeholder) {
            filled.push_str(before);
            filled.push_str(value);
            rest = after;
        }
    }
    filled + rest
}

/// Quotes one word of a command line for systemd.service(5).
fn quote_word(word: &str) -> String {
    format!("\"{}\"", escape_text(word).replace('"', "\\\""))
}

/// Escapes backslashes, specifiers and control characters for systemd.
fn escape_text(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => escaped.push_str("\\\\"),
            '%' => escaped.push_str("%%"),
            // A line break in a path would otherwise begin a directive of its own.
            c if c.is_ascii_control() => escaped.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Starts a daemon without systemd: the caller exits, and the supervisor creates a session.
fn spawn_detached(settings: &Settings, layout: &Layout, program: &Path) -> Result<()> {
    crate::files::create_private_dir(&layout.logs())?;
    let log = layout.log(NAME);
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&log)
        .map_err(Error::io(&log))?;
    let errors = file.try_clone().map_err(Error::io(&log))?;
    Command::new(program)
        .arg("supervise")
        .arg("--data-dir")
        .arg(&settings.data_dir)
        // The directory of the caller could otherwise not be unmounted or removed.
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(errors)
        .spawn()
        .map(drop)
        .map_err(|error| Error::Command {
            command: format!("{} supervise", program.display()),
            reason: error.to_string(),
        })
}

/// Stops the supervisor, which stops the components. Components that a killed supervisor left are
/// stopped, too.
pub async fn stop_supervisor(settings: &Settings, layout: &Layout, names: &[String]) -> Result<()> {
    if is_systemd_running() && unit_path(settings).exists() {
        // A failure is ignored, since the record below finds the supervisor, too.
        let _ = run_command(
            "systemctl",
            &["disable", "--now", "--quiet", &unit_name(settings)],
        );
        let _ = tokio::fs::remove_file(unit_path(settings)).await;
        let _ = run_command("systemctl", &["daemon-reload"]);
    }
    if let Some(mut running) = Running::adopt(NAME, layout) {
        running.stop(SUPERVISOR_GRACE).await;
    }
    // Left by a supervisor that was killed; dependents stop before what they depend on.
    for name in names.iter().rev() {
        if let Some(mut running) = Running::adopt(name, layout) {
            running.stop(choose_grace(name)).await;
        }
        let _ = tokio::fs::remove_file(layout.record(name)).await;
    }
    let _ = tokio::fs::remove_file(layout.record(NAME)).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_quotes_paths_with_blanks_and_specifiers() {
        let settings = Settings {
            data_dir: "/srv/my \"data\" 100%\\\nx".into(),
            ..Settings::example()
        };
        let unit = unit_text(&settings, Path::new("/opt/iron clad/$bin/ironclad"));
        let line = unit.lines().find(|line| line.starts_with("ExecStart="));
        let expect = r#"ExecStart=:"/opt/iron clad/$bin/ironclad" supervise "--data-dir=/srv/my \"data\" 100%%\\\x0ax""#;
        assert_eq!(line, Some(expect));
    }

    #[test]
    fn unit_gives_the_supervisor_its_grace_period() {
        let line = format!("TimeoutStopSec={}\n", SUPERVISOR_GRACE.as_secs());
        assert!(UNIT_TEMPLATE.contains(&line));
    }

    #[test]
    fn text_of_a_path_is_not_taken_for_a_placeholder() {
        let values = [("@A@", "@B@".to_owned()), ("@B@", "b".to_owned())];
        assert_eq!(fill_line("@A@ @B@\n", &values), "@B@ b\n");
        assert_eq!(fill_line("plain\n", &values), "plain\n");
    }
}
