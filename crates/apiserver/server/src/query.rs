//! Query parameters.

use api_meta::{ApiError, Cause};
use percent_encoding::percent_decode_str;

/// The decoded parameters in their order.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the part of a URL after `?`.
    pub fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Query(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(k, v)| (decode_component(k), decode_component(v)))
                .collect(),
        )
    }

    /// Returns the first value of a parameter.
    pub fn first(&self, name: &str) -> Option<&str> {
        // Upstream's conversion of options also uses the first of repeated values.
        self.0
            .iter()
            .find(|(k, _)| k == name)
            .map(|(_, v)| v.as_str())
    }

    /// Returns the first value, empty if absent.
    pub fn text(&self, name: &str) -> &str {
        self.first(name).unwrap_or_default()
    }

    /// Returns all values of a parameter.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(k, _)| k == name)
            .map(|(_, v)| v.as_str())
    }

    /// Parses a boolean as Go does for queries: true if present and not `false` or `0`.
    pub fn flag(&self, name: &str) -> bool {
        self.first(name)
            .is_some_and(|value| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    /// Parses an optional boolean.
    pub fn switch(&self, name: &str) -> Option<bool> {
        self.first(name).map(|_| self.flag(name))
    }

    /// Parses an optional number.
    pub fn number(&self, name: &str) -> Result<Option<i64>, ApiError> {
        match self.first(name) {
            None | Some("") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| {
                ApiError::bad_request(format!(
                    "strconv.ParseInt: parsing {text:?}: invalid syntax"
                ))
            }),
        }
    }

    /// Parses `dryRun`; true if nothing is to be stored. `kind` names the options in the error.
    pub fn dry_run(&self, kind: &str) -> Result<bool, ApiError> {
        match self.all("dryRun").find(|value| *value != "All") {
            // The API has one value, `All`; it may be repeated.
            None => Ok(self.first("dryRun").is_some()),
            Some(other) => Err(unsupported_value(kind, "dryRun", other, &["All"])),
        }
    }
}

/// Builds a 422 for an option with an unknown value.
pub fn unsupported_value(kind: &str, field: &str, value: &str, known: &[&str]) -> ApiError {
    let known: Vec<String> = known.iter().map(|k| format!("{k:?}")).collect();
    let message = format!(
        "Unsupported value: {value:?}: supported values: {}",
        known.join(", ")
    );
    let cause = Cause {
        reason: "FieldValueNotSupported".into(),
        message,
        field: field.into(),
    };
    ApiError::invalid("meta.k8s.io", kind, "", vec![cause])
}

fn decode_component(text: &str) -> String {
    // In queries, unlike in paths, `+` is a space.
    let text = text.replace('+', " ");
    percent_decode_str(&text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query = Query::parse("a=b%20c&watch=true&x&d=1&d=2&a=z");
        assert_eq!(query.text("a"), "b c");
        assert!(query.flag("watch") && query.flag("x") && !query.flag("none"));
        assert_eq!(query.all("d").collect::<Vec<_>>(), ["1", "2"]);
        assert!(Query::parse("limit=x").number("limit").is_err());
    }
}
