package main

import (
	"bufio"
	"fmt"
	"io"
	"sort"
	"strings"
)

// schema is a data file that this command wrote.
type schema struct {
	versions map[string]bool     // API versions: apps.v1
	enums    map[string][]string // values of an enumeration
	messages map[string]*message
}

// message is one type of the API.
type message struct {
	words  string
	fields map[string]string // JSON name to number, type and words
}

// isKind tells objects of the API from the types inside them.
func (m *message) isKind() bool {
	_, typed := m.fields["apiVersion"]
	_, named := m.fields["metadata"]
	return typed && named
}

func parseSchema(file io.Reader) (*schema, error) {
	s := &schema{versions: map[string]bool{}, enums: map[string][]string{}, messages: map[string]*message{}}
	var current *message
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		line := scanner.Text()
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, " ") && current != nil && len(words) > 2:
			current.fields[fieldKey(words)] = strings.Join(words[1:], " ")
		case words[0] == "package" && len(words) == 3:
			s.versions[words[1]] = true
		case words[0] == "enum" && len(words) > 2:
			s.enums[words[1]] = words[2:]
		case words[0] == "message" && len(words) > 1:
			current = &message{words: strings.Join(words[2:], " "), fields: map[string]string{}}
			s.messages[words[1]] = current
		default:
			return nil, fmt.Errorf("line %q is no part of a data file", line)
		}
	}
	return s, scanner.Err()
}

// fieldKey is the JSON name of a field. Embedded types have none, and are told apart by their type.
func fieldKey(words []string) string {
	if words[0] == "-" {
		return strings.TrimPrefix(words[2], "*")
	}
	return words[0]
}

// writeReport writes what differs between two data files as Markdown.
func writeReport(out io.Writer, from, to string, old, new *schema) {
	fmt.Fprintf(out, "# Changes of the API from %s to %s\n\nWritten by `tools/extract`; do not edit.\n", from, to)
	writeList(out, "API versions", keys(old.versions), keys(new.versions))
	writeList(out, "Kinds", old.kinds(), new.kinds())
	var enums, fields []string
	for _, name := range common(keys(old.enums), keys(new.enums)) {
		if change := formatDifference(old.enums[name], new.enums[name]); change != "" {
			enums = append(enums, fmt.Sprintf("- `%s`: %s", name, change))
		}
	}
	for _, name := range common(keys(old.messages), keys(new.messages)) {
		if changes := compareMessages(old.messages[name], new.messages[name]); len(changes) > 0 {
			fields = append(fields, fmt.Sprintf("- `%s`\n  - %s", name, strings.Join(changes, "\n  - ")))
		}
	}
	writeSection(out, "Fields of types that both releases have", fields)
	writeSection(out, "Values of enumerations", enums)
}

func (s *schema) kinds() []string {
	var names []string
	for name, message := range s.messages {
		if message.isKind() {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}

func compareMessages(old, new *message) []string {
	var changes []string
	if old.words != new.words {
		changes = append(changes, fmt.Sprintf("the type: %s becomes %s", quoted(old.words), quoted(new.words)))
	}
	for _, name := range union(keys(old.fields), keys(new.fields)) {
		before, had := old.fields[name]
		after, has := new.fields[name]
		switch {
		case !had:
			changes = append(changes, fmt.Sprintf("added: `%s` `%s`", name, after))
		case !has:
			changes = append(changes, fmt.Sprintf("removed: `%s` `%s`", name, before))
		case before != after:
			changes = append(changes, fmt.Sprintf("`%s`: `%s` becomes `%s`", name, before, after))
		}
	}
	return changes
}

func quoted(words string) string {
	if words == "" {
		return "nothing"
	}
	return "`" + words + "`"
}

func writeList(out io.Writer, title string, old, new []string) {
	var lines []string
	for _, name := range minus(new, old) {
		lines = append(lines, "- added: `"+name+"`")
	}
	for _, name := range minus(old, new) {
		lines = append(lines, "- removed: `"+name+"`")
	}
	writeSection(out, title, lines)
}

func writeSection(out io.Writer, title string, lines []string) {
	fmt.Fprintf(out, "\n## %s\n\n", title)
	if len(lines) == 0 {
		lines = []string{"No change."}
	}
	fmt.Fprintln(out, strings.Join(lines, "\n"))
}

func formatDifference(old, new []string) string {
	var parts []string
	if added := minus(new, old); len(added) > 0 {
		parts = append(parts, "added "+strings.Join(added, ", "))
	}
	if removed := minus(old, new); len(removed) > 0 {
		parts = append(parts, "removed "+strings.Join(removed, ", "))
	}
	return strings.Join(parts, "; ")
}

func keys[V any](all map[string]V) []string {
	var names []string
	for name := range all {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// minus returns the names of a that b does not have.
func minus(a, b []string) []string {
	has := map[string]bool{}
	for _, name := range b {
		has[name] = true
	}
	var rest []string
	for _, name := range a {
		if !has[name] {
			rest = append(rest, name)
		}
	}
	return rest
}

func common(a, b []string) []string { return minus(a, minus(a, b)) }

func union(a, b []string) []string {
	all := append(append([]string(nil), a...), minus(b, a)...)
	sort.Strings(all)
	return all
}
