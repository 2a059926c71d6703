package main

import (
	"strings"
	"testing"
)

const oldSchema = `# a comment
package apps.v1 k8s.io.api.apps.v1
package apps.v1beta1 k8s.io.api.apps.v1beta1
enum core.v1.Phase "Failed" "Running"
message apps.v1.Deployment
 kind 0 string omitempty
 apiVersion 0 string omitempty
 metadata 1 meta.v1.ObjectMeta
 spec 2 apps.v1.DeploymentSpec
message apps.v1.DeploymentSpec
 - 1 core.v1.Common inline
 gone 2 string omitempty
 paused 3 bool omitempty
message apps.v1.Kept
 a 1 string
`

const newSchema = `package apps.v1 k8s.io.api.apps.v1
package apps.v2 k8s.io.api.apps.v2
enum core.v1.Phase "Running" "Unknown"
message apps.v1.DeploymentSpec atomic
 - 1 core.v1.Common inline
 fresh 4 []string omitempty
 paused 3 *bool omitempty
message apps.v1.Kept
 a 1 string
message apps.v2.Deployment
 kind 0 string omitempty
 apiVersion 0 string omitempty
 metadata 1 meta.v1.ObjectMeta
`

const expectedReport = "# Changes of the API from v1 to v2\n\nWritten by `tools/extract`; do not edit.\n" +
	"\n## API versions\n\n- added: `apps.v2`\n- removed: `apps.v1beta1`\n" +
	"\n## Kinds\n\n- added: `apps.v2.Deployment`\n- removed: `apps.v1.Deployment`\n" +
	"\n## Fields of types that both releases have\n\n- `apps.v1.DeploymentSpec`\n" +
	"  - the type: nothing becomes `atomic`\n" +
	"  - added: `fresh` `4 []string omitempty`\n" +
	"  - removed: `gone` `2 string omitempty`\n" +
	"  - `paused`: `3 bool omitempty` becomes `3 *bool omitempty`\n" +
	"\n## Values of enumerations\n\n- `core.v1.Phase`: added \"Unknown\"; removed \"Failed\"\n"

func TestReportNamesEachChange(t *testing.T) {
	old, err := parseSchema(strings.NewReader(oldSchema))
	if err != nil {
		t.Fatal(err)
	}
	new, err := parseSchema(strings.NewReader(newSchema))
	if err != nil {
		t.Fatal(err)
	}
	var report strings.Builder
	writeReport(&report, "v1", "v2", old, new)
	if report.String() != expectedReport {
		t.Errorf("%s\nand not\n%s", report.String(), expectedReport)
	}
}

func TestOtherFilesAreRejected(t *testing.T) {
	for _, text := range []string{"nonsense", " field 1 string", "enum x", "package a"} {
		if _, err := parseSchema(strings.NewReader(text)); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

func TestVersionsOfModules(t *testing.T) {
	for release, expected := range map[string]string{"v1.35.10": "v0.35.10", "v1.36.0": "v0.36.0"} {
		if version, err := moduleVersion("k8s.io/api", release); err != nil || version != expected {
			t.Errorf("%s: %s %v", release, version, err)
		}
	}
	if version, err := moduleVersion(mainModule, "v1.36.2"); err != nil || version != "v1.36.2" {
		t.Errorf("%s: %s %v", mainModule, version, err)
	}
	for _, release := range []string{"", "1.35.0", "v1.35", "v2.35.0", "v1.35.x", "v1.35.0@main", "v1.35.0-rc.1 x"} {
		if version, err := moduleVersion("k8s.io/api", release); err == nil {
			t.Errorf("%q became %s", release, version)
		}
	}
}
