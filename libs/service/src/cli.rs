//! The command line of a service.

use std::{ffi::OsString, path::PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::{Service, config, outbox};

#[derive(Debug)]
pub(crate) enum Action {
    Serve,
    Migrate,
    CheckConfig,
    /// A subcommand of the service's own.
    Command(String, Box<ArgMatches>),
}

/// Parses the arguments, the program's name first.
pub(crate) fn parse<S: Service>(arguments: Vec<OsString>) -> Result<(Action, Option<PathBuf>), clap::Error> {
    let mut command = command::<S>();
    let mut matches = command.try_get_matches_from_mut(arguments)?;
    let file = matches.remove_one::<PathBuf>("config");
    if matches.get_flag("check-config") {
        return Ok((Action::CheckConfig, file));
    }
    let action = match matches.remove_subcommand() {
        Some((name, arguments)) => match name.as_str() {
            "serve" => Action::Serve,
            "migrate" => Action::Migrate,
            "check-config" => Action::CheckConfig,
            _ => Action::Command(name, Box::new(arguments)),
        },
        None => {
            return Err(command.error(
                clap::error::ErrorKind::MissingSubcommand,
                format!("say what to do: `{0} serve`, `{0} migrate` or `{0} check-config`", S::NAME),
            ));
        }
    };
    Ok((action, file))
}

fn command<S: Service>() -> Command {
    let prefix = config::prefix(S::NAME);
    let mut command = Command::new(S::NAME)
        .version(env!("CARGO_PKG_VERSION"))
        .arg_required_else_help(true)
        .after_help(format!(
            "Every setting can be given as a variable: section.key becomes {prefix}SECTION__KEY."
        ))
        .arg(
            Arg::new("config")
                .long("config")
                .short('c')
                .global(true)
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("Configuration file (TOML)"),
        )
        .arg(
            Arg::new("check-config")
                .long("check-config")
                .global(true)
                .action(ArgAction::SetTrue)
                .help("Read the configuration, report every mistake and exit"),
        )
        .subcommand(Command::new("serve").about("Run the service"))
        .subcommand(
            Command::new("check-config").about("Read the configuration, report every mistake and exit"),
        );
    if S::migrator().is_some() {
        command = command.subcommand(Command::new("migrate").about("Bring the database up to date and exit"));
    }
    if S::HAS_OUTBOX {
        command = command.subcommands(outbox::commands());
    }
    command.subcommands(S::commands())
}
