package main

import (
	"bufio"
	"fmt"
	"go/ast"
	"reflect"
	"sort"
	"strconv"
	"strings"
)

// shapes are the messages that do not look like an object of their fields in JSON.
var shapes = map[string]string{
	"meta.v1.Time": "time", "meta.v1.MicroTime": "microtime", "meta.v1.Duration": "duration", "meta.v1.FieldsV1": "fieldsv1",
	"resource.Quantity": "quantity", "intstr.IntOrString": "intorstring", "runtime.RawExtension": "rawextension",
	"apiextensions.v1.JSON": "json", "apiextensions.v1beta1.JSON": "json",
	"apiextensions.v1.JSONSchemaPropsOrBool": "schemaorbool", "apiextensions.v1beta1.JSONSchemaPropsOrBool": "schemaorbool",
	"apiextensions.v1.JSONSchemaPropsOrArray": "schemaorarray", "apiextensions.v1beta1.JSONSchemaPropsOrArray": "schemaorarray",
	"apiextensions.v1.JSONSchemaPropsOrStringArray":      "schemaorstringarray",
	"apiextensions.v1beta1.JSONSchemaPropsOrStringArray": "schemaorstringarray",
}

// skipped are messages that no API object holds.
var skipped = map[string]bool{"meta.v1.Timestamp": true, "resource.QuantityValue": true, "runtime.TypeMeta": true, "runtime.Unknown": true}

