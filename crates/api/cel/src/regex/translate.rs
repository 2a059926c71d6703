//! From RE2's syntax to that of the regex crate, which reads `\d` as Unicode and `[a&&b]` as a set
//! operation.

/// The greatest count of a repetition.
const MAX_REPEAT: u32 = 1_000;

/// Translates a pattern, or returns the reason why it is invalid.
pub fn translate_pattern(pattern: &str) -> Result<String, &'static str> {
    let mut output = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    let mut depth = 0_u32;
    // The pattern comes from clients, so the translation is one pass without a way back.
    while let Some(first) = rest.chars().next() {
        let after = rest.get(first.len_utf8()..).unwrap_or_default();
        depth = match first {
            '(' => depth + 1,
            // RE2's own messages are returned, since the other library's would differ from
            // upstream's.
            ')' => depth.checked_sub(1).ok_or("unexpected )")?,
            _ => depth,
        };
        rest = match first {
            '\\' => translate_escape(after, false, &mut output)?,
            '[' => translate_class(after, &mut output)?,
            '(' if after.starts_with('?') => {
                check_flags(after)?;
                output.push('(');
                after
            }
            '{' => translate_repeat(after, &mut output)?,
            other => {
                output.push(other);
                after
            }
        };
    }
    if depth > 0 {
        return Err("missing closing )");
    }
    Ok(output)
}

/// Rejects flags that only the regex crate has.
fn check_flags(after: &str) -> Result<(), &'static str> {
    let flags = after.trim_start_matches('?');
    // Flags end with `:` or `)`; `<` and `P` start the name of a group.
    let end = flags.find([':', ')', '<', 'P']).unwrap_or(flags.len());
    let flags = flags.get(..end).unwrap_or_default();
    // RE2 has only these. The crate's flags `x` and `R` would change the meaning of the pattern.
    if flags
        .chars()
        .all(|flag| matches!(flag, 'i' | 'm' | 's' | 'U' | '-'))
    {
        return Ok(());
    }
    Err("invalid or unsupported Perl syntax")
}

fn translate_repeat<'p>(after: &'p str, output: &mut String) -> Result<&'p str, &'static str> {
    let counts = after.split_once('}').map(|(counts, _)| counts);
    let is_count = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let valid = counts.is_some_and(|counts| match counts.split_once(',') {
        Some((low, high)) => is_count(low) && (high.is_empty() || is_count(high)),
        None => is_count(counts),
    });
    // RE2 reads a brace that starts no count as a character. The other library reports it.
    if !valid {
        output.push_str("\\{");
        return Ok(after);
    }
    let mut limits = counts
        .unwrap_or_default()
        .split(',')
        .filter(|count| !count.is_empty());
    // RE2's limit. Counts multiply when they are nested, and so would the memory of the compiled
    // pattern.
    if !limits.all(|count| count.parse::<u32>().is_ok_and(|count| count <= MAX_REPEAT)) {
        return Err("invalid repeat count");
    }
    output.push('{');
    Ok(after)
}

/// Returns the characters of a Perl class. In RE2, `\d`, `\w` and `\s` are ASCII, and all others
/// are in their negations.
fn expand_perl_class(letter: char) -> Option<&'static str> {
    Some(match letter {
        'd' => "0-9",
        'w' => "0-9A-Za-z_",
        's' => r"\t\n\f\r ",
        'D' => r"\x00-/:-\x{10ffff}",
        'W' => r"\x00-/:-@\[-\^`\{-\x{10ffff}",
        'S' => r"\x00-\x08\x0b\x0e-\x1f!-\x{10ffff}",
        _ => return None,
    })
}

