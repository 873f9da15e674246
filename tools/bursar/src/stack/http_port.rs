//! The port of worker control's JSON API: the documented one, unless somebody has it.
//!
//! Several stacks may run on one machine. Invariants: a stack that got the port keeps it for as long as any of its services
//! runs, also while its worker control is down; of two stacks that start at the same time, one gets it and the other goes on
//! with any other port.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use anyhow::Result;

use super::Layout;
use super::workers::HTTP;

/// Where it is by default, and where people look for it.
const DOCUMENTED: u16 = 3001;

/// Chooses the port and notes it in `ports`. What is returned holds it while the start prepares the rest, and must be dropped
/// before worker control is started. Who loses the port even so finds it in use, and chooses again.
pub(super) fn claim(layout: &Layout, ports: &mut BTreeMap<String, u16>) -> Result<Option<TcpListener>> {
    let is_anothers = held_by_another(layout, Path::new("/proc"));
    let last = ports.get(HTTP).copied().filter(|port| *port != DOCUMENTED);
    let port = devstack::claim_port(if is_anothers { last } else { Some(DOCUMENTED) })?;
    ports.insert(HTTP.to_owned(), port);
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok())
}

/// Whether a stack on another directory, of which any service runs, was given the documented port.
fn held_by_another(layout: &Layout, processes: &Path) -> bool {
    let stack_of = |process: &Path| -> Option<Layout> {
        let line = std::fs::read(process.join("cmdline")).ok()?;
        let words: Vec<&str> =
            line.split(|byte| *byte == 0).map(|word| std::str::from_utf8(word).unwrap_or("")).collect();
        let config = words.iter().position(|word| *word == "--config").and_then(|at| words.get(at + 1))?;
        // `<data>/config/<service>.toml`
        Layout::find(Path::new(config).parent()?.parent()?)
    };
    let processes = std::fs::read_dir(processes).into_iter().flatten().flatten();
    processes
        .filter_map(|process| stack_of(&process.path()))
        .any(|other| other.root() != layout.root() && other.ports().get(HTTP) == Some(&DOCUMENTED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_belongs_to_a_stack_for_as_long_as_one_of_its_services_runs() {
        let dir = tempfile::tempdir().unwrap();
        let ours = Layout::create(&dir.path().join("ours")).unwrap();
        let other = Layout::create(&dir.path().join("other")).unwrap();
        let processes = dir.path().join("proc");
        let process = processes.join("7");
        std::fs::create_dir_all(&process).unwrap();
        let runs = |layout: &Layout| {
            let config = layout.config("intent");
            let line = format!("/bin/intent\0serve\0--config\0{}\0", config.display());
            std::fs::write(process.join("cmdline"), line).unwrap();
        };
        let keeps = |layout: &Layout, port| layout.keep_ports(&[(HTTP.to_owned(), port)].into()).unwrap();

        keeps(&other, DOCUMENTED);
        assert!(!held_by_another(&ours, &processes), "nothing of it runs");
        runs(&other);
        assert!(held_by_another(&ours, &processes), "worker control itself need not run");
        assert!(!held_by_another(&other, &processes), "one's own port is free for oneself");
        keeps(&other, 20_000);
        assert!(!held_by_another(&ours, &processes), "it was given another");
    }
}
