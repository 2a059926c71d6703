// Package report prints one line per check and polls conditions.
package report

import (
	"fmt"
	"os"
	"time"
)

// Area is the prefix of the names of checks.
var Area = "interop"

var failed = false

// Check prints the result of a check and returns whether it passed.
func Check(name string, err error) bool {
	if err != nil {
		failed = true
		fmt.Printf("FAIL %s/%s: %v\n", Area, name, err)
		return false
	}
	fmt.Printf("ok %s/%s\n", Area, name)
	return true
}

// Skip prints that a check does not apply.
func Skip(name, why string) { fmt.Printf("skip %s/%s: %s\n", Area, name, why) }

// Must ends the program after a failed check that the others need.
func Must(name string, err error) {
	if !Check(name, err) {
		os.Exit(1)
	}
}

// Until polls a condition until it returns nil or 60 seconds are over.
func Until(condition func() error) error {
	err := condition()
	for end := time.Now().Add(60 * time.Second); err != nil && time.Now().Before(end); err = condition() {
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("not within 60 s: %w", err)
	}
	return nil
}

// Finish ends the program with the status of the run.
func Finish() {
	if failed {
		os.Exit(1)
	}
	os.Exit(0)
}
