//! Checks a configuration file without a server: `kube-apiserver check-config`.
//!
//! A server that was started with a wrong file ends, so that an administrator's tool checks the
//! file before it restarts the server. The stock server has no such command.

use apiserver_authn::check_authentication_config;
use clap::Parser;
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The word after the name of the program. No command line of the stock server begins with it.
const WORD: &str = "check-config";

/// Checks a configuration file; starts no server.
#[derive(Debug, Parser)]
#[command(name = "kube-apiserver check-config")]
struct CheckOptions {
    /// AuthenticationConfiguration; - for standard input
    #[arg(long)]
    authentication_config: PathBuf,
    /// Issuers of ServiceAccount tokens, which the file may not name
    #[arg(long, value_delimiter = ',')]
    service_account_issuer: Vec<String>,
}

/// Executes the command of these arguments; None if they are those of a server. A file that can't
/// be used is one sentence on standard error.
pub fn check_config(arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.skip(1);
    if arguments.next()? != WORD {
        return None;
    }
    let words = std::iter::once(WORD.into()).chain(arguments);
    let options = match CheckOptions::try_parse_from(words) {
        Ok(options) => options,
        Err(error) => {
            // clap treats the help as an error, too.
            let _ = error.print();
            return Some(ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2)));
        }
    };
    Some(match options.check() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    })
}

impl CheckOptions {
    fn check(&self) -> Result<(), String> {
        let path = &self.authentication_config;
        let content = read_content(path).map_err(|error| format!("{}: {error}", path.display()))?;
        check_authentication_config(content, &self.service_account_issuer)
    }
}

fn read_content(path: &Path) -> std::io::Result<Vec<u8>> {
    if path != Path::new("-") {
        return std::fs::read(path);
    }
    let mut content = Vec::new();
    std::io::stdin().lock().read_to_end(&mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn check(words: &[&str]) -> Option<ExitCode> {
        check_config(
            std::iter::once(&"kube-apiserver")
                .chain(words)
                .map(OsString::from),
        )
    }

    #[test]
    fn server_is_started_unless_the_first_word_is_the_command() {
        for words in [
            &[][..],
            &["--etcd-servers=http://x"],
            &["-v", "check-config"],
        ] {
            assert_eq!(check(words), None, "{words:?}");
        }
    }

    #[test]
    fn file_is_accepted_or_refused_as_the_server_does() {
        const HEAD: &str =
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yaml");
        let flag = format!("--authentication-config={}", path.display());
        let jwt = |url: &str| {
            format!(
                "{HEAD}jwt:\n- issuer: {{url: {url}, audiences: [a]}}\n  claimMappings: {{username: {{claim: sub, prefix: ''}}}}\n"
            )
        };
        for (content, expected) in [
            (HEAD.to_owned(), ExitCode::SUCCESS),
            (jwt("https://login.example.com"), ExitCode::SUCCESS),
            (jwt("http://login.example.com"), ExitCode::FAILURE),
            // The issuer of ServiceAccounts.
            (jwt("https://accounts"), ExitCode::FAILURE),
            ("kind: Other\n".to_owned(), ExitCode::FAILURE),
        ] {
            std::fs::write(&path, &content).unwrap();
            let words = [WORD, &flag, "--service-account-issuer=https://accounts"];
            assert_eq!(check(&words), Some(expected), "{content}");
        }
        assert_eq!(
            check(&[WORD, "--authentication-config=/absent"]),
            Some(ExitCode::FAILURE)
        );
        assert_eq!(check(&[WORD]), Some(ExitCode::from(2)));
    }
}
