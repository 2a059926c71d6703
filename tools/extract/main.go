// Command extract writes the schema data of the API from the published Go modules, or what enumerated values mean.
package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
)

var modules = []string{
	"k8s.io/api",
	"k8s.io/apimachinery",
	"k8s.io/apiextensions-apiserver",
	"k8s.io/kube-aggregator",
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "extract:", err)
		os.Exit(1)
	}
}

func run() error {
	world := newWorld()
	for _, module := range modules {
		dir, err := moduleDir(module)
		if err != nil {
			return err
		}
		if err := world.loadModule(module, dir); err != nil {
			return err
		}
	}
	out := bufio.NewWriter(os.Stdout)
	write := world.write
	if len(os.Args) > 1 && os.Args[1] == "-sentences" {
		write = world.writeSentences
	}
	if err := write(out); err != nil {
		return err
	}
	return out.Flush()
}

// moduleDir asks the go command for the folder of a module.
func moduleDir(module string) (string, error) {
	command := exec.Command("go", "mod", "download", "-json", module)
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", module, err)
	}
	for _, line := range strings.Split(string(output), "\n") {
		if rest, found := strings.CutPrefix(strings.TrimSpace(line), `"Dir": "`); found {
			return strings.TrimSuffix(strings.TrimSuffix(rest, ","), `"`), nil
		}
	}
	return "", fmt.Errorf("%s: no folder", module)
}

// loadModule reads every package of the module that has a generated.proto.
func (w *world) loadModule(module, dir string) error {
	var packages []string
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.Name() == "generated.proto" && !strings.Contains(path, "testapigroup") {
			packages = append(packages, filepath.Dir(path))
		}
		return err
	})
	if err != nil {
		return err
	}
	sort.Strings(packages)
	for _, folder := range packages {
		relative, err := filepath.Rel(dir, folder)
		if err != nil {
			return err
		}
		if err := w.loadPackage(module+"/"+filepath.ToSlash(relative), folder); err != nil {
			return err
		}
	}
	return nil
}
