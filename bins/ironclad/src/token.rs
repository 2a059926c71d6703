//! The commands for bootstrap tokens.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context as _;
use api_bootstrap::{BootstrapToken, Expiration, TokenSecret, is_token_id};
use base_cli::{escape_controls, escape_json_controls};
use jiff::Timestamp;
use operator_cluster::TokenOptions;
use serde_json::{Value, json};

use crate::args::{CreateToken, DeleteToken, Folder, Output, Status, Token};

/// Executes the command.
pub async fn run_token_command(command: Token) -> anyhow::Result<()> {
    let text = match command {
        Token::Create(options) => create_token(options).await?,
        Token::List(options) => list_tokens(options).await?,
        Token::Delete(options) => delete_token(options).await?,
        Token::Generate => operator_cluster::generate_token()?.expose(),
    };
    // The only place that shows a whole token: its standard output is what the command is for.
    writeln!(std::io::stdout(), "{}", text.trim_end())?;
    Ok(())
}

fn data_dir(folder: Folder) -> std::io::Result<PathBuf> {
    std::path::absolute(folder.data_dir)
}

async fn create_token(options: CreateToken) -> anyhow::Result<String> {
    let token = TokenOptions {
        // `kubeadm token create` gives 0 the same meaning.
        lifetime: (!options.ttl.is_zero()).then_some(options.ttl),
        description: options.description,
    };
    let data_dir = data_dir(options.folder)?;
    if options.control_plane {
        let (created, key) =
            operator_cluster::create_control_plane_token(&data_dir, &token).await?;
        let command = operator_cluster::format_join_command(&data_dir, &created)?;
        // The two secrets are of use together only: the token reads the cipher text, the key opens
        // it.
        let key = key.expose();
        return Ok(match options.print_join_command {
            true => format!("{command} --control-plane --certificate-key {key}"),
            false => format!("{}\n{key}", created.expose()),
        });
    }
    let created = operator_cluster::create_token(&data_dir, &token).await?;
    if options.print_join_command {
        return Ok(operator_cluster::format_join_command(&data_dir, &created)?);
    }
    Ok(created.expose())
}

async fn list_tokens(options: Status) -> anyhow::Result<String> {
    let tokens = operator_cluster::list_tokens(&data_dir(options.folder)?).await?;
    let now = Timestamp::now();
    Ok(match options.output {
        Output::Json => format_json(&to_json(&tokens))?,
        Output::Text => format_table(&tokens, now),
    })
}

async fn delete_token(options: DeleteToken) -> anyhow::Result<String> {
    let id = parse_token_id(&options.id)?;
    operator_cluster::delete_token(&data_dir(options.folder)?, &id).await?;
    Ok(format!("token {id} deleted"))
}

/// Returns the ID of a token or ID. The error omits the text: it may be a mistyped secret.
fn parse_token_id(text: &str) -> anyhow::Result<String> {
    let id = match text.parse::<BootstrapToken>() {
        Ok(token) => token.id().to_owned(),
        Err(_) => text.to_owned(),
    };
    is_token_id(&id).then_some(id).context(
        "an ID is 6 lower-case letters or digits, the part of the token before the dot; `ironclad token list` shows all",
    )
}

fn list_usages(token: &TokenSecret) -> Vec<&'static str> {
    // The names of kubeadm, which stand for the entries `usage-bootstrap-*` of the Secret.
    let all = [
        ("authentication", token.authenticates),
        ("signing", token.signs),
    ];
    all.iter()
        .filter(|(_, is_set)| *is_set)
        .map(|(name, _)| *name)
        .collect()
}

/// Returns the time until a token expires, in kubectl's form, and its end.
fn describe_end(expiration: Expiration, now: Timestamp) -> (String, String) {
    match expiration {
        Expiration::Never => ("<forever>".to_owned(), "<never>".to_owned()),
        Expiration::Invalid => ("<invalid>".to_owned(), "<invalid>".to_owned()),
        Expiration::At(end) => {
            // An expired token is listed until the token cleaner deletes it.
            let left = end.as_second().saturating_sub(now.as_second()).max(0);
            (
                api_meta::time::human_duration(left),
                api_meta::time::format(end),
            )
        }
    }
}

