//! Every SQL statement of a crate, prepared against a migrated database: a column that does not exist fails in seconds.
//!
//! Statements stand in `queries/*.sql` and in string literals given to `sqlx::query*` or `raw_sql` in `repo.rs` files (and files of
//! `repo/` folders). SQL in any other source file is a failure too, so that nothing escapes the check. Code after
//! `#[cfg(test)]` and files named `tests.rs` or `*_tests.rs` are left out.

use std::fs;
use std::path::{Path, PathBuf};

use sqlx::postgres::PgPool;
use sqlx::{AssertSqlSafe, Executor as _, SqlSafeStr as _};

/// One statement, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Statement {
    file: PathBuf,
    line: usize,
    sql: String,
}

/// Prepares every statement of the crate in `crate_dir` (`env!("CARGO_MANIFEST_DIR")`). Panics with all failures at once.
pub async fn check_statements(pool: &PgPool, crate_dir: impl AsRef<Path>) {
    let problems = statement_problems(pool, crate_dir.as_ref()).await;
    assert!(problems.is_empty(), "{} statement(s) fail:\n{}", problems.len(), problems.join("\n"));
}

/// What is wrong with the crate's statements, with file and line.
pub async fn statement_problems(pool: &PgPool, crate_dir: &Path) -> Vec<String> {
    let mut statements = Vec::new();
    let mut problems = Vec::new();
    for file in files(&crate_dir.join("queries"), "sql") {
        let sql = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        statements.push(Statement { file, line: 1, sql });
    }
    for file in files(&crate_dir.join("src"), "rs") {
        if is_test(&file) {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        for (line, literal) in queries(text) {
            if !is_repo(&file) {
                problems.push(format!("{}:{line}: SQL outside repo.rs and queries/", file.display()));
            } else if let Literal::Sql(sql) = literal {
                statements.push(Statement { file: file.clone(), line, sql });
            }
        }
    }
    assert!(!statements.is_empty(), "{} has no statements", crate_dir.display());
    for Statement { file, line, sql } in statements {
        if let Err(error) = pool.prepare(AssertSqlSafe(sql).into_sql_str()).await {
            problems.push(format!("{}:{line}: {error}", file.display()));
        }
    }
    problems
}

/// The first argument of a query function.
enum Literal {
    Sql(String),
    /// `include_str!` (checked as a file), a constant or a built text.
    Other,
}

/// The calls of `sqlx::query*` and `raw_sql` in a source text, with their lines.
fn queries(text: &str) -> Vec<(usize, Literal)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("sqlx::query").chain(text.match_indices("sqlx::raw_sql")) {
        let line_start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        if text[line_start..at].trim_start().starts_with("//") {
            continue;
        }
        // An import has no argument list.
        let Some(open) = text[at..].find(['(', ';']).map(|offset| at + offset) else { continue };
        if text.as_bytes()[open] == b';' {
            continue;
        }
        let line = text[..at].matches('\n').count() + 1;
        found.push((line, literal(text[open + 1..].trim_start()).map_or(Literal::Other, Literal::Sql)));
    }
    found.sort_by_key(|(line, _)| *line);
    found
}

/// The string literal at the start of a source text.
fn literal(text: &str) -> Option<String> {
    if let Some(raw) = text.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        let body = raw[hashes..].strip_prefix('"')?;
        return body.split_once(&format!("\"{}", "#".repeat(hashes))).map(|(sql, _)| sql.to_owned());
    }
    let mut characters = text.strip_prefix('"')?.chars().peekable();
    let mut sql = String::new();
    while let Some(character) = characters.next() {
        match character {
            '"' => return Some(sql),
            '\\' => match characters.next()? {
                'n' => sql.push('\n'),
                't' => sql.push('\t'),
                // A line that goes on: the spaces at the start of the next one do not count.
                '\n' => while characters.next_if(|next| next.is_whitespace()).is_some() {},
                other => sql.push(other),
            },
            other => sql.push(other),
        }
    }
    None
}

fn is_repo(file: &Path) -> bool {
    let named =
        |path: Option<&Path>, name: &str| path.and_then(Path::file_name).is_some_and(|own| own == name);
    named(Some(file), "repo.rs") || file.ancestors().skip(1).any(|folder| named(Some(folder), "repo"))
}

fn is_test(file: &Path) -> bool {
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    name == "tests" || name.ends_with("_tests")
}

/// The files below a folder with this extension, in order.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else { return found };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|own| own == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}
