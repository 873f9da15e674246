//! The proof that a batch does what its requests would have done one by one.
//!
//! Where a service writes many requests in one transaction, the function for a single request is the truth: it is short and
//! its rules can be read. The batch is only faster, and a property test over random requests keeps the two equal.

use std::fmt::Debug;

use sqlx::AssertSqlSafe;
use sqlx::postgres::PgPool;

use crate::postgres::postgres;

/// Gives the requests as one batch to `batch` and one after the other to `single`, each on a fresh database that `prepare` has
/// migrated and filled. Fails unless both return the same results and leave the same rows for each query of `tables`. The
/// queries leave out what differs by nature, such as times and random ids; the order of their rows does not count.
pub async fn same_outcome<T, R>(
    requests: &[T],
    prepare: impl AsyncFn(&PgPool),
    batch: impl AsyncFnOnce(&PgPool, &[T]) -> Vec<R>,
    single: impl AsyncFn(&PgPool, &T) -> R,
    tables: &[&str],
) where
    T: Debug,
    R: Debug + PartialEq,
{
    let (batch_database, single_database) = (postgres().await, postgres().await);
    let (batch_pool, single_pool) = (batch_database.pool().await, single_database.pool().await);
    prepare(&batch_pool).await;
    prepare(&single_pool).await;
    let mut expected = Vec::with_capacity(requests.len());
    for request in requests {
        expected.push(single(&single_pool, request).await);
    }
    let results = batch(&batch_pool, requests).await;
    assert_eq!(results, expected, "the batch (left) gives other results for {requests:?}");
    for table in tables {
        let (left, right) = (rows(&batch_pool, table).await, rows(&single_pool, table).await);
        assert_eq!(left, right, "the batch (left) leaves other rows of {table} for {requests:?}");
    }
}

async fn rows(pool: &PgPool, query: &str) -> Vec<String> {
    let sql = format!("SELECT to_jsonb(compared)::text FROM ({query}) AS compared ORDER BY 1");
    let rows = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(pool).await;
    rows.unwrap_or_else(|error| panic!("cannot compare {query}: {error}"))
}
