//! The process's own numbers, read from `/proc` when somebody asks.
//!
//! Owns the standard `process_*` metric names. On a system without `/proc` it adds nothing: no number is better than a
//! wrong one.

use std::{fmt::Write as _, fs};

/// `USER_HZ`: the unit of times in `/proc/<pid>/stat`. A constant of the Linux ABI on every architecture we build for.
const TICKS_PER_SECOND: u64 = 100;

struct Numbers {
    cpu_ticks: u64,
    start_ticks: u64,
    boot_seconds: u64,
    resident_bytes: u64,
    virtual_bytes: u64,
    open_files: u64,
    max_files: Option<u64>,
    threads: u64,
}

/// Appends the process metrics in Prometheus text.
pub(crate) fn append(text: &mut String) {
    let Some(now) = read() else { return };
    let mut metric = |name: &str, kind: &str, help: &str, value: String| {
        // Writing to a String cannot fail.
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
    };
    metric(
        "process_cpu_seconds_total",
        "counter",
        "Total user and system CPU time spent in seconds.",
        seconds(now.cpu_ticks),
    );
    metric(
        "process_resident_memory_bytes",
        "gauge",
        "Resident memory size in bytes.",
        now.resident_bytes.to_string(),
    );
    metric(
        "process_virtual_memory_bytes",
        "gauge",
        "Virtual memory size in bytes.",
        now.virtual_bytes.to_string(),
    );
    metric("process_open_fds", "gauge", "Number of open file descriptors.", now.open_files.to_string());
    if let Some(max) = now.max_files {
        metric("process_max_fds", "gauge", "Maximum number of open file descriptors.", max.to_string());
    }
    metric("process_threads", "gauge", "Number of threads.", now.threads.to_string());
    let started = now.boot_seconds.saturating_mul(TICKS_PER_SECOND).saturating_add(now.start_ticks);
    metric(
        "process_start_time_seconds",
        "gauge",
        "Start time of the process since unix epoch in seconds.",
        seconds(started),
    );
}

/// Ticks as decimal seconds, exactly and without floating point.
fn seconds(ticks: u64) -> String {
    format!("{}.{:02}", ticks / TICKS_PER_SECOND, ticks % TICKS_PER_SECOND)
}

fn read() -> Option<Numbers> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The command name may hold spaces and parentheses; what follows the last one is plain.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<u64>().ok());
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kilobytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok().map(|kb| kb.saturating_mul(1024))
    };
    let boot = fs::read_to_string("/proc/stat").ok()?;
    let boot_seconds = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(Numbers {
        cpu_ticks: field(14)?.saturating_add(field(15)?),
        threads: field(20)?,
        start_ticks: field(22)?,
        boot_seconds,
        resident_bytes: kilobytes("VmRSS:")?,
        virtual_bytes: kilobytes("VmSize:")?,
        // The directory handle of this very listing is one of the entries.
        open_files: u64::try_from(fs::read_dir("/proc/self/fd").ok()?.count()).ok()?.saturating_sub(1),
        max_files: max_files(),
    })
}

fn max_files() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}
