package main

import (
	"go/parser"
	"go/token"
	"testing"
)

func TestStagesOfGates(t *testing.T) {
	const head = "package p\nconst A featuregate.Feature = \"Alpha\"\nconst B = featuregate.Feature(\"Beta\")\nconst C = \"Gamma\"\n"
	for source, expected := range map[string]string{
		`{Version: version.MustParse("1.3"), Default: true, PreRelease: f.Beta, LockToDefault: true}`:                                 "1.3:beta:on:locked",
		`{Version: version.MustParse("1.2"), PreRelease: Alpha}, {Version: version.MustParse("1.3"), Default: false, PreRelease: GA}`: "1.2:alpha:off 1.3:ga:off",
		`{Version: version.MustParse(one), PreRelease: Alpha}`:                                                                        "",
		`{Version: version.MustParse("1.2"), Default: isOn(), PreRelease: Alpha}`:                                                     "",
		`{Version: version.MustParse("1.2"), PreRelease: Alpha, Other: 1}`:                                                            "",
		`{PreRelease: Alpha}`:                             "",
		`{version.MustParse("1.2"), false, false, Alpha}`: "",
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "p.go", head+"var x = m{A: {"+source+"}}\n", 0)
		if err != nil {
			t.Fatal(err)
		}
		found := newGates()
		err = found.loadFile(file)
		if (err != nil) != (expected == "") || found.stages["A"] != expected {
			t.Errorf("%s: %q %v", source, found.stages["A"], err)
		}
		for constant, name := range map[string]string{"A": "Alpha", "B": "Beta", "C": "Gamma"} {
			if expected != "" && found.names[constant] != name {
				t.Errorf("%s: %q", constant, found.names[constant])
			}
		}
	}
}

func TestConstantsOfOneNameMustAgree(t *testing.T) {
	all := newGates()
	one := newGates()
	one.stages["A"] = "1.2:alpha:off"
	for range 2 {
		if err := all.add(one); err != nil {
			t.Error(err)
		}
	}
	other := newGates()
	other.stages["A"] = "1.3:beta:on"
	if all.add(other) == nil {
		t.Error("two meanings of a constant were accepted")
	}
}

func TestLifecycleOfKinds(t *testing.T) {
	for body, expected := range map[string]string{
		"return 1, 9": "1.9",
		`return schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Scale"}`: "apps/v1/Scale",
		"return one, 9":                       "",
		`return schema.GroupVersionKind{"a"}`: "",
		"x := 1; return x, 9":                 "",
	} {
		source := "package p\nfunc (in *K) APILifecycleIntroduced() (major, minor int) { " + body + " }\n"
		file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
		if err != nil {
			t.Fatal(err)
		}
		p := goPackage{lifecycle: map[string]map[string]string{}}
		err = p.addLifecycles(file)
		if (err != nil) != (expected == "") || p.lifecycle["K"]["introduced"] != expected {
			t.Errorf("%s: %v %v", body, p.lifecycle, err)
		}
	}
}
