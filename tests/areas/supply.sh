# What the build takes from outside: sources, licences, banned crates, known vulnerabilities (deny.toml).
python3 tests/lib/supply.py