fn format_table(tokens: &[TokenSecret], now: Timestamp) -> String {
    let mut text = format!(
        "{:<8}{:<12}{:<22}{:<24}DESCRIPTION\n",
        "ID", "TTL", "EXPIRES", "USAGES"
    );
    for token in tokens {
        let (left, end) = describe_end(token.expiration, now);
        text += &format!(
            "{:<8}{left:<12}{end:<22}{:<24}{}\n",
            token.token.id(),
            list_usages(token).join(","),
            escape_controls(&token.description)
        );
    }
    text
}

/// Formats JSON for a terminal: JSON itself requires no escape for control characters after U+001F.
fn format_json(value: &Value) -> serde_json::Result<String> {
    Ok(escape_json_controls(&serde_json::to_string_pretty(value)?))
}

fn to_json(tokens: &[TokenSecret]) -> Value {
    let token = |token: &TokenSecret| {
        let expires = match token.expiration {
            Expiration::At(end) => Some(api_meta::time::format(end)),
            Expiration::Never | Expiration::Invalid => None,
        };
        json!({
            "id": token.token.id(),
            "description": token.description,
            "expires": expires,
            "usages": list_usages(token),
            "groups": token.groups,
        })
    };
    tokens.iter().map(token).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::args::Cli;
    use clap::Parser as _;

    fn token(id: &str, expiration: Expiration) -> TokenSecret {
        TokenSecret {
            token: format!("{id}.0123456789abcdef").parse().unwrap(),
            description: "for node 7".to_owned(),
            expiration,
            signs: id == "aaaaaa",
            authenticates: true,
            groups: vec!["system:bootstrappers:a".to_owned()],
        }
    }

    #[test]
    fn list_shows_the_end_and_usages_of_each_token_but_no_secret() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let end = Expiration::At("2026-01-02T00:00:00Z".parse().unwrap());
        let tokens = [token("aaaaaa", end), token("bbbbbb", Expiration::Never)];
        let table = format_table(&tokens, now);
        let rows: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        let first = [
            "aaaaaa",
            "24h",
            "2026-01-02T00:00:00Z",
            "authentication,signing",
        ];
        assert_eq!(rows[1][..4], first);
        assert_eq!(
            rows[2][..4],
            ["bbbbbb", "<forever>", "<never>", "authentication"]
        );
        let json = to_json(&tokens);
        assert_eq!(json[0]["expires"], "2026-01-02T00:00:00Z");
        assert_eq!(json[1]["expires"], Value::Null);
        for text in [table, json.to_string()] {
            assert!(!text.contains("0123456789abcdef"), "{text}");
        }
    }

    #[test]
    fn list_shows_control_characters_of_a_description_as_text() {
        let description = "\u{1b}[2Jx\nffffff  <forever>".to_owned();
        let token = TokenSecret {
            description,
            ..token("aaaaaa", Expiration::Never)
        };
        let table = format_table(&[token], Timestamp::UNIX_EPOCH);
        assert_eq!(table.lines().count(), 2, "{table}");
        assert!(
            table.ends_with("\\u{1b}[2Jx\\nffffff  <forever>\n"),
            "{table}"
        );
    }

    #[test]
    fn json_shows_control_characters_of_a_description_as_escapes() {
        let description = "\u{1b}[2J\u{9b}2J\u{7f}\u{202e}x\n".to_owned();
        let token = TokenSecret {
            description: description.clone(),
            ..token("aaaaaa", Expiration::Never)
        };
        let text = format_json(&to_json(&[token])).unwrap();
        let shown = "\"\\u001b[2J\\u009b2J\\u007f\\u202ex\\n\"";
        assert!(text.contains(shown), "{text}");
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read[0]["description"], description);
    }

    #[test]
    fn token_is_named_by_its_public_part_and_a_mistyped_one_is_not_shown() {
        let words = ["ironclad", "token", "delete"];
        for (text, expected) in [
            ("abcdef", Some("abcdef")),
            ("abcdef.0123456789abcdef", Some("abcdef")),
            ("abcdef.0123", None),
            ("abcdef.0123456789abcdeX", None),
            ("ABCDEF", None),
            ("../x", None),
        ] {
            // The parser accepts any text, so that its message can't repeat a secret.
            assert!(
                Cli::try_parse_from(words.iter().chain(&[text])).is_ok(),
                "{text}"
            );
            match parse_token_id(text) {
                Ok(id) => assert_eq!(Some(id.as_str()), expected, "{text}"),
                Err(error) => {
                    assert_eq!(expected, None, "{text}");
                    assert!(!format!("{error:#}").contains(text), "{error:#}");
                }
            }
        }
    }
}
