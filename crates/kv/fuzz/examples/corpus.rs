//! Writes the corpus of each target to a directory of its own: `corpus FOLDER`.

use std::path::PathBuf;

/// Name of a target and its valid input.
type Corpus = (&'static str, fn() -> Vec<Vec<u8>>);

fn main() -> anyhow::Result<()> {
    let folder = std::env::args_os()
        .nth(1)
        .map(PathBuf::from)
        .ok_or_else(|| anyhow::anyhow!("corpus FOLDER"))?;
    let targets: [Corpus; 3] = [
        ("wal", kv_fuzz::wal_corpus),
        ("snapshot", kv_fuzz::snapshot_corpus),
        ("commands", kv_fuzz::commands_corpus),
    ];
    for (name, corpus) in targets {
        std::fs::create_dir_all(folder.join(name))?;
        for (number, input) in corpus().into_iter().enumerate() {
            std::fs::write(folder.join(name).join(format!("valid-{number}")), input)?;
        }
    }
    Ok(())
}
