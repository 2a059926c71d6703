# External dependencies of the build: sources, licences, banned crates, known vulnerabilities (deny.toml).
. tests/lib/need.sh
[ "$LIST" = yes ] && { echo supply; exit; }
wanted supply || exit 0
python3 tests/lib/supply.py
