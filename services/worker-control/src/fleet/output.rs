//! What workers say, passed on with their id.
//!
//! A worker writes to a file, which outlives us; this reads what is new and says it again as log lines. A file that has been
//! passed on and has grown large is emptied.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use worker::WorkerId;

/// Read at once from one worker, so that a loud one does not drown the others.
const MOST_AT_ONCE: u64 = 256 * 1024;
/// A longer line is passed on in pieces.
const LONGEST_LINE: usize = 16 * 1024;
/// A file that was passed on to its end and is larger than this is emptied.
const LARGE: u64 = 4 * 1024 * 1024;

/// The files of all workers, and how far each has been read.
#[derive(Debug)]
pub(crate) struct Outputs {
    dir: PathBuf,
    read: BTreeMap<WorkerId, Position>,
}

#[derive(Debug, Default)]
struct Position {
    offset: u64,
    /// The beginning of a line whose end has not been written yet.
    rest: Vec<u8>,
}

impl Outputs {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir, read: BTreeMap::new() }
    }

    pub(crate) fn file(&self, id: &WorkerId) -> PathBuf {
        self.dir.join(format!("{id}.log"))
    }

    /// Follows a worker's output from its present end on: what was there before has been said, or was for a predecessor.
    pub(crate) fn follow(&mut self, id: &WorkerId) {
        if !self.read.contains_key(id) {
            let offset = std::fs::metadata(self.file(id)).map_or(0, |file| file.len());
            self.read.insert(id.clone(), Position { offset, rest: Vec::new() });
        }
    }

    pub(crate) fn forget(&mut self, id: &WorkerId) {
        self.pass_on_one(id);
        self.read.remove(id);
    }

    /// Passes on what is new, everywhere.
    pub(crate) fn pass_on(&mut self) {
        let ids: Vec<WorkerId> = self.read.keys().cloned().collect();
        for id in ids {
            self.pass_on_one(&id);
        }
    }

    pub(crate) fn pass_on_one(&mut self, id: &WorkerId) {
        let path = self.file(id);
        let Some(position) = self.read.get_mut(id) else { return };
        for line in position.new_lines(&path) {
            tracing::info!(target: "worker_output", worker = %id, "{line}");
        }
    }
}

impl Position {
    fn new_lines(&mut self, path: &Path) -> Vec<String> {
        // Most workers say nothing most of the time; a look costs less than opening.
        let Ok(length) = std::fs::metadata(path).map(|file| file.len()) else { return Vec::new() };
        if length < self.offset {
            // Somebody emptied it.
            self.offset = 0;
        }
        if length == self.offset {
            return Vec::new();
        }
        let Ok(bytes) = read_from(path, self.offset) else { return Vec::new() };
        self.offset += bytes.len() as u64;
        self.rest.extend_from_slice(&bytes);
        if self.offset > LARGE && self.offset >= length {
            // What is written between the look and this is lost, as with every log that is emptied in place.
            let emptied = OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(0));
            if emptied.is_ok() {
                self.offset = 0;
            }
        }
        self.take_lines()
    }

    fn take_lines(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let end = match self.rest.iter().position(|byte| *byte == b'\n') {
                Some(end) => end + 1,
                None if self.rest.len() >= LONGEST_LINE => LONGEST_LINE,
                None => return lines,
            };
            let line: Vec<u8> = self.rest.drain(..end).collect();
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            if !line.is_empty() {
                lines.push(line);
            }
        }
    }
}

fn read_from(path: &Path, offset: u64) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(MOST_AT_ONCE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn each_line_is_told_once_and_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        let mut file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
        let mut position = Position::default();
        write!(file, "one\ntw").unwrap();
        assert_eq!(position.new_lines(&path), ["one"]);
        assert_eq!(position.new_lines(&path), [""; 0]);
        write!(file, "o\n\nthree\n").unwrap();
        assert_eq!(position.new_lines(&path), ["two", "three"]);
    }

    #[test]
    fn a_large_file_is_emptied_once_it_was_passed_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        let mut file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
        let line = format!("{}\n", "x".repeat(1023));
        file.write_all(line.repeat(5 * 1024).as_bytes()).unwrap();
        let mut position = Position::default();
        let mut told = 0;
        while std::fs::metadata(&path).unwrap().len() > 0 {
            told += position.new_lines(&path).len();
        }
        assert_eq!(told, 5 * 1024);
        writeln!(file, "after").unwrap();
        assert_eq!(position.new_lines(&path), ["after"]);
    }
}
