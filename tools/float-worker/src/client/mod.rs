//! The client: where the wallets are read, and where moves are handed in. To be replaced together with the strategy, if need be.

mod execution;

pub use execution::Execution;
use worker::runtime::BoxError;

use crate::book::Book;
use crate::strategy::{Kind, Move};

/// Why the client could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// It was not reached, or did not answer. After handing in a move this means *unknown*, never *failed*.
    #[error("{what} did not work")]
    Call {
        what: &'static str,
        #[source]
        source: BoxError,
    },
    /// It answered with something that cannot be.
    #[error("execution answered with a {field} that cannot be used: {reason}")]
    Answer { field: &'static str, reason: String },
    /// It said no: nothing was done, nothing will be.
    #[error("refused: {0}")]
    Refused(String),
}

/// One move to be carried out.
#[derive(Debug, Clone, Copy)]
pub struct Order<'a> {
    /// The same order again has the same key.
    pub key: &'a str,
    /// Grows with every owner of the worker's lock; an older one is to be refused by whoever can. Absent without Redis.
    pub fencing_token: Option<u64>,
    pub a_move: &'a Move,
}

/// Reads wallets and carries out moves.
///
/// An implementation must be idempotent by the order's key; and what it has taken must show in [`Client::book`] from then on (as
/// `reserved` of the giver and `incoming` of the taker) until the balances show it, or the next cycle decides it again.
pub trait Client: Send + Sync + 'static {
    /// The kinds of moves it can carry out.
    fn offers(&self) -> &'static [Kind];

    /// What the wallets hold now.
    fn book(&self) -> impl Future<Output = Result<Book, ClientError>> + Send;

    /// Carries out a move; a reference by which people find it.
    fn execute(&self, order: Order<'_>) -> impl Future<Output = Result<String, ClientError>> + Send;
}
