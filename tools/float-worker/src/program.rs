//! The program: command line, configuration, signals, exit codes.
//!
//! Exit codes: 0 after a clean stop, 1 when the start or the work failed, 2 for a wrong configuration or command line.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;
use service::clap::{Arg, ArgAction, Command, value_parser};
use service::config::Reader;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use worker::Ended;
use worker::runtime::BoxError;

use crate::client::Execution;
use crate::config::{Config, NAME};
use crate::source::Sources;
use crate::{Parts, run, run_once};

/// The main function.
#[must_use]
pub fn main() -> ExitCode {
    let matches = match command().try_get_matches() {
        Ok(matches) => matches,
        Err(refusal) => {
            // Help and version come this way too; clap knows which of them is an error.
            let _ = refusal.print();
            return ExitCode::from(u8::try_from(refusal.exit_code()).unwrap_or(2));
        }
    };
    let file = matches.get_one::<PathBuf>("config");
    // Variables that are not Unicode cannot be ours.
    let variables: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
        .collect();
    let read = Reader::open(NAME, file.map(PathBuf::as_path), variables.clone());
    let config = match read.and_then(|reader| Config::load(reader, &variables)) {
        Ok(config) => config,
        Err(errors) => return complain(&errors, 2),
    };
    if matches.get_flag("check-config") {
        return say("configuration ok");
    }
    match work(config, matches.get_flag("once")) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(report)) => say(&report.to_string()),
        Err(error) => complain(&rpc::error::chain(&*error), 1),
    }
}

fn command() -> Command {
    Command::new(NAME)
        .version(env!("CARGO_PKG_VERSION"))
        .about("Keeps the float of hot wallets between a floor and a ceiling, by proposals")
        .after_help("Every setting can be given as a variable: section.key becomes BURSAR_FLOAT_WORKER__SECTION__KEY.")
        .arg(
            Arg::new("config")
                .long("config")
                .short('c')
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("Configuration file (TOML)"),
        )
        .arg(
            Arg::new("check-config")
                .long("check-config")
                .action(ArgAction::SetTrue)
                .help("Read the configuration, report every mistake and exit"),
        )
        .arg(
            Arg::new("once")
                .long("once")
                .action(ArgAction::SetTrue)
                .help("Run one cycle, print its report as JSON and exit"),
        )
}

fn work(config: Config, once: bool) -> Result<Option<Value>, BoxError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        let telemetry = telemetry::init(&config.telemetry)?;
        let outcome = serve(config, once).await;
        // The flush blocks, and needs the runtime to get out.
        let _ = tokio::task::spawn_blocking(move || telemetry.shutdown()).await;
        outcome
    });
    runtime.shutdown_timeout(Duration::from_millis(200));
    outcome
}

async fn serve(config: Config, once: bool) -> Result<Option<Value>, BoxError> {
    let stop = CancellationToken::new();
    stop_on_signal(stop.clone())?;
    let parts = Parts {
        sources: Sources::new(config.limits, config.candles, config.pools)?,
        strategy: config.strategy,
        client: Execution::new(rpc::connect_lazy(&config.execution)?),
        max_balance_age: config.max_balance_age,
        dry_run: config.dry_run,
    };
    if once {
        return run_once(parts, config.settings, stop).await.map(Some).map_err(Into::into);
    }
    match run(parts, config.settings, stop).await? {
        Ended::Stopped => {}
        Ended::Restart => tracing::info!("told to restart; ending so that the orchestrator starts it again"),
    }
    Ok(None)
}

/// The first SIGTERM or SIGINT lets the cycle under way finish, the second ends the process at once. SIGHUP ends nothing.
fn stop_on_signal(stop: CancellationToken) -> std::io::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hangup.recv() => {
                    tracing::warn!("hang-up ignored: a new configuration takes effect after a restart");
                    continue;
                }
            }
            if stop.is_cancelled() {
                std::process::exit(1);
            }
            tracing::info!("signal received, stopping");
            stop.cancel();
        }
    });
    Ok(())
}

fn say(text: &str) -> ExitCode {
    match writeln!(std::io::stdout().lock(), "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn complain(what: &dyn std::fmt::Display, code: u8) -> ExitCode {
    // With standard error gone there is nobody left to tell.
    let _ = writeln!(std::io::stderr().lock(), "{NAME}: {what}");
    ExitCode::from(code)
}
