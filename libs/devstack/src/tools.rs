//! Finding the programs on this machine.
//!
//! Looks on PATH, in Debian's PostgreSQL directories, and in the tools directory that `scripts/install-tools` fills.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use strum::VariantArray as _;

use crate::error::MissingTool;

/// The programs that the stack runs on, named as they are on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Tool {
    Postgres,
    Initdb,
    Mongod,
    RedisServer,
    Anvil,
}

impl Tool {
    fn alternative(self) -> &'static str {
        match self {
            Tool::Postgres | Tool::Initdb => {
                "install PostgreSQL 15 or newer (Debian: apt-get install postgresql)"
            }
            Tool::Mongod => "put a MongoDB 6 `mongod` on PATH",
            Tool::RedisServer => "install Redis 7 (Debian: apt-get install redis-server)",
            Tool::Anvil => "install Foundry's anvil (npm: @foundry-rs/anvil)",
        }
    }
}

/// Where programs are looked for, in this order.
#[derive(Debug, Clone)]
pub struct Tools {
    dirs: Vec<PathBuf>,
    postgres_dirs: Vec<PathBuf>,
}

impl Tools {
    /// Reads PATH and the file system as they are now.
    pub fn locate() -> Tools {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
        dirs.extend(tools_dir().map(|dir| dir.join("bin")));
        Tools { dirs, postgres_dirs: debian_postgres(Path::new("/usr/lib/postgresql")) }
    }

    /// Looks in these directories only: for tests of what a missing program says.
    pub fn in_dirs(dirs: Vec<PathBuf>) -> Tools {
        Tools { dirs, postgres_dirs: Vec::new() }
    }

    pub fn find(&self, tool: Tool) -> Result<PathBuf, MissingTool> {
        let first: &[PathBuf] = match tool {
            // Debian's own directories first: the server runs as another user, who cannot reach a home directory.
            Tool::Postgres | Tool::Initdb => &self.postgres_dirs,
            Tool::Mongod | Tool::RedisServer | Tool::Anvil => &[],
        };
        let program = tool.into();
        let found = first.iter().chain(&self.dirs).map(|dir| dir.join(program)).find(|path| is_program(path));
        found.ok_or_else(|| MissingTool {
            program,
            looked_in: self.looked_in(tool),
            subset: "run",
            alternative: tool.alternative(),
        })
    }

    /// Every program that is missing, so that one message can name them all.
    pub fn missing(&self) -> Vec<MissingTool> {
        Tool::VARIANTS.iter().filter_map(|tool| self.find(*tool).err()).collect()
    }

    fn looked_in(&self, tool: Tool) -> String {
        let extra = match tool {
            Tool::Postgres | Tool::Initdb => ", /usr/lib/postgresql/*/bin",
            Tool::Mongod | Tool::RedisServer | Tool::Anvil => "",
        };
        match tools_dir() {
            Some(dir) => format!("looked on PATH{extra} and in {}", dir.join("bin").display()),
            None => format!("looked on PATH{extra}"),
        }
    }
}

/// Where `scripts/install-tools` puts what it downloads: outside the clone, so that clones share it.
pub fn tools_dir() -> Option<PathBuf> {
    let var = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    var("BURSAR_TOOLS").or_else(|| {
        let cache = var("XDG_CACHE_HOME").or_else(|| var("HOME").map(|home| home.join(".cache")))?;
        Some(cache.join("bursar").join("tools"))
    })
}

/// Debian's versioned directories, newest first, from version 15 on.
fn debian_postgres(root: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(version, _)| *version >= 15)
        .collect();
    versions.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    versions.into_iter().map(|(_, path)| path).collect()
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_says_how_to_get_it() {
        let tools = Tools::in_dirs(Vec::new());
        let text = tools.find(Tool::Mongod).unwrap_err().to_string();
        assert!(text.starts_with("mongod was not found"), "{text}");
        assert!(text.contains("scripts/install-tools run"), "{text}");
        assert_eq!(tools.missing().len(), Tool::VARIANTS.len());
    }

    #[test]
    fn the_newest_postgres_from_15_on_is_taken() {
        let root = tempfile::tempdir().unwrap();
        for version in ["9.6", "14", "15", "17"] {
            std::fs::create_dir_all(root.path().join(version).join("bin")).unwrap();
        }
        let found = debian_postgres(root.path());
        assert_eq!(found, [root.path().join("17/bin"), root.path().join("15/bin")]);
    }

    #[test]
    fn a_file_that_cannot_run_is_not_a_program() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("mongod"), "").unwrap();
        assert!(Tools::in_dirs(vec![dir.path().to_owned()]).find(Tool::Mongod).is_err());
    }
}
