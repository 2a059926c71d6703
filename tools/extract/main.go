// Command extract writes the schema data of the API from the published Go modules, what enumerated values mean, or what changes
// from one release to another.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
)

var modules = []string{
	"k8s.io/api",
	"k8s.io/apimachinery",
	"k8s.io/apiextensions-apiserver",
	"k8s.io/kube-aggregator",
}

var (
	sentencesOnly = flag.Bool("sentences", false, "write what the values of enumerations mean")
	lifecycleOnly = flag.Bool("lifecycle", false, "write the releases that introduce, deprecate and remove each kind")
	gatesOnly     = flag.Bool("gates", false, "write the feature gates of the API server with their stages by release")
	release       = flag.String("release", "", "a Kubernetes `version` (v1.35.0) in place of that of go.mod")
	compareWith   = flag.String("compare", "", "write a report of the changes from the release to this data `file`")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "extract:", err)
		os.Exit(1)
	}
}

func run() error {
	if flag.NArg() > 0 {
		return fmt.Errorf("unknown argument %q; see -help", flag.Arg(0))
	}
	if *gatesOnly {
		return writeGates(os.Stdout, *release)
	}
	world, err := loadWorld(*release)
	if err != nil {
		return err
	}
	// A run that fails writes nothing.
	var text bytes.Buffer
	out := bufio.NewWriter(&text)
	switch {
	case *compareWith != "":
		err = world.compare(out, *compareWith)
	case *lifecycleOnly:
		err = world.writeLifecycle(out)
	case *sentencesOnly:
		err = world.writeSentences(out)
	default:
		err = world.write(out)
	}
	if err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	_, err = os.Stdout.Write(text.Bytes())
	return err
}

func loadWorld(release string) (*world, error) {
	world := newWorld()
	for _, name := range modules {
		module, err := download(name, release)
		if err != nil {
			return nil, err
		}
		if err := world.loadModule(name, module.Dir); err != nil {
			return nil, err
		}
		if name == modules[0] {
			world.release = module.Version
		}
	}
	return world, nil
}

// compare reports what changes from this release to that of a data file.
func (w *world) compare(out io.Writer, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var own bytes.Buffer
	buffered := bufio.NewWriter(&own)
	if err := w.write(buffered); err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	old, err := parseSchema(&own)
	if err != nil {
		return err
	}
	new, err := parseSchema(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	to := strings.TrimSuffix(filepath.Base(path), ".txt")
	writeReport(out, "v1"+strings.TrimPrefix(minor(w.release), "v0"), to, old, new)
	return nil
}

// minor is a version without its last number.
func minor(version string) string { return version[:strings.LastIndex(version, ".")] }

var kubernetesVersion = regexp.MustCompile(`^v1(\.\d+\.\d+)$`)

// moduleVersion is the version of a module in a release of Kubernetes: that of the API for v1.35.0 is v0.35.0.
func moduleVersion(module, release string) (string, error) {
	match := kubernetesVersion.FindStringSubmatch(release)
	if match == nil {
		return "", fmt.Errorf("%q is no version of the form v1.35.0", release)
	}
	if module == mainModule {
		return release, nil
	}
	return "v0" + match[1], nil
}

// downloaded is a module as the go command describes it.
type downloaded struct{ Version, Dir, Error string }

// download asks the go command for a module: in the version of go.mod, or in that of a release.
func download(module, release string) (downloaded, error) {
	var found downloaded
	folder := ""
	if release != "" {
		version, err := moduleVersion(module, release)
		if err != nil {
			return found, err
		}
		// Outside of this module, whose go.sum would get the other release.
		module, folder = module+"@"+version, os.TempDir()
	}
	command := exec.Command("go", "mod", "download", "-json", module)
	command.Dir = folder
	command.Stderr = os.Stderr
	output, failure := command.Output()
	if err := json.Unmarshal(output, &found); err != nil && failure == nil {
		return found, fmt.Errorf("%s: %w", module, err)
	}
	if found.Error != "" {
		return found, fmt.Errorf("%s: %s", module, found.Error)
	}
	if failure != nil {
		return found, fmt.Errorf("%s: %w", module, failure)
	}
	return found, nil
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
