//! Behaviour of a container, as a pure function of its configuration.

use proto_cri::v1::{ContainerConfig, PodSandboxConfig};
use std::time::Duration;

/// Time and exit code with which a container exits by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Behaviour {
    pub(crate) exits: Option<(Duration, i32)>,
}

pub(crate) fn of(config: &ContainerConfig, sandbox: &PodSandboxConfig) -> Behaviour {
    let note = |name: &str| {
        sandbox
            .annotations
            .get(&format!("simulated.ironclad/{name}"))
            .and_then(|v| v.parse().ok())
    };
    let code: Option<i32> = note("exit-code");
    let after: Option<i32> = note("exit-after");
    if code.is_some() || after.is_some() {
        let after = Duration::from_secs(u64::try_from(after.unwrap_or(0)).unwrap_or(0));
        return Behaviour {
            exits: Some((after, code.unwrap_or(0))),
        };
    }
    let words: Vec<&str> = config
        .command
        .iter()
        .chain(&config.args)
        .map(String::as_str)
        .collect();
    Behaviour {
        exits: of_words(&words),
    }
}

fn of_words(words: &[&str]) -> Option<(Duration, i32)> {
    match words {
        ["true"] => Some((Duration::ZERO, 0)),
        ["false"] => Some((Duration::ZERO, 1)),
        ["echo", ..] => Some((Duration::ZERO, 0)),
        ["sleep", seconds] => seconds.parse().ok().map(|s| (Duration::from_secs(s), 0)),
        ["exit", code] => code.parse().ok().map(|code| (Duration::ZERO, code)),
        [shell, "-c", script] if shell.ends_with("sh") => of_script(script),
        _ => None,
    }
}

/// Evaluates scripts of plain commands separated by `;`.
fn of_script(script: &str) -> Option<(Duration, i32)> {
    let mut total = Duration::ZERO;
    let mut last = 0;
    for command in script.split(';').map(str::trim).filter(|c| !c.is_empty()) {
        let words: Vec<&str> = command.split_whitespace().collect();
        let (time, code) = of_words(&words)?;
        total += time;
        last = code;
        if words.first() == Some(&"exit") {
            break;
        }
    }
    Some((total, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_commands() {
        for (words, want) in [
            (vec!["sleep", "3"], Some((3, 0))),
            (vec!["sh", "-c", "sleep 1; exit 4"], Some((1, 4))),
            (vec!["sh", "-c", "while :; do :; done"], None),
            (vec!["true"], Some((0, 0))),
            (vec!["/pause"], None),
        ] {
            let want = want.map(|(s, code)| (Duration::from_secs(s), code));
            assert_eq!(of_words(&words), want, "{words:?}");
        }
    }
}
