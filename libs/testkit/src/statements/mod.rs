//! Every SQL statement of a crate, prepared against a migrated database: a column that does not exist fails in seconds.
//!
//! Statements are the files of `queries/` and the texts given to `sqlx::query*` or `raw_sql` in `repo.rs` files (and files of
//! `repo/` folders): string literals, and constants or variables of the same file that hold one. SQL in any other source
//! file is a failure too, so that nothing escapes the check. Texts that are put together at run time cannot be checked; they
//! are listed. Code after `#[cfg(test)]` and files named `tests.rs` or `*_tests.rs` are left out.

mod source;

use std::fs;
use std::path::{Path, PathBuf};

use sqlx::postgres::PgPool;
use sqlx::{AssertSqlSafe, Executor as _, SqlSafeStr as _};

use self::source::Text;

/// Prepares every statement of the crate in `crate_dir` (`env!("CARGO_MANIFEST_DIR")`). Panics with all failures at once, and
/// prints what it could not check.
#[allow(clippy::print_stderr, reason = "the test's output is where somebody looks for what was not checked")]
pub async fn check_statements(pool: &PgPool, crate_dir: impl AsRef<Path>) {
    let found = Found::collect(crate_dir.as_ref());
    for place in &found.unchecked {
        eprintln!("not checked: {place}");
    }
    let problems = found.problems(pool).await;
    assert!(problems.is_empty(), "{} statement(s) fail:\n{}", problems.len(), problems.join("\n"));
}

/// What is wrong with the crate's statements, with file and line.
pub async fn statement_problems(pool: &PgPool, crate_dir: &Path) -> Vec<String> {
    Found::collect(crate_dir).problems(pool).await
}

/// The calls whose text is put together at run time, with file and line.
pub fn unchecked_statements(crate_dir: &Path) -> Vec<String> {
    Found::collect(crate_dir).unchecked
}

#[derive(Debug, Default)]
struct Found {
    /// Each statement with its place.
    statements: Vec<(String, String)>,
    misplaced: Vec<String>,
    unchecked: Vec<String>,
}

impl Found {
    fn collect(crate_dir: &Path) -> Self {
        let mut found = Self::default();
        for file in files(&crate_dir.join("queries"), "sql") {
            found.statements.push((format!("{}:1", file.display()), read(&file)));
        }
        for file in files(&crate_dir.join("src"), "rs").into_iter().filter(|file| !is_test(file)) {
            let text = read(&file);
            let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
            for (line, sql) in source::queries(text) {
                let place = format!("{}:{line}", file.display());
                match sql {
                    _ if !is_repo(&file) => found.misplaced.push(place),
                    // Checked as a file.
                    Text::Included => {}
                    Text::Dynamic => found.unchecked.push(place),
                    Text::Sql(parts) => {
                        found.statements.extend(parts.into_iter().map(|sql| (place.clone(), sql)))
                    }
                }
            }
        }
        assert!(!found.statements.is_empty(), "{} has no statements", crate_dir.display());
        found
    }

    async fn problems(self, pool: &PgPool) -> Vec<String> {
        let misplaced =
            self.misplaced.iter().map(|place| format!("{place}: SQL outside repo.rs and queries/"));
        let mut problems: Vec<String> = misplaced.collect();
        for (place, sql) in self.statements {
            if let Err(error) = pool.prepare(AssertSqlSafe(sql).into_sql_str()).await {
                problems.push(format!("{place}: {error}"));
            }
        }
        problems
    }
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn is_repo(file: &Path) -> bool {
    let is_named = |path: &Path, name: &str| path.file_name().is_some_and(|own| own == name);
    is_named(file, "repo.rs") || file.ancestors().skip(1).any(|folder| is_named(folder, "repo"))
}

fn is_test(file: &Path) -> bool {
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    name == "tests" || name.ends_with("_tests")
}

/// The files below a folder with this extension, in order.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else { return found };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|own| own == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}
