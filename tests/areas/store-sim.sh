# The store in a simulation: a whole cluster with faults on one thread, whose clock only moves when all tasks wait.
. tests/lib/need.sh
if [ "$LIST" = yes ]; then
  list_cargo --package kv-sim
  exit
fi
rust_tests --package kv-sim
