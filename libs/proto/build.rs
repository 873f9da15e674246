//! Compiles the contracts under `proto/` without a system `protoc`.

use std::path::{Path, PathBuf};

use prost::Message;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new("../../proto");
    let mut files = Vec::new();
    collect(&root.join("bursar"), &mut files)?;
    files.sort();
    println!("cargo:rerun-if-changed={}", root.display());

    // protox keeps unknown options when asked for the encoded form, and the access option must survive into reflection.
    let mut compiler = protox::Compiler::new([root])?;
    compiler.include_imports(true).include_source_info(true).open_files(&files)?;
    let descriptors = compiler.encode_file_descriptor_set();
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), &descriptors)?;

    let set = prost_types::FileDescriptorSet::decode(descriptors.as_slice())?;
    tonic_prost_build::configure().build_server(true).build_client(true).compile_fds(set)?;
    Ok(())
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "proto") {
            files.push(path);
        }
    }
    Ok(())
}
