//! The committed gRPC code is that of the proto files. It is not generated in each build: the
//! generator and its parser take longer to compile than the code itself.
//!
//! `UPDATE_GENERATED=$PWD cargo test -p layers --test generated`, from the root of a clone, writes it.
#![allow(clippy::expect_used)]

mod services;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use layers::workspace_root;

/// Proto files whose code is in one crate.
struct ProtoFiles {
    folder: &'static str,
    files: &'static [&'static str],
    /// True if `bytes` fields share the buffer of the message.
    shares_buffer: bool,
    generated: &'static str,
}

const ALL: [ProtoFiles; 4] = [
    ProtoFiles {
        folder: "proto/etcd",
        files: &["kv", "auth", "rpc", "lock", "election"],
        shares_buffer: true,
        generated: "crates/proto/etcd/src/generated",
    },
    ProtoFiles {
        folder: "proto/cri",
        files: &["api", "containerd_events"],
        shares_buffer: false,
        generated: "crates/proto/cri/src/generated",
    },
    ProtoFiles {
        folder: "proto/plugins",
        files: &["registration", "dra_v1", "dra_v1beta1"],
        shares_buffer: false,
        generated: "crates/proto/plugins/src/generated",
    },
    ProtoFiles {
        folder: "crates/kv/raft/proto",
        files: &["peer"],
        shares_buffer: true,
        generated: "crates/kv/raft/src/generated",
    },
];

#[test]
fn generated_code_is_that_of_the_proto_files() {
    let updated = std::env::var_os("UPDATE_GENERATED").map(PathBuf::from);
    let root = updated.clone().unwrap_or_else(workspace_root);
    for protos in &ALL {
        let code = generate_code(&root, protos);
        let folder = root.join(protos.generated);
        if updated.is_some() {
            write_code(&folder, &code);
        }
        let names = list_names(&folder);
        assert!(
            names.iter().eq(code.keys()),
            "{}: {names:?}",
            protos.generated
        );
        for (name, text) in &code {
            let committed = fs::read_to_string(folder.join(name)).expect("a file");
            assert!(
                committed == *text,
                "{}/{name} is out of date: UPDATE_GENERATED=$PWD cargo test -p layers --test generated",
                protos.generated
            );
        }
    }
}

/// Returns the code by file name.
fn generate_code(root: &Path, protos: &ProtoFiles) -> BTreeMap<String, String> {
    let folder = root.join(protos.folder);
    let files = protos.files.iter();
    let paths: Vec<_> = files
        .map(|name| folder.join(format!("{name}.proto")))
        .collect();
    let descriptors = protox::compile(&paths, [&folder]).expect("the proto files are valid");
    let out = tempfile::tempdir().expect("a directory");
    let mut generator = prost_build::Config::new();
    generator
        .out_dir(out.path())
        .service_generator(Box::new(services::ServiceWriter));
    if protos.shares_buffer {
        generator.bytes(["."]);
    }
    generator
        .compile_fds(descriptors)
        .expect("code is generated");
    let read = |name: &String| fs::read_to_string(out.path().join(name)).expect("generated code");
    let names = list_names(out.path()).into_iter();
    names.map(|name| (name.clone(), read(&name))).collect()
}

fn write_code(folder: &Path, code: &BTreeMap<String, String>) {
    fs::create_dir_all(folder).expect("the folder can be made");
    for name in list_names(folder) {
        fs::remove_file(folder.join(name)).expect("the file can be removed");
    }
    for (name, text) in code {
        fs::write(folder.join(name), text).expect("the file can be written");
    }
}

fn list_names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
