//! The subcommands of every service with an outbox: list what was refused, and requeue it.
//!
//! Owns how operators see parked messages. It never delivers; the relay of the running service does.

use std::io::Write as _;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use db::outbox;
use sqlx::{PgPool, types::Uuid};

use crate::error::BoxError;

const LIST: &str = "outbox-list";
const REQUEUE: &str = "outbox-requeue";
const ALL: &str = "all";
/// More than anybody reads at once.
const MOST: u32 = 1000;

pub(crate) fn commands() -> [Command; 2] {
    let message = Arg::new("message")
        .required_unless_present(ALL)
        .value_parser(value_parser!(Uuid))
        .help("Id of the parked message, as the list shows it");
    let all = Arg::new(ALL)
        .long(ALL)
        .action(ArgAction::SetTrue)
        .conflicts_with("message")
        .help("Every parked message, as after mending what they were refused for");
    [
        Command::new(LIST).about("List messages that their receivers refused for good, and why"),
        Command::new(REQUEUE)
            .about("Deliver a parked message again, and those behind it")
            .arg(message)
            .arg(all),
    ]
}

pub(crate) fn is_one(name: &str) -> bool {
    [LIST, REQUEUE].contains(&name)
}

pub(crate) async fn run(name: &str, arguments: &ArgMatches, pool: PgPool) -> Result<(), BoxError> {
    let mut out = std::io::stdout();
    if name == LIST {
        for parked in outbox::parked(&pool, MOST).await? {
            writeln!(
                out,
                "{} {} aggregate={} parked_at={} tries={} waiting_behind={} reason={:?}",
                parked.message_id,
                parked.topic,
                parked.aggregate,
                parked.parked_at.to_rfc3339(),
                parked.tries,
                parked.waiting_behind,
                parked.reason,
            )?;
        }
        return Ok(());
    }
    if arguments.get_flag(ALL) {
        writeln!(out, "{} lanes are delivered again", outbox::requeue_all_parked(&pool).await?)?;
        return Ok(());
    }
    let message = *arguments.get_one::<Uuid>("message").ok_or("name a message")?;
    if !outbox::requeue_parked(&pool, message).await? {
        return Err(format!("no parked message {message}").into());
    }
    writeln!(out, "{message} is delivered again")?;
    Ok(())
}
