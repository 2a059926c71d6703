//! The commands for bootstrap tokens.

use std::io::Write;
use std::path::PathBuf;

use api_bootstrap::{Expiration, TokenSecret};
use jiff::Timestamp;
use operator_cluster::TokenOptions;
use serde_json::{Value, json};

use crate::args::{CreateToken, DeleteToken, Folder, Output, Status, Token};

/// Executes the command.
pub async fn run_token_command(command: Token) -> anyhow::Result<()> {
    let text = match command {
        Token::Create(options) => create(options).await?,
        Token::List(options) => list(options).await?,
        Token::Delete(options) => delete(options).await?,
        Token::Generate => operator_cluster::generate_token()?.expose(),
    };
    // The only place that shows a whole token: its standard output is what the command is for.
    writeln!(std::io::stdout(), "{}", text.trim_end())?;
    Ok(())
}

fn data_dir(folder: Folder) -> std::io::Result<PathBuf> {
    std::path::absolute(folder.data_dir)
}

async fn create(options: CreateToken) -> anyhow::Result<String> {
    let token = TokenOptions {
        lifetime: (!options.ttl.is_zero()).then_some(options.ttl),
        description: options.description,
    };
    let created = operator_cluster::create_token(&data_dir(options.folder)?, &token).await?;
    Ok(created.expose())
}

async fn list(options: Status) -> anyhow::Result<String> {
    let tokens = operator_cluster::list_tokens(&data_dir(options.folder)?).await?;
    let now = Timestamp::now();
    Ok(match options.output {
        Output::Json => serde_json::to_string_pretty(&to_json(&tokens))?,
        Output::Text => format_table(&tokens, now),
    })
}

async fn delete(options: DeleteToken) -> anyhow::Result<String> {
    operator_cluster::delete_token(&data_dir(options.folder)?, &options.id).await?;
    Ok(format!("token {} deleted", options.id))
}

fn usages(token: &TokenSecret) -> Vec<&'static str> {
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
            usages(token).join(","),
            token.description
        );
    }
    text
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
            "usages": usages(token),
            "groups": token.groups,
        })
    };
    tokens.iter().map(token).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

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
}
