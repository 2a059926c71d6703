# External dependencies of the build: sources, licences, banned crates, known vulnerabilities (deny.toml).
python3 tests/lib/supply.py
