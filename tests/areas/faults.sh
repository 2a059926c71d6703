# The store under faults: the simulation, then real processes: kill -9, SIGSTOP, a full disk, a partition (the last two need root).
. tests/lib/need.sh
cargo test -p kv-sim --locked --quiet --no-fail-fast 2>&1
build || exit 1
why=$(need etcd-client iproute2) || skip_all faults "$why"
python3 tests/e2e/store_faults.py --bin-dir "$BIN" --work "$WORK/store-faults"
