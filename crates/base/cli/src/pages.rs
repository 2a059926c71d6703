//! Shell completions and manual pages of every program.

use clap::{Command, CommandFactory, Parser};
use clap_complete::Shell;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// Line at the end of the help text.
const HINT: &str = "Completions: NAME completion bash. Manual pages: NAME man DIRECTORY.";

/// A request for pages about the program itself.
#[derive(Debug, PartialEq, Eq)]
enum Pages<'a> {
    Completion(Shell),
    Manual(&'a Path),
}

/// Serves `NAME completion SHELL` and `NAME man DIRECTORY`; returns None for any other command
/// line. The words are not subcommands, because the stock programs of these names have none.
pub(crate) fn serve_pages<A: Parser>(name: &str, arguments: &[OsString]) -> Option<ExitCode> {
    let command = describe_command::<A>(name);
    let pages = requested_pages(&command, arguments)?;
    Some(match write_pages(command, name, pages) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{name}: {e}");
            ExitCode::FAILURE
        }
    })
}

/// Returns the program's command with the hint on its pages.
pub(crate) fn describe_command<A: CommandFactory>(name: &str) -> Command {
    A::command().after_help(HINT.replace("NAME", name))
}

fn requested_pages<'a>(command: &Command, arguments: &'a [OsString]) -> Option<Pages<'a>> {
    // Exactly two words: a component with flags never has this form, so that no command line of the
    // stock component changes its meaning.
    let [_, word, value] = arguments else {
        return None;
    };
    if command
        .get_subcommands()
        // A program with such a subcommand of its own keeps it.
        .any(|known| word == known.get_name())
    {
        return None;
    }
    match word.to_str()? {
        "completion" => value.to_str()?.parse().ok().map(Pages::Completion),
        "man" => Some(Pages::Manual(Path::new(value))),
        _ => None,
    }
}

fn write_pages(mut command: Command, name: &str, pages: Pages<'_>) -> Result<(), String> {
    match pages {
        Pages::Completion(shell) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command, name, &mut script);
            // A closed pipe (`| head`) is no failure.
            let _ = std::io::stdout().write_all(&script);
            Ok(())
        }
        Pages::Manual(directory) => {
            let failure = |e| {
                format!(
                    "manual pages can't be written to {}: {e}",
                    directory.display()
                )
            };
            std::fs::create_dir_all(directory).map_err(failure)?;
            clap_mangen::generate_to(command, directory).map_err(failure)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn pages_are_served_for_exactly_two_words() {
        let plain = Command::new("kubelet");
        let own = Command::new("ironclad").subcommand(Command::new("man"));
        let manual = Some(Pages::Manual(Path::new("d")));
        for (command, words, expected) in [
            (
                &plain,
                ["completion", "bash"].as_slice(),
                Some(Pages::Completion(Shell::Bash)),
            ),
            (&plain, &["completion", "tcl"], None),
            (&plain, &["completion"], None),
            (&plain, &["man", "d"], manual),
            (&plain, &["man", "d", "more"], None),
            (&plain, &["--v", "2"], None),
            (&own, &["man", "d"], None),
        ] {
            let all = std::iter::once(&"name").chain(words);
            let arguments: Vec<OsString> = all.map(OsString::from).collect();
            assert_eq!(requested_pages(command, &arguments), expected, "{words:?}");
        }
    }

    #[test]
    fn manual_page_is_written_per_program() {
        let directory = std::env::temp_dir().join(format!("pages-{}", std::process::id()));
        write_pages(
            Command::new("kubelet"),
            "kubelet",
            Pages::Manual(&directory),
        )
        .unwrap();
        let page = std::fs::read_to_string(directory.join("kubelet.1")).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(page.contains("kubelet"), "{page}");
    }
}
