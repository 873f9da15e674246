//! Subcommands for operators: what the outbox could not deliver, and setting it going again.

use std::io::Write as _;

use db::outbox;
use service::BoxError;
use service::clap::{Arg, ArgMatches, Command, value_parser};
use sqlx::PgPool;
use uuid::Uuid;

const LIST: &str = "outbox-list";
const REQUEUE: &str = "outbox-requeue";
/// More than anybody reads at once.
const MOST: u32 = 1000;

pub(crate) fn all() -> Vec<Command> {
    let message = Arg::new("message")
        .required(true)
        .value_parser(value_parser!(Uuid))
        .help("Id of the parked message, as the list shows it");
    vec![
        Command::new(LIST).about("List messages that execution refused for good, and why"),
        Command::new(REQUEUE).about("Deliver a parked message again, and those behind it").arg(message),
    ]
}

pub(crate) async fn run(name: &str, arguments: &ArgMatches, pool: PgPool) -> Result<(), BoxError> {
    let mut out = std::io::stdout();
    match name {
        LIST => {
            for parked in outbox::parked(&pool, MOST).await? {
                writeln!(
                    out,
                    "{} {} withdrawal={} parked_at={} tries={} waiting_behind={} reason={:?}",
                    parked.message_id,
                    parked.topic,
                    parked.aggregate,
                    parked.parked_at.to_rfc3339(),
                    parked.tries,
                    parked.waiting_behind,
                    parked.reason,
                )?;
            }
            Ok(())
        }
        REQUEUE => {
            let message = *arguments.get_one::<Uuid>("message").ok_or("name a message")?;
            if !outbox::requeue_parked(&pool, message).await? {
                return Err(format!("no parked message {message}").into());
            }
            writeln!(out, "{message} is delivered again")?;
            Ok(())
        }
        other => Err(format!("no subcommand {other}").into()),
    }
}
