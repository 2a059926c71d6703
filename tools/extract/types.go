package main

import (
	"fmt"
	"go/ast"
	"strings"
)

// resolved is a field type as the data file names it.
type resolved struct {
	text    string // bool, string, []T, map:T, core.v1.Pod ...
	pointer bool
	structs bool // a message that is a Go struct, so that omitempty has no effect
	scalar  bool
	enum    string // name of the enumeration
}

var builtin = map[string]string{
	"bool": "bool", "int32": "int32", "int64": "int64", "uint32": "uint32", "uint64": "uint64", "int": "int64",
	"float64": "double", "string": "string", "byte": "byte", "uint8": "byte",
}

const typesPackage = "k8s.io/apimachinery/pkg/types."

// foreign are named types of packages without a proto file.
var foreign = map[string]string{
	typesPackage + "UID": "string", typesPackage + "NodeName": "string", typesPackage + "NamespacedName": "string",
}

// resolve turns a Go type expression into a type of the data file.
func (w *world) resolve(p *goPackage, imports map[string]string, expression ast.Expr) (resolved, error) {
	switch e := expression.(type) {
	case *ast.StarExpr:
		inner, err := w.resolve(p, imports, e.X)
		inner.pointer = true
		return inner, err
	case *ast.ArrayType:
		inner, err := w.resolve(p, imports, e.Elt)
		if inner.text == "byte" {
			return resolved{text: "bytes"}, err
		}
		return resolved{text: "[]" + inner.text, enum: inner.enum}, err
	case *ast.MapType:
		inner, err := w.resolve(p, imports, e.Value)
		return resolved{text: "map:" + inner.text, enum: inner.enum}, err
	case *ast.Ident:
		if text, found := builtin[e.Name]; found {
			return resolved{text: text, scalar: true}, nil
		}
		return w.resolveNamed(p, e.Name)
	case *ast.SelectorExpr:
		alias := e.X.(*ast.Ident).Name
		if text, found := foreign[imports[alias]+"."+e.Sel.Name]; found {
			return resolved{text: text, scalar: true}, nil
		}
		other := w.packages[imports[alias]]
		if other == nil {
			return resolved{}, fmt.Errorf("package of %s.%s is unknown", alias, e.Sel.Name)
		}
		return w.resolveNamed(other, e.Sel.Name)
	}
	return resolved{}, fmt.Errorf("type expression %T", expression)
}

func (w *world) resolveNamed(p *goPackage, name string) (resolved, error) {
	declared := p.types[name]
	if declared == nil {
		return resolved{}, fmt.Errorf("type %s.%s is unknown", p.short, name)
	}
	if _, found := p.message[name]; found {
		_, _, structure := w.structOf(p, declared)
		return resolved{text: p.short + "." + name, structs: structure != nil}, nil
	}
	inner, err := w.resolve(p, declared.imports, declared.spec.Type)
	if inner.scalar && inner.text == "string" && hasMarker(declared.comment, "enum") {
		inner.enum = p.short + "." + name
	}
	return inner, err
}

func hasMarker(lines []string, marker string) bool {
	for _, line := range lines {
		if line == "+"+marker || strings.HasPrefix(line, "+"+marker+" ") {
			return true
		}
	}
	return false
}

// markerValues returns what stands after `+name=`.
func markerValues(lines []string, name string) []string {
	var values []string
	for _, line := range lines {
		if value, found := strings.CutPrefix(line, "+"+name+"="); found {
			values = append(values, strings.TrimSpace(value))
		}
	}
	return values
}
