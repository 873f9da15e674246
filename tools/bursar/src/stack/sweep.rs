//! Finding what runs on a data directory, whoever started it.
//!
//! `stack.json` may be behind the truth: a launcher was killed while it started parts, or a script started a service
//! again from its recorded command. This looks at the processes themselves, and is precise on purpose: a shell or an
//! editor that stands in the directory is none of ours.

use std::path::Path;

use devstack::{Identity, Postgres};

use super::{BSC, Layout, MONGODB, POSTGRES, REDIS, SERVICES, TRON};

/// Parts that run on this directory now: services first, then what they need.
pub fn running(layout: &Layout) -> Vec<(String, Identity)> {
    let mut services = Vec::new();
    let mut dependencies = Vec::new();
    let mongodb = layout.part(MONGODB).join("data");
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Some(identity) = Identity::of(pid) else { continue };
        let process = entry.path();
        if let Some(service) = service_of(&process, layout) {
            services.push((service, identity));
            continue;
        }
        let name = std::fs::read_to_string(process.join("comm")).unwrap_or_default();
        let stands_in = std::fs::read_link(process.join("cwd")).unwrap_or_default();
        let part = match name.trim() {
            "mongod" if stands_in == mongodb => MONGODB,
            "redis-server" if stands_in == layout.part(REDIS) => REDIS,
            "anvil" if stands_in == layout.part(BSC) => BSC,
            "tron-devnet" if stands_in == layout.part(TRON) => TRON,
            _ => continue,
        };
        dependencies.push((part.to_owned(), identity));
    }
    dependencies
        .extend(Postgres::running_in(&layout.part(POSTGRES)).map(|identity| (POSTGRES.to_owned(), identity)));
    services.into_iter().chain(dependencies).collect()
}

/// A service of this directory is started with its configuration file: `<service> serve --config FILE`. So is a worker (`work`), which
/// is not its service: starting that again must not end it.
fn service_of(process: &Path, layout: &Layout) -> Option<String> {
    let line = std::fs::read(process.join("cmdline")).ok()?;
    let words: Vec<&str> =
        line.split(|byte| *byte == 0).map(|word| std::str::from_utf8(word).unwrap_or("")).collect();
    let program = Path::new(words.first()?).file_name()?.to_str()?;
    let service = SERVICES.into_iter().find(|service| *service == program)?;
    let config = layout.config(service);
    if !words.iter().any(|word| Path::new(word) == config) {
        return None;
    }
    let runs = |word: &str| words.contains(&word);
    if runs("serve") {
        return Some(service.to_owned());
    }
    runs("work").then(|| format!("{service} work"))
}
