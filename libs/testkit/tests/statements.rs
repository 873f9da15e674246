//! The check of statements finds what is wrong, and only that.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panic as the tests do")]

use std::fs;
use std::path::Path;

async fn problems(files: &[(&str, &str)]) -> Vec<String> {
    let database = testkit::postgres().await;
    let pool = database.pool().await;
    testkit::execute(database.url(), &["CREATE TABLE job (id bigint PRIMARY KEY, note text)"]).await;
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).unwrap();
        fs::write(path, text).unwrap();
    }
    testkit::statement_problems(&pool, folder.path()).await
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
