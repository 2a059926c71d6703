#!/usr/bin/env python3
"""Prints figures of the Rust code in a directory: sizes of functions and files, names, comments, tests.

    code.py [DIRECTORY ...]      default: crates bins

Test code is what stands in directories `tests`, `*_tests`, `testkit`, `benches`, `fuzz`, `sim`, in files named tests.rs or *_tests.rs, and in
modules marked `#[cfg(test)]`. Everything else is production code. Generated and vendored directories (`target`) are left out.
"""
import pathlib
import re
import statistics
import sys

TEST_PARTS = {"tests", "testkit", "benches", "fuzz", "sim", "examples"}


def mask(text):
    """Replaces the contents of comments, strings and character literals by blanks of the same length."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|\bb?r(#*)".*?"\1|b?"(?:[^"\\]|\\.)*"|b?\'(?:[^\'\\\n]|\\[^\n]{1,9})\'', re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)


def closing(text, start):
    """Returns the position after the bracket that closes the one at `start`."""
    depth = 0
    for at in range(start, len(text)):
        if text[at] in "{([":
            depth += 1
        elif text[at] in "})]":
            depth -= 1
            if depth == 0:
                return at + 1
    return len(text)


def without_test_modules(text, masked):
    for found in reversed(list(re.finditer(r"#\[cfg\((?:all\()?test\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([a-z]+\))? )?mod \w+ \{", masked))):
        end = closing(masked, found.end() - 1)
        text, masked = text[:found.start()] + text[end:], masked[:found.start()] + masked[end:]
    return text, masked


def functions(masked):
    """Yields name, lines and number of parameters without self of each function with a body."""
    for found in re.finditer(r"\bfn (\w+)", masked):
        opening = masked.find("(", found.end())
        generic = masked.find("<", found.end())
        if 0 <= generic < opening:
            depth, at = 0, generic
            while at < len(masked):
                if masked[at] == "<":
                    depth += 1
                elif masked[at] == ">" and masked[at - 1] not in "-=":
                    depth -= 1
                    if depth == 0:
                        break
                at += 1
            opening = masked.find("(", at)
        if opening < 0:
            continue
        end = closing(masked, opening)
        body = re.compile(r"[{;]").search(masked, end)
        if not body or body.group() == ";":
            continue
        finish = closing(masked, body.start())
        inside, depth, parts, last = masked[opening + 1:end - 1], 0, [], 0
        for at, letter in enumerate(inside):
            if letter in "([{<":
                depth += 1
            elif letter in ")]}" or (letter == ">" and inside[at - 1] not in "-="):
                depth -= 1
            elif letter == "," and depth == 0:
                parts.append(inside[last:at])
                last = at + 1
        parts.append(inside[last:])
        parts = [p.strip() for p in parts if p.strip()]
        count = len([p for p in parts if not re.fullmatch(r"(?:&\s*(?:'\w+\s*)?)?(?:mut\s+)?self(?:\s*:.*)?", p, re.S)])
        yield found.group(1), masked.count("\n", found.start(), finish) + 1, count


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))]


def main(roots):
    lengths, names, files, wide, tests = [], [], [], 0, 0
    parameters, code, letters, comments, docs, total = [], 0, 0, 0, 0, 0
    for root in roots:
        for path in sorted(pathlib.Path(root).rglob("*.rs")):
            if {"target", "generated"} & set(path.parts):
                continue
            text = path.read_text(errors="replace")
            tests += len(re.findall(r"#\[(?:tokio::|rstest::)?(?:test|rstest)\b", text))
            relative = path.parts
            in_tests = TEST_PARTS & set(relative) or any(part.endswith("_tests") for part in relative)
            if in_tests or path.name == "tests.rs" or path.name.endswith(("_tests.rs", "_test.rs")):
                continue
            text, masked = without_test_modules(text, mask(text))
            lines = text.split("\n")
            files.append(len(lines))
            total += len(lines)
            wide += sum(len(line) > 100 for line in lines)
            for line, bare in zip(lines, masked.split("\n")):
                stripped = line.strip()
                if stripped.startswith(("///", "//!")):
                    docs += 1
                elif stripped.startswith("//"):
                    comments += 1
                elif bare.strip():
                    code += 1
                    letters += len(stripped)
            for name, length, count in functions(masked):
                names.append(name)
                lengths.append(length)
                parameters.append(count)
    single = sum("_" not in name.strip("_") for name in names)
    words = statistics.mean(len(name.strip("_").split("_")) for name in names)
    rows = [
        ("functions", f"{len(lengths):,}"),
        ("function length, median / p90 / p99 / max", " / ".join(str(v) for v in (
            percentile(lengths, 0.5), percentile(lengths, 0.9), percentile(lengths, 0.99), max(lengths)))),
        ("functions over 60 lines", str(sum(v > 60 for v in lengths))),
        ("functions with 5 or more parameters", f"{100 * sum(v >= 5 for v in parameters) / len(parameters):.1f} %"),
        ("production file, median / p90 / max", f"{percentile(files, 0.5)} / {percentile(files, 0.9)} / {max(files):,}"),
        ("characters per code line; lines over 100", f"{letters / code:.1f}; {100 * wide / total:.1f} %"),
        ("`//` comment lines", f"{100 * comments / total:.1f} %"),
        ("`///` and `//!` lines", f"{100 * docs / total:.1f} %"),
        ("function names of one word; mean words", f"{100 * single / len(names):.0f} %; {words:.2f}"),
        ("tests per 1,000 production lines", f"{1000 * tests / total:.1f}"),
    ]
    for name, value in rows:
        print(f"| {name} | {value} |")


if __name__ == "__main__":
    main(sys.argv[1:] or ["crates", "bins"])
