//! The check of statements finds what is wrong, and only that.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panic as the tests do")]

use std::fs;
use std::path::Path;

fn crate_with(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

async fn problems(files: &[(&str, &str)]) -> Vec<String> {
    let database = testkit::postgres().await;
    let pool = database.pool().await;
    testkit::execute(database.url(), &["CREATE TABLE job (id bigint PRIMARY KEY, note text)"]).await;
    testkit::statement_problems(&pool, crate_with(files).path()).await
}

#[tokio::test]
async fn statements_that_fit_the_tables_pass() {
    let found = problems(&[
        ("queries/job_get.sql", "-- $1 id\nSELECT note FROM job WHERE id = $1"),
        ("src/job/repo.rs", "fn f() { sqlx::query_as(\"SELECT id FROM job \\\n        WHERE note = $1\"); }"),
        ("src/job/repo/list.rs", "fn f() { sqlx::query_scalar::<_, i64>(r#\"SELECT id AS \"id\" FROM job\"#); }"),
        ("src/job/app.rs", "// sqlx::query is not called here\nfn f() {}\n#[cfg(test)]\nmod tests { fn f() { sqlx::query(\"x\"); } }"),
    ])
    .await;
    assert_eq!(found, Vec::<String>::new());
}

#[tokio::test]
async fn a_wrong_column_is_named_with_file_and_line() {
    let found = problems(&[
        ("queries/job_get.sql", "SELECT remark FROM job"),
        ("src/job/repo.rs", "fn f() {\n    sqlx::query(\n        \"SELECT colour FROM job\",\n    );\n}"),
    ])
    .await;
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("job_get.sql:1: ") && found[0].contains("remark"), "{found:?}");
    assert!(found[1].contains("repo.rs:2: ") && found[1].contains("colour"), "{found:?}");
}

#[tokio::test]
async fn sql_elsewhere_is_a_problem() {
    let found = problems(&[
        ("queries/job_get.sql", "SELECT 1"),
        ("src/worker/lanes.rs", "fn f() { sqlx::query(\"SELECT 1\"); }"),
    ])
    .await;
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("lanes.rs:1: SQL outside"), "{found:?}");
}

#[tokio::test]
async fn constants_imports_and_several_statements_at_once_are_checked() {
    let found = problems(&[(
        "src/job/repo.rs",
        "use sqlx::{PgPool, query_as, raw_sql};\n\
         const LIST: &str =\n    \"SELECT a FROM job\";\n\
         const FILE: &str = include_str!(\"x.sql\");\n\
         fn f() { query_as::<_, (Option<i64>,)>(LIST); query_as(FILE); raw_sql(\"SELECT ';' AS x; SELECT b FROM job\"); }\n\
         fn g() { let sql = \"SELECT c FROM job WHERE id = 1\"; sqlx::query(sql); pool.query(\"no\"); raw_sql(\"SET LOCAL lock_timeout = 1\"); }",
    )])
    .await;
    let columns: Vec<&str> = ["\"a\"", "\"b\"", "\"c\""].into();
    assert_eq!(found.len(), columns.len(), "{found:?}");
    for (problem, column) in found.iter().zip(columns) {
        assert!(problem.contains(column), "{found:?}");
    }
}

#[test]
fn texts_put_together_at_run_time_are_listed_as_not_checked() {
    let folder = crate_with(&[(
        "src/job/repo.rs",
        "fn f() {\n    sqlx::query(\"SELECT 1\");\n    sqlx::query(&format!(\"SELECT {x}\"));\n    sqlx::raw_sql(\"DO $$ BEGIN; END $$\");\n}",
    )]);
    let found = testkit::unchecked_statements(folder.path());
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].ends_with("repo.rs:3") && found[1].ends_with("repo.rs:4"), "{found:?}");
}
