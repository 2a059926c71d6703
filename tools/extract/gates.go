package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

// mainModule has the number of the release as its version; the modules of the API have another major version.
const mainModule = "k8s.io/kubernetes"

// gatePackages are the packages whose feature gates the API server registers, by module.
var gatePackages = []struct{ module, folder string }{
	{"k8s.io/apiextensions-apiserver", "pkg/features"},
	{"k8s.io/apiserver", "pkg/features"},
	{"k8s.io/client-go", "features"},
	{"k8s.io/component-base", "logs/api/v1"},
	{"k8s.io/component-base", "metrics/features"},
	{"k8s.io/component-base", "zpages/features"},
	{"k8s.io/controller-manager", "pkg/features"},
	{mainModule, "pkg/features"},
}

// gates are the names of constants and the stages of each gate.
type gates struct {
	names  map[string]string // constant to gate
	stages map[string]string // constant to stages: "1.33:alpha:off 1.35:beta:on"
}

func newGates() gates { return gates{names: map[string]string{}, stages: map[string]string{}} }

// writeGates writes every gate with its stages, or nothing if one can't be read.
func writeGates(out io.Writer, release string) error {
	if release == "" {
		api, err := download(modules[0], "")
		if err != nil {
			return err
		}
		release = "v1" + strings.TrimPrefix(api.Version, "v0")
	}
	found := newGates()
	version := ""
	for _, source := range gatePackages {
		module, err := download(source.module, release)
		if err != nil {
			return err
		}
		version = module.Version
		if err := found.loadFolder(filepath.Join(module.Dir, filepath.FromSlash(source.folder))); err != nil {
			return err
		}
	}
	lines := []string{"AllAlpha 0.0:alpha:off", "AllBeta 0.0:beta:off"}
	for constant, stages := range found.stages {
		name, known := found.names[constant]
		if !known {
			return fmt.Errorf("feature gate %s has no constant", constant)
		}
		lines = append(lines, name+" "+stages)
	}
	sort.Strings(lines)
	_, err := fmt.Fprintf(out, "# Written by tools/extract -gates from k8s.io/kubernetes %s and its siblings; do not edit.\n%s\n",
		minor(version), strings.Join(lines, "\n"))
	return err
}

func (g *gates) loadFolder(folder string) error {
	found := newGates()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err == nil {
			err = found.loadFile(parsed)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return g.add(found)
}

// add adds the gates of a package. Packages refer to the constants of each other, so that one name has one meaning.
func (g *gates) add(other gates) error {
	for _, part := range []struct{ into, from map[string]string }{{g.names, other.names}, {g.stages, other.stages}} {
		for constant, value := range part.from {
			if known, found := part.into[constant]; found && known != value {
				return fmt.Errorf("%s is %q and %q", constant, known, value)
			}
			part.into[constant] = value
		}
	}
	return nil
}

func (g *gates) loadFile(file *ast.File) error {
	var failure error
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.ValueSpec:
			g.addNames(node)
		case *ast.KeyValueExpr:
			if err := g.addStages(node); err != nil {
				failure = err
			}
		}
		return failure == nil
	})
	return failure
}

// addNames adds constants: of the type Feature, converted to it, or without a type.
func (g *gates) addNames(spec *ast.ValueSpec) {
	for i, name := range spec.Names {
		if i >= len(spec.Values) {
			continue
		}
		kind, value := spec.Type, spec.Values[i]
		if call, ok := value.(*ast.CallExpr); ok && len(call.Args) == 1 {
			kind, value = call.Fun, call.Args[0]
		}
		literal, ok := value.(*ast.BasicLit)
		if ok && (kind == nil || lastName(kind) == "Feature") {
			g.names[name.Name], _ = strconv.Unquote(literal.Value)
		}
	}
}

// addStages adds a pair of a gate and its stages; other pairs are left out.
func (g *gates) addStages(pair *ast.KeyValueExpr) error {
	list, ok := pair.Value.(*ast.CompositeLit)
	if !ok || lastName(pair.Key) == "" || len(list.Elts) == 0 {
		return nil
	}
	var stages []string
	for _, element := range list.Elts {
		stage, ok := element.(*ast.CompositeLit)
		if !ok {
			return nil
		}
		text, err := stageText(stage)
		if err != nil {
			return fmt.Errorf("%s: %w", lastName(pair.Key), err)
		}
		stages = append(stages, text)
	}
	g.stages[lastName(pair.Key)] = strings.Join(stages, " ")
	return nil
}

// stageText is RELEASE:STAGE:on|off, with `:locked` if the value can't be changed.
func stageText(stage *ast.CompositeLit) (string, error) {
	release, name, value, locked := "", "ga", "off", ""
	for _, element := range stage.Elts {
		field, ok := element.(*ast.KeyValueExpr)
		if !ok {
			return "", fmt.Errorf("a stage without field names")
		}
		switch lastName(field.Key) {
		case "Version":
			text, err := argument(field.Value)
			if err != nil {
				return "", err
			}
			release = text
		case "PreRelease":
			if name = strings.ToLower(lastName(field.Value)); name == "" {
				return "", fmt.Errorf("stage %T", field.Value)
			}
		case "Default":
			on, err := boolean(field.Value)
			if err != nil {
				return "", err
			}
			if on {
				value = "on"
			}
		case "LockToDefault":
			on, err := boolean(field.Value)
			if err != nil {
				return "", err
			}
			if on {
				locked = ":locked"
			}
		default:
			return "", fmt.Errorf("field %s of a stage", lastName(field.Key))
		}
	}
	if release == "" {
		return "", fmt.Errorf("a stage without a release")
	}
	return release + ":" + name + ":" + value + locked, nil
}

// lastName is the last part of an identifier with or without its package.
func lastName(expression ast.Expr) string {
	switch expression := expression.(type) {
	case *ast.Ident:
		return expression.Name
	case *ast.SelectorExpr:
		return expression.Sel.Name
	}
	return ""
}

// argument is the text that a call has as its only argument.
func argument(expression ast.Expr) (string, error) {
	if call, ok := expression.(*ast.CallExpr); ok && len(call.Args) == 1 {
		if literal, ok := call.Args[0].(*ast.BasicLit); ok {
			return strconv.Unquote(literal.Value)
		}
	}
	return "", fmt.Errorf("%T is no call with a text", expression)
}

func boolean(expression ast.Expr) (bool, error) {
	switch lastName(expression) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("%T is neither true nor false", expression)
}
