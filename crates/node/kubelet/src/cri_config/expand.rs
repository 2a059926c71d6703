//! Expands `$(NAME)` in commands, arguments, environment and sub-paths. `$$` is a dollar sign;
//! unknown names stay.

/// Expands `text`; `lookup` returns the value of a name.
pub(crate) fn expand_references<'a>(
    text: &str,
    lookup: impl Fn(&str) -> Option<&'a str>,
) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        // A doubled dollar sign is not a reference, whatever follows.
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        let reference = rest
            .strip_prefix('(')
            .and_then(|r| r.find(')').map(|end| (&r[..end], &r[end + 1..])));
        match reference {
            Some((name, after)) => {
                match lookup(name) {
                    Some(value) => out.push_str(value),
                    None => out.extend(["$(", name, ")"]),
                }
                rest = after;
            }
            // A dollar sign without a closed parenthesis is plain text.
            None => out.push('$'),
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_references_are_expanded() {
        let lookup = |name: &str| (name == "A").then_some("x");
        for (text, want) in [
            ("$(A)y", "xy"),
            ("$$(A)", "$(A)"),
            ("$(NOPE)", "$(NOPE)"),
            ("a$b$(A", "a$b$(A"),
            ("$$$$(A)$$$(A)", "$$(A)$x"),
            ("end$", "end$"),
        ] {
            assert_eq!(expand_references(text, lookup), want, "{text}");
        }
    }
}
