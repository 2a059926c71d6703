# The store under faults, with real processes: kill -9, SIGSTOP, a full disk, a partition, clock jumps, and all of
# them combined under a load that checks every response (disks, partitions and the combination need root); then the operator's
# tasks: inspecting, checking and repairing a member.
. tests/lib/need.sh
. tests/lib/cluster.sh
[ "$LIST" = yes ] && { list_checks store_faults store_operations; exit; }
build || exit 1
why=$(need etcd-client iproute2) || skip_all faults "$why"
[ "$(id -u)" -ne 0 ] || own_network
python3 tests/e2e/store_faults.py --bin-dir "$BIN" --work "$WORK/store-faults"
python3 tests/e2e/store_operations.py --bin-dir "$BIN" --work "$WORK/store-operations"
