# The store under faults: the simulation, then real processes: kill -9, SIGSTOP, a full disk, a partition, clocks that jump, and all of
# them at once under a load that checks every answer (disks, partitions and all at once need root); then
# what its operator does: looking at a member, checking and repairing it.
. tests/lib/need.sh
cargo test -p kv-sim --locked --quiet --no-fail-fast 2>&1
build || exit 1
why=$(need etcd-client iproute2) || skip_all faults "$why"
why=$(need faketime) || echo "clocks can't be set: $why"
python3 tests/e2e/store_faults.py --bin-dir "$BIN" --work "$WORK/store-faults"
python3 tests/e2e/store_operations.py --bin-dir "$BIN" --work "$WORK/store-operations"
