package main

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

// lifecycleFiles are the files, written by a generator and by hand, with the releases that introduce, deprecate and remove kinds.
var lifecycleFiles = []string{"zz_generated.prerelease-lifecycle.go", "lifecycle.go"}

// lifecycleWords names the methods of that file as the data does.
var lifecycleWords = map[string]string{
	"APILifecycleIntroduced": "introduced", "APILifecycleDeprecated": "deprecated", "APILifecycleRemoved": "removed",
	"APILifecycleReplacement": "replacement",
}

// loadLifecycle reads the releases of a package's kinds; a package without them is left out.
func (p *goPackage) loadLifecycle(folder string) error {
	p.lifecycle = map[string]map[string]string{}
	for _, base := range lifecycleFiles {
		file := filepath.Join(folder, base)
		if _, err := os.Stat(file); os.IsNotExist(err) {
			continue
		}
		if err := p.loadLifecycleFile(file); err != nil {
			return err
		}
	}
	return nil
}

func (p *goPackage) loadLifecycleFile(file string) error {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err == nil {
		err = p.addLifecycles(parsed)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

func (p *goPackage) addLifecycles(parsed *ast.File) error {
	for _, declaration := range parsed.Decls {
		method, ok := declaration.(*ast.FuncDecl)
		if !ok || method.Recv == nil || lifecycleWords[method.Name.Name] == "" {
			continue
		}
		pointer, ok := method.Recv.List[0].Type.(*ast.StarExpr)
		if !ok {
			return fmt.Errorf("%s: receiver %T", method.Name.Name, method.Recv.List[0].Type)
		}
		kind := lastName(pointer.X)
		value, err := lifecycleValue(method)
		if err != nil {
			return fmt.Errorf("%s of %s: %w", method.Name.Name, kind, err)
		}
		if p.lifecycle[kind] == nil {
			p.lifecycle[kind] = map[string]string{}
		}
		p.lifecycle[kind][lifecycleWords[method.Name.Name]] = value
	}
	return nil
}

// lifecycleValue is what the method returns: a release as MAJOR.MINOR, or a kind as GROUP/VERSION/KIND.
func lifecycleValue(method *ast.FuncDecl) (string, error) {
	if len(method.Body.List) == 1 {
		if result, ok := method.Body.List[0].(*ast.ReturnStmt); ok {
			return resultText(result.Results)
		}
	}
	return "", fmt.Errorf("more than a return statement")
}

func resultText(results []ast.Expr) (string, error) {
	var parts []string
	for _, result := range results {
		if composite, ok := result.(*ast.CompositeLit); ok {
			for _, element := range composite.Elts {
				text, err := fieldText(element)
				if err != nil {
					return "", err
				}
				parts = append(parts, text)
			}
			return strings.Join(parts, "/"), nil
		}
		literal, ok := result.(*ast.BasicLit)
		if !ok {
			return "", fmt.Errorf("result %T", result)
		}
		parts = append(parts, literal.Value)
	}
	return strings.Join(parts, "."), nil
}

// fieldText is the text that a field of a literal is set to.
func fieldText(element ast.Expr) (string, error) {
	if field, ok := element.(*ast.KeyValueExpr); ok {
		if literal, ok := field.Value.(*ast.BasicLit); ok {
			return strconv.Unquote(literal.Value)
		}
	}
	return "", fmt.Errorf("%T is no field with a text", element)
}

// writeLifecycle writes the releases of each kind, apart from those of lists, which are those of their items.
func (w *world) writeLifecycle(out *bufio.Writer) error {
	fmt.Fprintf(out, "# Written by tools/extract -lifecycle from k8s.io/api %s and its siblings; do not edit.\n", minor(w.release))
	var lines []string
	for path, p := range w.packages {
		group := p.values["GroupName"]
		if group == "" {
			group = "-"
		}
		for kind, values := range p.lifecycle {
			if _, list := p.lifecycle[strings.TrimSuffix(kind, "List")]; list && strings.HasSuffix(kind, "List") {
				continue
			}
			line := []string{group, filepath.Base(path), kind}
			for _, word := range []string{"introduced", "deprecated", "removed", "replacement"} {
				if value := values[word]; value != "" {
					line = append(line, word+"="+value)
				}
			}
			lines = append(lines, strings.Join(line, " "))
		}
	}
	sort.Strings(lines)
	fmt.Fprintln(out, strings.Join(lines, "\n"))
	return nil
}
