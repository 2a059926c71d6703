//! Texts of expressions, most of which compile.

use crate::choices::Choices;

const LITERALS: [&str; 40] = [
    "1",
    "0",
    "-1",
    "true",
    "false",
    "null",
    "''",
    "'a'",
    "\"ü\\u00e9\"",
    "r'\\d+'",
    "b'\\xff'",
    "1u",
    "18446744073709551615u",
    "9223372036854775807",
    "-9223372036854775808",
    "1.5",
    "1e308",
    "0.0",
    "[]",
    "{}",
    "[1, 2, 3]",
    "['a', 'b']",
    "{'a': 1}",
    "{1: [2]}",
    "duration('1h')",
    "duration('-9223372036s')",
    "timestamp('2024-01-01T00:00:00Z')",
    "timestamp('9999-12-31T23:59:59Z')",
    "timestamp('0001-01-01T00:00:00Z')",
    "quantity('1Gi')",
    "quantity('9e9999')",
    "semver('1.2.3')",
    "ip('::1')",
    "cidr('10.0.0.0/8')",
    "url('https://h/p?q=1')",
    "optional.none()",
    "optional.of(1)",
    "type(1)",
    "int",
    "'(a+)+$'",
];

const VARIABLES: [&str; 8] = ["self", "s", "l", "m", "n", "d", "o", "t"];

const LOCALS: [&str; 4] = ["x", "x", "x", "y"];

const OPERATORS: [&str; 14] = [
    "+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "in",
];

/// Methods without arguments, with one and with two.
const METHODS: [&[&str]; 3] = [
    &[
        "size",
        "lowerAscii",
        "upperAscii",
        "trim",
        "reverse",
        "split",
        "sum",
        "min",
        "max",
        "isSorted",
        "flatten",
        "distinct",
        "sort",
        "value",
        "hasValue",
        "getFullYear",
        "getHours",
        "getMilliseconds",
        "isInteger",
        "asInteger",
        "asApproximateFloat",
        "sign",
        "family",
        "isLoopback",
        "prefixLength",
        "masked",
        "ip",
        "getHost",
        "getQuery",
        "major",
        "join",
        "first",
        "last",
        "or",
        "unwrap",
    ],
    &[
        "startsWith",
        "endsWith",
        "contains",
        "matches",
        "find",
        "findAll",
        "charAt",
        "indexOf",
        "lastIndexOf",
        "substring",
        "split",
        "join",
        "format",
        "orValue",
        "or",
        "getHours",
        "add",
        "sub",
        "isGreaterThan",
        "compareTo",
        "containsIP",
        "containsCIDR",
        "includes",
        "slice",
        "flatten",
        "sortBy",
    ],
    &[
        "replace",
        "substring",
        "findAll",
        "indexOf",
        "split",
        "slice",
        "lastIndexOf",
    ],
];

const FUNCTIONS: [&str; 32] = [
    "size",
    "string",
    "int",
    "uint",
    "double",
    "bytes",
    "bool",
    "type",
    "dyn",
    "duration",
    "timestamp",
    "quantity",
    "isQuantity",
    "semver",
    "isSemver",
    "ip",
    "isIP",
    "cidr",
    "isCIDR",
    "url",
    "isURL",
    "format.named",
    "strings.quote",
    "math.abs",
    "math.bitShiftLeft",
    "math.greatest",
    "math.ceil",
    "sets.contains",
    "sets.intersects",
    "lists.range",
    "optional.ofNonZeroValue",
    "format.dns1123Label().validate",
];

const MACROS: [&str; 8] = [
    "all",
    "exists",
    "exists_one",
    "filter",
    "map",
    "transformList",
    "transformMap",
    "optMap",
];

/// Tokens that only the lexer and the parser see.
const TOKENS: [&str; 30] = [
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ".",
    ",",
    "?",
    ":",
    "!",
    "-",
    "'",
    "\"",
    "\"\"\"",
    "r'",
    "b\"",
    "\\",
    "0x",
    "1e",
    "//",
    "\n",
    "&&",
    "||",
    "has(",
    ".?a",
    "[?0]",
    "`",
    "\u{0}",
    "\u{1f600}",
];

/// Builds an expression.
pub(crate) fn build_expression(choices: &mut Choices<'_>) -> String {
    let mut text = String::new();
    match choices.below(8) {
        7 => {
            for _ in 0..choices.below(60) {
                let token = match choices.below(3) {
                    0 => choices.pick(&TOKENS),
                    1 => choices.pick(&LITERALS),
                    _ => choices.pick(&VARIABLES),
                };
                text.push_str(token);
            }
        }
        6 => {
            let (open, close) = match choices.below(6) {
                0 => ("(", ")"),
                1 => ("[", "]"),
                2 => ("{1:", "}"),
                3 => ("!(", ")"),
                4 => ("[self].all(x,", ")"),
                _ => ("string(", ")"),
            };
            let count = choices.below(600);
            text.push_str(&open.repeat(count));
            write_expression(choices, 2, &mut text);
            text.push_str(&close.repeat(count));
        }
        _ => {
            let depth = 1 + choices.below(5);
            write_expression(choices, depth, &mut text);
        }
    }
    text
}

