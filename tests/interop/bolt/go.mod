module ironclad/tests/interop/bolt

go 1.26.0

require (
	go.etcd.io/bbolt v1.4.3
	golang.org/x/sys v0.29.0 // indirect
)
