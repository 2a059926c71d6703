# The store under faults: the simulation, then real processes: kill -9, SIGSTOP, a full disk, a partition, clock jumps, and all of
# them combined under a load that checks every response (disks, partitions and the combination need root); then the operator's
# tasks: inspecting, checking and repairing a member.
. tests/lib/need.sh
if [ "$LIST" = yes ]; then
  list_cargo -p kv-sim
  list_checks store_faults store_operations
  exit
fi
cargo_test -p kv-sim --no-fail-fast
build || exit 1
why=$(need etcd-client iproute2) || skip_all faults "$why"
python3 tests/e2e/store_faults.py --bin-dir "$BIN" --work "$WORK/store-faults"
python3 tests/e2e/store_operations.py --bin-dir "$BIN" --work "$WORK/store-operations"
