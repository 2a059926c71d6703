# Runs areas in lanes: beside each other, with the output of each as one block. Sourced by tests/run.

# Job control gives each lane a process group, which an interruption of the run signals.
set -m
lanes=()

# run_area AREA OPTION: runs the script of an area. Unless OPTION is `live`, its output is printed when it has ended.
run_area() {
  local area=$1 option=$2 log="$RUN/$1.log" status begin=$SECONDS
  # kubectl's cache is by address and port, which clusters in different networks may share.
  export WORK="$RUN/$area" KUBECACHEDIR="$RUN/$area/kubectl-cache"
  mkdir "$WORK"
  if [ "$option" = live ]; then
    printf '\n=== %s\n' "$area"
    run_script "$area" 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    summarize "$area" "$log" "$status" $((SECONDS - begin))
  else
    # This shell may have something to say as well: that the script was killed.
    { run_script "$area" >"$log" 2>&1; } 2>>"$log"
    status=$?
    {
      flock 9
      printf '\n=== %s\n' "$area"
      cat "$log"
      summarize "$area" "$log" "$status" $((SECONDS - begin))
    } 9>"$RUN/print.lock"
  fi
  rm -rf "$WORK"
}

# run_script AREA: runs the script of an area, which an interruption ends also if this run was started without that signal.
run_script() { env --default-signal=INT bash -uo pipefail "$AREAS/$1.sh" </dev/null; }

# start_lane OPTION AREA ...: runs areas one after the other, in the background. OPTION is `live`, `idle` or `waiting`.
start_lane() {
  local option=$1 area
  shift
  [ $# -gt 0 ] || return 0
  {
    # The kernel's policy of processes that run only while no other wants the processor.
    [ "$option" != idle ] || chrt --idle --pid 0 "$BASHPID" 2>/dev/null || renice -n 19 -p "$BASHPID" >/dev/null
    for area in "$@"; do [ -e "$RUN/interrupted" ] || run_area "$area" "$option"; done
  } &
  lanes+=("$!")
}

# run_plan: runs the chosen areas. Without root they share the ports of the machine, and run one after the other.
run_plan() {
  local line first idle=()
  trap interrupt INT TERM HUP
  if [ "${#areas[@]}" -eq 1 ]; then
    start_lane live "${areas[@]}"
  elif [ "${IRONCLAD_TEST_LANES:-$(($(id -u) == 0 ? 2 : 1))}" -eq 1 ]; then
    start_lane waiting $(chosen $(planned first idle lane alone named))
  else
    start_lane waiting $(chosen $(planned first))
    wait
    start_lane idle $(chosen $(planned idle))
    idle=("${lanes[@]: -1}")
    first=${#lanes[@]}
    while read -r line; do start_lane waiting $(chosen $line); done < <(planned lane)
    wait "${lanes[@]:$first}"
    start_lane waiting $(chosen $(planned alone named))
  fi
  wait
  end_all_processes
}

# interrupt: ends the areas, which stop their clusters, and then each process of this run that is left.
interrupt() {
  local lane end=$((SECONDS + 180))
  trap '' INT TERM HUP
  echo "tests/run: interrupted; waiting for the areas to stop their clusters" >&2
  touch "$RUN/interrupted"
  for lane in "${lanes[@]}"; do kill -INT -- "-$lane" 2>/dev/null; done
  for lane in "${lanes[@]}"; do
    while kill -0 -- "-$lane" 2>/dev/null && [ "$SECONDS" -lt "$end" ]; do sleep 0.2; done
  done
  end_all_processes
  rm -rf "$RUN"
  exit 130
}

# end_all_processes: ends what the areas have left, which may be daemons of a command that was ended at its deadline.
end_all_processes() { end_processes TERM || end_processes KILL; }

# end_processes SIGNAL: sends a signal to the processes of this run, and waits until they have ended, for 10 seconds.
end_processes() {
  local end=$((SECONDS + 10)) found
  while found=$(processes_of_run); [ -n "$found" ]; do
    [ "$SECONDS" -lt "$end" ] || return 1
    kill "-$1" $found 2>/dev/null
    sleep 0.2
  done
}

# processes_of_run: prints the IDs of the processes that the areas have started, also those that left their process group.
processes_of_run() {
  local run=$RUN
  (unset RUN; grep -lzxF "RUN=$run" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3)
}