func (w *world) write(out *bufio.Writer) error {
	fmt.Fprintf(out, "# Written by tools/extract from k8s.io/api %s and its siblings; do not edit.\n", minor(w.release))
	packages := append([]string(nil), w.order...)
	sort.Slice(packages, func(i, j int) bool { return w.packages[packages[i]].proto < w.packages[packages[j]].proto })
	for _, path := range packages {
		p := w.packages[path]
		fmt.Fprintf(out, "package %s %s\n", p.short, p.proto)
	}
	for _, path := range packages {
		w.writeEnums(out, w.packages[path])
	}
	for _, path := range packages {
		if err := w.writeMessages(out, w.packages[path]); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) writeEnums(out *bufio.Writer, p *goPackage) {
	var names []string
	for name, declared := range p.types {
		if hasMarker(declared.comment, "enum") && len(p.consts[name]) > 0 {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	for _, name := range names {
		values := append([]string(nil), p.consts[name]...)
		sort.Strings(values)
		for i, value := range values {
			values[i] = strconv.Quote(value)
		}
		fmt.Fprintf(out, "enum %s.%s %s\n", p.short, name, strings.Join(values, " "))
	}
}

// writeSentences writes what each value of each enumeration means.
func (w *world) writeSentences(out *bufio.Writer) error {
	fmt.Fprintf(out, "# Written by tools/extract -sentences from k8s.io/api %s (Apache-2.0, The Kubernetes Authors); do not edit.\n", minor(w.release))
	var lines []string
	for _, p := range w.packages {
		for name, declared := range p.types {
			if !hasMarker(declared.comment, "enum") {
				continue
			}
			for _, value := range p.consts[name] {
				if about := p.about[name+" "+value]; about != "" {
					lines = append(lines, fmt.Sprintf("%s.%s\t%s\t%s", p.short, name, value, about))
				}
			}
		}
	}
	sort.Strings(lines)
	fmt.Fprintln(out, strings.Join(lines, "\n"))
	return nil
}

func (w *world) writeMessages(out *bufio.Writer, p *goPackage) error {
	var names []string
	for name := range p.message {
		if !skipped[p.short+"."+name] {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	for _, name := range names {
		full := p.short + "." + name
		declared := p.types[name]
		if declared == nil {
			return fmt.Errorf("%s is in the proto file only", full)
		}
		if shape := shapes[full]; shape != "" {
			fmt.Fprintf(out, "message %s %s\n", full, shape)
			if !strings.HasPrefix(shape, "schemaor") {
				continue
			}
		} else if _, isSlice := declared.spec.Type.(*ast.ArrayType); isSlice {
			fmt.Fprintf(out, "message %s items\n", full)
			continue
		} else {
			fmt.Fprintf(out, "message %s%s\n", full, atomicWord(declared.comment))
		}
		owner, declared, structure := w.structOf(p, declared)
		if structure == nil {
			return fmt.Errorf("%s is no struct", full)
		}
		numbers, err := w.writeFields(out, owner, declared, structure)
		if err != nil {
			return fmt.Errorf("%s: %w", full, err)
		}
		if err := compareNumbers(p.message[name], numbers); err != nil {
			return fmt.Errorf("%s: %w", full, err)
		}
	}
	return nil
}

// atomicWord marks types that are always replaced as one.
func atomicWord(comment []string) string {
	if hasMarker(comment, "structType=atomic") {
		return " atomic"
	}
	return ""
}

// structOf follows aliases (`type A = other.A`) to the struct and the package that declares it.
func (w *world) structOf(p *goPackage, declared *goType) (*goPackage, *goType, *ast.StructType) {
	switch expression := declared.spec.Type.(type) {
	case *ast.StructType:
		return p, declared, expression
	case *ast.Ident:
		if next := p.types[expression.Name]; next != nil {
			return w.structOf(p, next)
		}
	case *ast.SelectorExpr:
		other := w.packages[declared.imports[expression.X.(*ast.Ident).Name]]
		if other != nil && other.types[expression.Sel.Name] != nil {
			return w.structOf(other, other.types[expression.Sel.Name])
		}
	}
	return p, declared, nil
}

// compareNumbers holds the struct tags against the proto file.
func compareNumbers(proto, tags map[string]int) error {
	for name, number := range proto {
		if tags[name] != number {
			return fmt.Errorf("field %s is %d in the proto file and %d in the tag", name, number, tags[name])
		}
	}
	if len(proto) != len(tags) {
		return fmt.Errorf("%d fields in the proto file, %d in the tags", len(proto), len(tags))
	}
	return nil
}

func (w *world) writeFields(out *bufio.Writer, p *goPackage, declared *goType, structure *ast.StructType) (map[string]int, error) {
	numbers := map[string]int{}
	for _, field := range structure.Fields.List {
		if field.Tag == nil {
			continue
		}
		unquoted, err := strconv.Unquote(field.Tag.Value)
		if err != nil {
			return nil, err
		}
		tag := reflect.StructTag(unquoted)
		if tag.Get("json") == "-" && tag.Get("protobuf") == "" {
			continue
		}
		name := fieldName(field)
		if tag.Get("protobuf") == "" && name == "TypeMeta" {
			fmt.Fprintln(out, " kind 0 string omitempty")
			fmt.Fprintln(out, " apiVersion 0 string omitempty")
			continue
		}
		line, protoName, number, err := w.fieldLine(p, declared, field, tag)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if number > 0 {
			numbers[protoName] = number
		}
		fmt.Fprintln(out, line)
	}
	return numbers, nil
}

func (w *world) fieldLine(p *goPackage, declared *goType, field *ast.Field, tag reflect.StructTag) (string, string, int, error) {
	ty, err := w.resolve(p, declared.imports, field.Type)
	if err != nil {
		return "", "", 0, err
	}
	json := strings.Split(tag.Get("json"), ",")
	comment := commentLines(field.Doc)
	number, protoName := protobufTag(tag.Get("protobuf"))
	if protoName == "" {
		protoName = lowerFirst(fieldName(field))
	}
	words := []string{" " + orDash(json[0]), strconv.Itoa(number)}
	if ty.pointer {
		words = append(words, "*"+ty.text)
	} else {
		words = append(words, ty.text)
	}
	options := map[string]bool{}
	for _, option := range json[1:] {
		options[option] = true
	}
	if options["inline"] || json[0] == "" {
		words = append(words, "inline")
	}
	switch {
	case options["omitzero"]:
		words = append(words, "omitzero")
	case options["omitempty"] && (ty.pointer || !ty.structs):
		words = append(words, "omitempty")
	}
	if isRequired(comment, options) && !options["inline"] {
		words = append(words, "required")
	}
	words = append(words, mergeWords(comment, tag)...)
	for _, value := range markerValues(comment, "default") {
		words = append(words, "default="+p.constant(value))
	}
	if ty.enum != "" && w.hasEnum(ty.enum) {
		words = append(words, "enum="+ty.enum)
	}
	return strings.Join(words, " "), protoName, number, nil
}

func (w *world) hasEnum(full string) bool {
	dot := strings.LastIndex(full, ".")
	for _, p := range w.packages {
		if p.short == full[:dot] {
			return len(p.consts[full[dot+1:]]) > 0
		}
	}
	return false
}

// constant resolves `ref(Name)`.
func (p *goPackage) constant(value string) string {
	if name, found := strings.CutPrefix(value, "ref("); found {
		return strconv.Quote(p.values[strings.TrimSuffix(name, ")")])
	}
	return value
}

func isRequired(comment []string, options map[string]bool) bool {
	if hasMarker(comment, "optional") {
		return false
	}
	return hasMarker(comment, "required") || !options["omitempty"] && !options["omitzero"]
}

// mergeWords are list semantics and strategic merge markers.
func mergeWords(comment []string, tag reflect.StructTag) []string {
	var words []string
	kind := ""
	for _, marker := range []string{"listType", "mapType", "structType"} {
		for _, value := range markerValues(comment, marker) {
			kind = value
		}
	}
	if kind == "map" {
		kind = "map=" + strings.Join(markerValues(comment, "listMapKey"), ",")
	}
	if kind != "" {
		words = append(words, kind)
	}
	for _, strategy := range strings.Split(tag.Get("patchStrategy"), ",") {
		switch strategy {
		case "merge", "replace":
			words = append(words, strategy)
		case "retainKeys":
			words = append(words, "retainkeys")
		}
	}
	if key := tag.Get("patchMergeKey"); key != "" {
		words = append(words, "key="+key)
	}
	return words
}

// fieldName is the Go name of a field, for an embedded one that of its type.
func fieldName(field *ast.Field) string {
	if len(field.Names) > 0 {
		return field.Names[0].Name
	}
	switch embedded := field.Type.(type) {
	case *ast.Ident:
		return embedded.Name
	case *ast.SelectorExpr:
		return embedded.Sel.Name
	}
	return ""
}

func lowerFirst(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToLower(text[:1]) + text[1:]
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// protobufTag returns number and name of a protobuf struct tag.
func protobufTag(tag string) (int, string) {
	number, name := 0, ""
	for i, part := range strings.Split(tag, ",") {
		if i == 1 {
			number, _ = strconv.Atoi(part)
		}
		if value, found := strings.CutPrefix(part, "name="); found {
			name = value
		}
	}
	return number, name
}
