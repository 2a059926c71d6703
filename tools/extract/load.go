package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// world is all packages by import path.
type world struct {
	release  string // version of k8s.io/api: v0.36.2
	packages map[string]*goPackage
	order    []string
}

// goPackage is what matters of a Go package.
type goPackage struct {
	path    string // import path
	proto   string // proto package
	short   string // the name used in the data file
	types   map[string]*goType
	consts  map[string][]string // type name to constant values
	values  map[string]string   // constant name to value
	about   map[string]string   // "TYPE VALUE" to the constant's sentences, without its name
	message map[string]map[string]int

	lifecycle map[string]map[string]string // kind to introduced, deprecated, removed and replacement
}

// goType is a type declaration with its comment lines and file.
type goType struct {
	spec    *ast.TypeSpec
	comment []string
	imports map[string]string
}

func newWorld() *world { return &world{packages: map[string]*goPackage{}} }

func (w *world) loadPackage(path, folder string) error {
	protoText, err := os.ReadFile(filepath.Join(folder, "generated.proto"))
	if err != nil {
		return err
	}
	p := &goPackage{path: path, types: map[string]*goType{}, consts: map[string][]string{}, values: map[string]string{}, about: map[string]string{}}
	p.proto, p.message = readProto(string(protoText))
	p.short = shortName(p.proto)
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return err
	}
	set := token.NewFileSet()
	for _, file := range files {
		base := filepath.Base(file)
		if strings.HasSuffix(base, "_test.go") || strings.HasPrefix(base, "zz_") || base == "generated.pb.go" {
			continue
		}
		parsed, err := parser.ParseFile(set, file, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		p.addFile(parsed)
	}
	if err := p.loadLifecycle(folder); err != nil {
		return err
	}
	w.packages[path] = p
	w.order = append(w.order, path)
	return nil
}

func (p *goPackage) addFile(file *ast.File) {
	imports := map[string]string{}
	for _, spec := range file.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		name := path[strings.LastIndex(path, "/")+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		imports[name] = path
	}
	for _, declaration := range file.Decls {
		general, ok := declaration.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range general.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				lines := commentLines(general.Doc)
				lines = append(lines, commentLines(spec.Doc)...)
				p.types[spec.Name.Name] = &goType{spec: spec, comment: lines, imports: imports}
			case *ast.ValueSpec:
				group := spec.Doc
				if group == nil && !general.Lparen.IsValid() {
					group = general.Doc
				}
				p.addConst(spec, sentences(group))
			}
		}
	}
}

func (p *goPackage) addConst(spec *ast.ValueSpec, about string) {
	for i, name := range spec.Names {
		if i >= len(spec.Values) {
			continue
		}
		literal, ok := spec.Values[i].(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			continue
		}
		value, _ := strconv.Unquote(literal.Value)
		p.values[name.Name] = value
		if identifier, ok := spec.Type.(*ast.Ident); ok {
			p.consts[identifier.Name] = append(p.consts[identifier.Name], value)
			p.about[identifier.Name+" "+value] = strings.TrimSpace(strings.TrimPrefix(about, name.Name))
		}
	}
}

// sentences is a comment as OpenAPI documents give it: one line, without markers.
func sentences(group *ast.CommentGroup) string {
	var lines []string
	for _, line := range commentLines(group) {
		if line != "" && !strings.HasPrefix(line, "+") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, " ")
}

func commentLines(group *ast.CommentGroup) []string {
	if group == nil {
		return nil
	}
	var lines []string
	for _, comment := range group.List {
		lines = append(lines, strings.TrimSpace(strings.TrimPrefix(comment.Text, "//")))
	}
	return lines
}

var (
	protoPackage = regexp.MustCompile(`(?m)^package ([a-z0-9_.]+);`)
	protoMessage = regexp.MustCompile(`^message (\w+) \{`)
	protoField   = regexp.MustCompile(`^  .*?(\w+) = (\d+);`)
)

// readProto returns the package name and the numbers of every message's fields.
func readProto(text string) (string, map[string]map[string]int) {
	messages := map[string]map[string]int{}
	var current map[string]int
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "//") {
			continue
		}
		if match := protoMessage.FindStringSubmatch(line); match != nil {
			current = map[string]int{}
			messages[match[1]] = current
		} else if match := protoField.FindStringSubmatch(line); match != nil && current != nil {
			number, _ := strconv.Atoi(match[2])
			current[match[1]] = number
		}
	}
	name := ""
	if match := protoPackage.FindStringSubmatch(text); match != nil {
		name = match[1]
	}
	return name, messages
}

// shortName is the proto package without what all of them share.
func shortName(proto string) string {
	for _, prefix := range []string{
		"k8s.io.api.", "k8s.io.apimachinery.pkg.apis.", "k8s.io.apimachinery.pkg.api.", "k8s.io.apimachinery.pkg.util.",
		"k8s.io.apimachinery.pkg.", "k8s.io.apiextensions_apiserver.pkg.apis.", "k8s.io.kube_aggregator.pkg.apis.",
	} {
		if rest, found := strings.CutPrefix(proto, prefix); found {
			return rest
		}
	}
	panic(fmt.Sprintf("proto package %q", proto))
}
