//! `apiVersion`s: a version, with an optional group before it.

use api_meta::names;

const FORM: &str = "an apiVersion is a DNS-1035 label, which must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyVersion')";

/// Returns the problems of an `apiVersion`.
pub(crate) fn find_api_version_problems(api_version: &str) -> Vec<String> {
    let parts: Vec<&str> = api_version.split('/').collect();
    let (group, version) = match parts.as_slice() {
        [version] => (None, *version),
        [group, version] => (Some(*group), *version),
        _ => return vec![FORM.to_owned()],
    };
    let describe = |part: &str, text: &str, problems: Vec<String>| -> Vec<String> {
        match text {
            "" => vec![format!("{part} part: must be non-empty")],
            _ => problems
                .into_iter()
                .map(|problem| format!("{part} part: {problem}"))
                .collect(),
        }
    };
    let mut problems = group.map_or(Vec::new(), |group| {
        describe("group", group, names::dns1123_subdomain(group))
    });
    problems.extend(describe("version", version, names::dns1035_label(version)));
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_versions_have_an_optional_group() {
        for (text, count) in [
            ("v1", 0),
            ("example.com/v1", 0),
            ("", 1),
            ("/v1", 1),
            ("example.com/", 1),
            ("a/b/c", 1),
            ("V1", 1),
            ("_/1", 2),
        ] {
            assert_eq!(find_api_version_problems(text).len(), count, "{text:?}");
        }
    }
}
