//! Formats errors as one sentence: each cause once, and the nearest known word instead of a list of
//! all.

use clap::error::ErrorKind;

use crate::terminal::escape_controls;

/// Formats an error with its causes. A cause that an outer text contains is omitted. A list of all
/// known names, as deserialisers produce it, is replaced by the nearest one. Characters that
/// control a terminal are escaped: a cause may have the text of a server.
pub(crate) fn format_error(error: &anyhow::Error) -> String {
    let mut sentence = String::new();
    for cause in error.chain() {
        let text = one_line(&cause.to_string());
        // Some libraries repeat the cause in the outer text, others extend the outer text in the
        // cause.
        if text.starts_with(&sentence) {
            sentence = text;
        } else if !sentence.contains(&text) {
            sentence = format!("{sentence}: {text}");
        }
    }
    escape_controls(&shorten_name_list(&sentence))
}

/// Formats a usage error. `program` is the command whose help is recommended.
pub(crate) fn format_usage_error(error: &clap::Error, program: &str) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return format!(
            "something is missing on the command line: `{program} --help` lists what there is"
        );
    }
    let text = error.render().to_string();
    let lines = text
        .lines()
        .map(str::trim)
        // clap's usage line lists all flags, which for a kubelet fills the screen.
        .take_while(|l| !l.starts_with("Usage:") && !l.starts_with("For more"));
    let sentence = lines
        .filter(|line| !line.is_empty())
        .fold(String::new(), |sentence, line| {
            let line = line.strip_prefix("error: ").unwrap_or(line);
            match line.strip_prefix("tip: ") {
                Some(tip) => format!("{sentence}; {tip}"),
                None if sentence.is_empty() => line.to_owned(),
                None => format!("{sentence} {line}"),
            }
        });
    format!("{sentence}; `{program} --help` lists what there is")
}

/// Returns the word of `known` with the smallest edit distance to `word`.
pub fn nearest_word<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        // Case does not count: `clusterCidr` for `clusterCIDR` is the most frequent mistake.
        .min_by_key(|candidate| edit_distance(&word.to_lowercase(), &candidate.to_lowercase()))
}

fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let (mut diagonal, mut left) = (i, i + 1);
        for (y, above) in b.iter().zip(row.iter_mut().skip(1)) {
            let cost = (diagonal + usize::from(x != *y))
                .min(*above + 1)
                .min(left + 1);
            (diagonal, left) = (*above, cost);
            *above = cost;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

fn one_line(text: &str) -> String {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Shortens "unknown field `x`, expected one of `a`, `b`, ... at line 3" to the nearest name.
fn shorten_name_list(text: &str) -> String {
    const LIST: &str = ", expected one of ";
    let Some((head, rest)) = text.split_once(LIST) else {
        return text.to_owned();
    };
    // serde ends the list with a backquote; a position in the file may follow.
    let Some((list, tail)) = rest.rsplit_once('`') else {
        return text.to_owned();
    };
    let Some(unknown) = head.rsplit('`').nth(1) else {
        return text.to_owned();
    };
    let known = list
        .split('`')
        .filter(|word| !word.is_empty() && *word != ", ");
    match nearest_word(unknown, known) {
        Some(near) => format!("{head}{tail}; the nearest known one is `{near}`"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::Parser;

    #[derive(Parser, Debug)]
    #[command(name = "x")]
    struct Flags {
        #[arg(long, required = true)]
        listen_urls: Vec<u16>,
    }

    fn usage_error(words: &[&str]) -> String {
        format_usage_error(&Flags::try_parse_from(words).unwrap_err(), "x")
    }

    #[test]
    fn usage_error_is_one_sentence() {
        let cases: [(&[&str], &str); 3] = [
            (
                &["x", "--listen-url=1"],
                "unexpected argument '--listen-url' found; a similar argument exists: '--listen-urls'; ",
            ),
            (
                &["x", "--listen-urls=a"],
                "invalid value 'a' for '--listen-urls <LISTEN_URLS>': invalid digit found in string; ",
            ),
            (
                &["x"],
                "the following required arguments were not provided: --listen-urls <LISTEN_URLS>; ",
            ),
        ];
        for (words, want) in cases {
            assert_eq!(
                usage_error(words),
                format!("{want}`x --help` lists what there is")
            );
        }
    }

    #[test]
    fn each_cause_appears_once_in_the_sentence() {
        let error = anyhow::anyhow!("no such file")
            .context("can't read a: no such file")
            .context("the start failed");
        assert_eq!(
            format_error(&error),
            "the start failed: can't read a: no such file"
        );
        let error = anyhow::anyhow!("file a: no b").context("file a");
        assert_eq!(format_error(&error), "file a: no b");
    }

    #[test]
    fn text_of_a_server_does_not_control_the_terminal() {
        let error =
            anyhow::anyhow!("\u{1b}]0;owned\u{7}\u{9b}2J\r\u{202e}").context("the server answered");
        assert_eq!(
            format_error(&error),
            "the server answered: \\u{1b}]0;owned\\u{7}\\u{9b}2J\\r\\u{202e}"
        );
    }

    #[test]
    fn list_of_known_names_is_replaced_by_the_nearest() {
        let error = anyhow::anyhow!(
            "unknown field `clusterCidr`, expected one of `kind`, `clusterCIDR`, `mode` at line 3"
        );
        assert_eq!(
            format_error(&error),
            "unknown field `clusterCidr` at line 3; the nearest known one is `clusterCIDR`"
        );
        assert_eq!(
            nearest_word("NodeResourceFit", ["NodeName", "NodeResourcesFit"]),
            Some("NodeResourcesFit")
        );
        assert_eq!(nearest_word("x", []), None);
    }
}
