//! Output of workers, forwarded to the log with their id.
//!
//! A worker writes to a file, which outlives the orchestrator; this module reads what is new and logs it. A line that is a JSON
//! object, as our own workers write, keeps its level, message and fields. A large file is truncated once it has been forwarded.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use tracing::Level;
use worker::WorkerId;

/// Bytes read at once from one worker, so that a busy one does not delay the others.
const MAX_READ: u64 = 256 * 1024;
/// A longer line is forwarded in pieces.
const MAX_LINE: usize = 16 * 1024;
/// A file that was forwarded to its end and is larger than this is truncated.
const TRUNCATE_ABOVE: u64 = 4 * 1024 * 1024;
/// Output of a worker that writes faster than this module forwards is dropped beyond this, before the disk is full.
const MAX_BACKLOG: u64 = 64 * 1024 * 1024;

/// The output files of all workers, and how far each has been read.
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
        file_in(&self.dir, id)
    }

    /// Follows a worker's output from its present end on; what is there already was forwarded before.
    pub(crate) fn follow(&mut self, id: &WorkerId) {
        if !self.read.contains_key(id) {
            let offset = std::fs::metadata(self.file(id)).map_or(0, |file| file.len());
            self.read.insert(id.clone(), Position { offset, rest: Vec::new() });
        }
    }

    pub(crate) fn forget(&mut self, id: &WorkerId) {
        self.ended(id);
        self.read.remove(id);
    }

    /// Forwards new output of all workers.
    pub(crate) fn forward_new(&mut self) {
        for (id, position) in &mut self.read {
            position.forward_new(id, &file_in(&self.dir, id));
        }
    }

    /// Forwards the rest of a process's output, even without a final line break.
    pub(crate) fn ended(&mut self, id: &WorkerId) {
        let path = self.file(id);
        let Some(position) = self.read.get_mut(id) else { return };
        position.forward_new(id, &path);
        if let Some(line) = position.unterminated(&path) {
            log_line(id, &line);
        }
    }
}

fn file_in(dir: &Path, id: &WorkerId) -> PathBuf {
    dir.join(format!("{id}.log"))
}

fn log_line(id: &WorkerId, line: &str) {
    let Ok(Value::Object(fields)) = serde_json::from_str(line) else {
        tracing::info!(target: "worker_output", worker = %id, "{line}");
        return;
    };
    let OutputLine { level, message, fields } = OutputLine::new(fields);
    // tracing fixes the level of an event at compile time, so there is one call for each.
    macro_rules! at {
        ($level:expr) => {
            tracing::event!(target: "worker_output", $level, worker = %id, line.json = %fields, "{message}")
        };
    }
    match level {
        Level::ERROR => at!(Level::ERROR),
        Level::WARN => at!(Level::WARN),
        Level::INFO => at!(Level::INFO),
        Level::DEBUG => at!(Level::DEBUG),
        Level::TRACE => at!(Level::TRACE),
    }
}

/// A JSON line, split into level, message and the other fields.
#[derive(Debug, PartialEq, Eq)]
struct OutputLine {
    level: Level,
    message: String,
    fields: Value,
}

impl OutputLine {
    fn new(mut fields: Map<String, Value>) -> Self {
        let level = fields.get("level").and_then(Value::as_str).and_then(|level| level.parse().ok());
        let message = match fields.remove("message") {
            Some(Value::String(message)) => message,
            Some(other) => other.to_string(),
            None => String::new(),
        };
        if level.is_some() {
            fields.remove("level");
        }
        Self { level: level.unwrap_or(Level::INFO), message, fields: Value::Object(fields) }
    }
}

impl Position {
    fn forward_new(&mut self, id: &WorkerId, path: &Path) {
        for line in self.new_lines(path) {
            log_line(id, &line);
        }
    }

    fn new_lines(&mut self, path: &Path) -> Vec<String> {
        // Most workers write nothing most of the time, and metadata cost less than opening the file.
        let Ok(length) = std::fs::metadata(path).map(|file| file.len()) else { return Vec::new() };
        if length < self.offset {
            // The file was truncated.
            self.offset = 0;
        }
        if length == self.offset {
            return Vec::new();
        }
        if length - self.offset > MAX_BACKLOG {
            return self.skip(path, length);
        }
        let Ok(bytes) = read_from(path, self.offset) else { return Vec::new() };
        self.offset += bytes.len() as u64;
        self.rest.extend_from_slice(&bytes);
        if self.offset > TRUNCATE_ABOVE && self.offset >= length {
            self.truncate(path);
        }
        self.take_lines()
    }