fn write_expression(choices: &mut Choices<'_>, depth: usize, out: &mut String) {
    if depth == 0 {
        return write_leaf(choices, out);
    }
    match choices.below(13) {
        0 | 1 => write_leaf(choices, out),
        2 | 3 => {
            out.push('(');
            write_expression(choices, depth - 1, out);
            out.push(' ');
            out.push_str(choices.pick(&OPERATORS));
            out.push(' ');
            write_expression(choices, depth - 1, out);
            out.push(')');
        }
        4 | 5 => {
            write_expression(choices, depth - 1, out);
            let arguments = choices.below(METHODS.len());
            out.push('.');
            out.push_str(choices.pick(METHODS.get(arguments).copied().unwrap_or_default()));
            write_arguments(choices, arguments, depth, out);
        }
        6 => {
            out.push_str(choices.pick(&FUNCTIONS));
            let arguments = 1 + choices.below(2);
            write_arguments(choices, arguments, depth, out);
        }
        7 | 8 => write_macro(choices, depth, out),
        9 => {
            write_expression(choices, depth - 1, out);
            out.push_str(if choices.hits(4) { "[?" } else { "[" });
            write_expression(choices, depth - 1, out);
            out.push(']');
        }
        10 => {
            write_expression(choices, depth - 1, out);
            out.push_str(choices.pick(&[".a", ".?a", ".spec", ".b.c"]));
        }
        11 => {
            write_expression(choices, depth - 1, out);
            out.push_str(" ? ");
            write_expression(choices, depth - 1, out);
            out.push_str(" : ");
            write_expression(choices, depth - 1, out);
        }
        _ => {
            let map = choices.hits(2);
            out.push(if map { '{' } else { '[' });
            for _ in 0..choices.below(3) {
                write_expression(choices, depth - 1, out);
                if map {
                    out.push(':');
                    write_expression(choices, depth - 1, out);
                }
                out.push(',');
            }
            write_leaf(choices, out);
            if map {
                out.push_str(": 1");
            }
            out.push(if map { '}' } else { ']' });
        }
    }
}

fn write_leaf(choices: &mut Choices<'_>, out: &mut String) {
    match choices.below(6) {
        // Of type `dyn`, which every operator and function accepts.
        0 | 1 => out.push_str(choices.pick(&["self", "o", "t", "m.a", "l[0]"])),
        2 => out.push_str(choices.pick(&VARIABLES)),
        // A local may not be declared here, which most expressions should not fail for.
        3 if choices.hits(2) => {
            let open = out.contains("(x, ");
            out.push_str(if open { choices.pick(&LOCALS) } else { "self" });
        }
        4 => out.push_str(choices.pick(&LITERALS)),
        _ => {
            out.push_str("dyn(");
            out.push_str(choices.pick(&LITERALS));
            out.push(')');
        }
    }
}

fn write_arguments(choices: &mut Choices<'_>, count: usize, depth: usize, out: &mut String) {
    out.push('(');
    for i in 0..count {
        if i > 0 {
            out.push_str(", ");
        }
        write_expression(choices, depth - 1, out);
    }
    out.push(')');
}

fn write_macro(choices: &mut Choices<'_>, depth: usize, out: &mut String) {
    if choices.hits(6) {
        out.push_str("has(");
        write_expression(choices, depth - 1, out);
        out.push_str(".a)");
        return;
    }
    write_expression(choices, depth - 1, out);
    let name = choices.pick(&MACROS);
    let two = name.starts_with("transform") || choices.hits(4);
    out.push_str(&format!(".{name}({}, ", choices.pick(&LOCALS)));
    if two {
        out.push_str("y, ");
    }
    write_expression(choices, depth - 1, out);
    out.push(')');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choices::random_bytes;

    #[test]
    fn text_of_no_choices_is_a_variable() {
        assert_eq!(build_expression(&mut Choices::new(&[])), "self");
    }

    #[test]
    fn all_macros_occur() {
        let texts = (0..500).map(|seed| build_expression(&mut Choices::new(&random_bytes(seed))));
        let all = texts.collect::<Vec<_>>().concat();
        for name in MACROS {
            assert!(all.contains(&format!(".{name}(")), "{name}");
        }
    }
}