/// Translates what follows a backslash, and returns the rest of the pattern.
fn translate_escape<'p>(
    after: &'p str,
    in_class: bool,
    output: &mut String,
) -> Result<&'p str, &'static str> {
    let Some(letter) = after.chars().next() else {
        return Err("trailing backslash at end of expression");
    };
    let rest = after.get(letter.len_utf8()..).unwrap_or_default();
    if let Some(class) = expand_perl_class(letter) {
        if in_class {
            output.push_str(class);
        } else {
            output.push('[');
            output.push_str(class);
            output.push(']');
        }
        return Ok(rest);
    }
    match letter {
        'Q' if !in_class => {
            // An unclosed `\Q` quotes the rest of the pattern.
            let (quoted, rest) = rest.split_once("\\E").unwrap_or((rest, ""));
            output.push_str(&regex::escape(quoted));
            return Ok(rest);
        }
        // A word boundary of RE2 knows only the word characters of ASCII.
        'b' if !in_class => output.push_str(r"(?-u:\b)"),
        'B' if !in_class => output.push_str(r"(?-u:\B)"),
        'A' | 'z' if !in_class => {
            output.push('\\');
            output.push(letter);
        }
        'x' | 'p' | 'P' if rest.starts_with('{') => {
            let end = rest.find('}').ok_or("invalid escape sequence")?;
            let (name, rest) = rest
                .split_at_checked(end + 1)
                .ok_or("invalid escape sequence")?;
            output.push('\\');
            output.push(letter);
            output.push_str(name);
            return Ok(rest);
        }
        'a' | 'f' | 't' | 'n' | 'r' | 'v' | 'x' | 'p' | 'P' => {
            output.push('\\');
            output.push(letter);
        }
        '0'..='7' => return translate_octal(after, output),
        other if other.is_ascii_alphanumeric() => return Err("invalid escape sequence"),
        // In the regex crate, the escaped characters are boundaries of a word.
        '<' | '>' => output.push(letter),
        other if other.is_ascii() => {
            output.push('\\');
            output.push(other);
        }
        other => output.push(other),
    }
    Ok(rest)
}

fn translate_octal<'p>(after: &'p str, output: &mut String) -> Result<&'p str, &'static str> {
    let length = after
        .bytes()
        .take(3)
        .take_while(|digit| matches!(digit, b'0'..=b'7'))
        .count();
    // RE2 reads a single digit other than 0 as a back-reference, which it does not support.
    if !after.starts_with('0') && length < 2 {
        return Err("invalid escape sequence");
    }
    let (digits, rest) = after
        .split_at_checked(length)
        .ok_or("invalid escape sequence")?;
    let code = u32::from_str_radix(digits, 8).map_err(|_| "invalid escape sequence")?;
    output.push_str(&format!("\\x{{{code:x}}}"));
    Ok(rest)
}

/// Translates a character class after its opening bracket.
fn translate_class<'p>(after: &'p str, output: &mut String) -> Result<&'p str, &'static str> {
    output.push('[');
    let mut rest = after;
    if let Some(negated) = rest.strip_prefix('^') {
        output.push('^');
        rest = negated;
    }
    // A bracket in the first place is a character of the class.
    if let Some(closing) = rest.strip_prefix(']') {
        output.push_str("\\]");
        rest = closing;
    }
    while let Some(first) = rest.chars().next() {
        let next = rest.get(first.len_utf8()..).unwrap_or_default();
        rest = match first {
            ']' => {
                output.push(']');
                return Ok(next);
            }
            '\\' => translate_escape(next, true, output)?,
            '[' if next.starts_with(':') && next.contains(":]") => {
                let end = next.find(":]").map_or(0, |end| end + 2);
                let (name, next) = next
                    .split_at_checked(end)
                    .ok_or("invalid character class")?;
                output.push('[');
                output.push_str(name);
                next
            }
            // Nested classes and set operations in the regex crate, plain characters in RE2.
            '[' | '&' | '~' => {
                output.push('\\');
                output.push(first);
                next
            }
            // The crate reads `--` as a set difference.
            '-' if next.starts_with('-') => {
                output.push_str("\\-");
                next
            }
            other => {
                output.push(other);
                next
            }
        };
    }
    Err("missing closing ]")
}