    /// What is written between the last read and this is lost, as with every log that is truncated in place.
    fn truncate(&mut self, path: &Path) {
        if OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(0)).is_ok() {
            self.offset = 0;
        }
    }

    fn skip(&mut self, path: &Path, length: u64) -> Vec<String> {
        let skipped = length - self.offset;
        self.offset = length;
        self.rest.clear();
        self.truncate(path);
        vec![format!("({skipped} bytes are left out: more than can be forwarded)")]
    }

    fn take_lines(&mut self) -> Vec<String> {
        let (mut lines, mut taken) = (Vec::new(), 0);
        loop {
            let open = &self.rest[taken..];
            let near = &open[..open.len().min(MAX_LINE)];
            let length = match near.iter().position(|byte| *byte == b'\n') {
                Some(end) => end + 1,
                None if near.len() == MAX_LINE => MAX_LINE,
                None => break,
            };
            lines.extend(text(&open[..length]));
            taken += length;
        }
        // Drained once for all lines: draining one by one would move the rest each time.
        self.rest.drain(..taken);
        lines
    }

    /// The rest of an unfinished line, once everything before it has been forwarded.
    fn unterminated(&mut self, path: &Path) -> Option<String> {
        let complete = std::fs::metadata(path).is_ok_and(|file| file.len() == self.offset);
        let rest = if complete { std::mem::take(&mut self.rest) } else { Vec::new() };
        text(&rest)
    }
}

fn text(bytes: &[u8]) -> Option<String> {
    let line = String::from_utf8_lossy(bytes).trim_end().to_owned();
    (!line.is_empty()).then_some(line)
}

fn read_from(path: &Path, offset: u64) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(MAX_READ).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use serde_json::json;

    use super::*;

    fn log_file() -> (tempfile::TempDir, PathBuf, File) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        let file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
        (dir, path, file)
    }

    #[test]
    fn a_line_of_fields_keeps_its_level_and_its_fields() {
        let parsed = |line: Value| match line {
            Value::Object(fields) => OutputLine::new(fields),
            other => panic!("{other} has no fields"),
        };
        assert_eq!(
            parsed(json!({ "level": "WARN", "message": "job error", "job_id": "7", "retry_count": 3 })),
            OutputLine {
                level: Level::WARN,
                message: "job error".to_owned(),
                fields: json!({ "job_id": "7", "retry_count": 3 })
            }
        );
        // A level that is not one of ours is a field like any other.
        assert_eq!(
            parsed(json!({ "level": 30, "message": 7 })),
            OutputLine { level: Level::INFO, message: "7".to_owned(), fields: json!({ "level": 30 }) }
        );
        assert_eq!(
            parsed(json!({})),
            OutputLine { level: Level::INFO, message: String::new(), fields: json!({}) }
        );
    }

    #[test]
    fn each_line_is_forwarded_once_and_whole() {
        let (_dir, path, mut file) = log_file();
        let mut position = Position::default();
        write!(file, "one\ntw").unwrap();
        assert_eq!(position.new_lines(&path), ["one"]);
        assert_eq!(position.new_lines(&path), [""; 0]);
        write!(file, "o\n\nthree\n").unwrap();
        assert_eq!(position.new_lines(&path), ["two", "three"]);
    }

    #[test]
    fn a_long_line_comes_in_pieces_wherever_it_ends() {
        let (_dir, path, _) = log_file();
        std::fs::write(&path, format!("{}\nshort\n", "x".repeat(MAX_LINE * 2 + 1))).unwrap();
        let lengths: Vec<usize> = Position::default().new_lines(&path).iter().map(String::len).collect();
        assert_eq!(lengths, [MAX_LINE, MAX_LINE, 1, "short".len()]);
    }

    #[test]
    fn a_worker_that_writes_without_end_does_not_fill_the_disk() {
        let (_dir, path, mut file) = log_file();
        file.set_len(MAX_BACKLOG + 1).unwrap();
        let mut position = Position::default();
        assert_eq!(position.new_lines(&path), ["(67108865 bytes are left out: more than can be forwarded)"]);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
        writeln!(file, "after").unwrap();
        assert_eq!(position.new_lines(&path), ["after"]);
    }

    #[test]
    fn a_last_line_without_a_line_break_is_forwarded_and_not_mixed_with_what_comes_next() {
        let (_dir, path, mut file) = log_file();
        let mut position = Position::default();
        write!(file, "one\nlast wor").unwrap();
        assert_eq!(position.new_lines(&path), ["one"]);
        write!(file, "ds").unwrap();
        assert_eq!(position.unterminated(&path), None, "what is not read yet comes first");
        assert_eq!(position.new_lines(&path), [""; 0]);
        assert_eq!(position.unterminated(&path).as_deref(), Some("last words"));
        writeln!(file, "hello").unwrap();
        assert_eq!(position.new_lines(&path), ["hello"]);
    }

    #[test]
    fn a_large_file_is_truncated_once_it_was_forwarded() {
        let (_dir, path, mut file) = log_file();
        let line = format!("{}\n", "x".repeat(1023));
        file.write_all(line.repeat(5 * 1024).as_bytes()).unwrap();
        let mut position = Position::default();
        let mut lines = 0;
        while std::fs::metadata(&path).unwrap().len() > 0 {
            lines += position.new_lines(&path).len();
        }
        assert_eq!(lines, 5 * 1024);
        writeln!(file, "after").unwrap();
        assert_eq!(position.new_lines(&path), ["after"]);
    }
}
