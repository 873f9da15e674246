//! Statements to a server that the test did not start through this crate, such as the database of a whole stack.

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Executor};

/// Runs statements one after the other on a connection of their own; panics when one fails.
pub async fn execute(url: &str, statements: &[&str]) {
    let run = async {
        let mut connection = PgConnection::connect(url).await?;
        for statement in statements {
            connection.execute(AssertSqlSafe((*statement).to_owned())).await?;
        }
        connection.close().await
    };
    run.await.unwrap_or_else(|error| panic!("cannot run {statements:?}: {error}"));
}
