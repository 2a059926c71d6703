# The store under faults: the simulation, then real processes: kill -9, SIGSTOP, a full disk, a partition (the last two need root); then
# what its operator does: looking at a member, checking and repairing it.
. tests/lib/need.sh
cargo test -p kv-sim --locked --quiet --no-fail-fast 2>&1
build || exit 1
why=$(need etcd-client iproute2) || skip_all faults "$why"
python3 tests/e2e/store_faults.py --bin-dir "$BIN" --work "$WORK/store-faults"
python3 tests/e2e/store_operations.py --bin-dir "$BIN" --work "$WORK/store-operations"
