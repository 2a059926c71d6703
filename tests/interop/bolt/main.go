// Checks database files of etcd's layout with etcd's own library: every page is reached once, in order, and none is lost.
//
//	bolt FILE ...
package main

import (
	"fmt"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
)

func check(path string) error {
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, PreLoadFreelist: true, Timeout: time.Second})
	if err != nil {
		return err
	}
	defer db.Close()
	return db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			return err
		}
		return tx.ForEach(func(name []byte, bucket *bolt.Bucket) error {
			pairs := 0
			err := bucket.ForEach(func(_, _ []byte) error { pairs++; return nil })
			fmt.Printf("%s %d\n", name, pairs)
			return err
		})
	})
}

func main() {
	for _, path := range os.Args[1:] {
		if err := check(path); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			os.Exit(1)
		}
	}
}
