//! Descriptions of enumeration values, which upstream appends to the descriptions of fields.
//!
//! They are data beside the schema's (`tools/extract -sentences`), because the crate with the other
//! descriptions lacks them.

use api_schema::Enum;

/// Lines `ENUM<tab>VALUE<tab>SENTENCE`, sorted.
const DATA: &str = include_str!("../data/values.txt");

/// Appends the values to the description of a field.
pub(crate) fn describe_values(text: &str, values: &Enum) -> String {
    let mut lines: Vec<String> = values
        .values
        .iter()
        .map(|value| format!(" - `\"{value}\"` {}", find_sentence(values.name, value)))
        .collect();
    // Upstream's generator sorts the values, while the schema has them in the order of the source.
    lines.sort();
    // Upstream's generator trims white space at the end, and separates the values by an empty line.
    format!("{text}\n\nPossible enum values:\n{}", lines.join("\n"))
        .trim_end()
        .to_owned()
}

fn find_sentence(name: &str, value: &str) -> &'static str {
    DATA.lines()
        .filter_map(|line| {
            line.strip_prefix(name)?
                .strip_prefix('\t')?
                .split_once('\t')
        })
        .find(|(key, _)| *key == value)
        .map_or("", |(_, sentence)| sentence)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn values_are_described() {
        let port = api_schema::schema()
            .message("k8s.io.api.core.v1.ServicePort")
            .unwrap();
        let text = describe_values("Which.", port.field("protocol").unwrap().values.unwrap());
        let want = "Which.\n\nPossible enum values:\n - `\"SCTP\"` is the SCTP protocol.\n - `\"TCP\"` is the TCP protocol.\n \
                    - `\"UDP\"` is the UDP protocol.";
        assert_eq!(text, want);
    }
}
