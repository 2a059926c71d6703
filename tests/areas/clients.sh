# The programs of the area interop, which waits for them: other projects' libraries take minutes to download and compile.
. tests/lib/need.sh
. tests/lib/clients.sh
programs="$GO_PROGRAMS extension cbor rolling venv javascript kube-rs"
[ "$LIST" = yes ] && { printf 'clients/%s\n' $programs; exit; }
build_clients || exit 1
for name in $programs; do
  if [ -e "$CLIENTS/$name" ]; then echo "ok clients/$name"; else echo "note: $name was not built; see interop"; fi
done
[ -n "$(ls "$CLIENTS" | grep -vE '\.log$|^notes$')" ] || echo "skip clients: none could be built"
