//! From the command line to a running service and back to an exit code.
//!
//! Owns the order of a start: configuration, telemetry, signals, database, migrations, service. Nothing listens before all of
//! that stands, so a service that answers is one that started whole.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::Write as _,
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, Mutex},
    time::Duration,
};

use db::DatabaseConfig;
use rpc::{Auth, AuthConfig, ServerConfig};
use telemetry::TelemetryConfig;
use tokio::{signal::unix::SignalKind, sync::watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Service,
    cli::{self, Action},
    config::{self, ConfigErrors, Reader},
    context::Context,
    error::{BoxError, StartError},
    outbox,
    reload::{self, Reload},
    signal,
};

/// The sections that all services share.
#[derive(Debug, Clone, PartialEq)]
pub struct Common {
    /// `[server]`
    pub server: ServerConfig,
    /// `[telemetry]`
    pub telemetry: TelemetryConfig,
    /// `[auth]`
    pub auth: AuthConfig,
    /// `[database]`, for services with migrations.
    pub database: Option<DatabaseConfig>,
}

/// A whole configuration.
#[derive(Debug)]
pub struct Loaded<C> {
    /// What all services share.
    pub common: Common,
    /// What is this service's own.
    pub own: C,
    /// What each section said, as a hash.
    pub(crate) sections: BTreeMap<String, u64>,
}

/// Reads a service's whole configuration.
///
/// # Errors
/// Every mistake in it.
pub fn load<S: Service>(reader: Reader) -> Result<Loaded<S::Config>, ConfigErrors> {
    let server = config::server(&reader);
    let telemetry = config::telemetry(&reader, S::NAME);
    let auth = config::auth(&reader);
    let has_database = S::migrator().is_some();
    let database = has_database.then(|| config::database(&reader, S::NAME)).flatten();
    let own = S::read(&reader);
    let sections = reader.prints();
    let whole = match (server, own, has_database == database.is_some()) {
        (Some(server), Some(own), true) => {
            Some(Loaded { common: Common { server, telemetry, auth, database }, own, sections })
        }
        _ => None,
    };
    reader.finish(whole)
}

/// The main function of a service.
#[must_use]
pub fn main<S: Service>() -> ExitCode {
    let (action, file) = match cli::parse::<S>(std::env::args_os().collect::<Vec<OsString>>()) {
        Ok(parsed) => parsed,
        Err(refusal) => {
            // Help and version come this way too; clap knows which of them is an error.
            let _ = refusal.print();
            return ExitCode::from(u8::try_from(refusal.exit_code()).unwrap_or(2));
        }
    };
    match execute::<S>(&action, file) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{}: {}", S::NAME, error.message());
            ExitCode::from(error.exit_code())
        }
    }
}

/// Reads the configuration from where the command line said.
pub(crate) fn read<S: Service>(file: Option<&PathBuf>) -> Result<Loaded<S::Config>, ConfigErrors> {
    // Variables that are not Unicode cannot be ours.
    let variables =
        std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    let variables = S::variables(variables.collect());
    load::<S>(Reader::open(S::NAME, file.map(PathBuf::as_path), variables)?)
}

fn execute<S: Service>(action: &Action, file: Option<PathBuf>) -> Result<(), StartError> {
    let loaded = read::<S>(file.as_ref())?;
    if matches!(action, Action::CheckConfig) {
        return say("configuration ok");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|source| StartError::System { what: "start the runtime", source })?;
    let outcome = runtime.block_on(async {
        let telemetry = telemetry::init(&loaded.common.telemetry)?;
        signal::log_panics();
        let telemetry = Arc::new(telemetry);
        let outcome = act::<S>(action, file, loaded, Arc::clone(&telemetry)).await;
        // The last batch needs the runtime to get out, and the flush blocks: so before the end, and off the workers.
        let _ = tokio::task::spawn_blocking(move || telemetry.shutdown()).await;
        outcome
    });
    // What was left behind had its time to end; waiting for it here could hang the exit.
    runtime.shutdown_timeout(Duration::from_millis(200));
    outcome
}

async fn act<S: Service>(
    action: &Action,
    file: Option<PathBuf>,
    loaded: Loaded<S::Config>,
    telemetry: Arc<telemetry::Telemetry>,
) -> Result<(), StartError> {
    let shutdown = CancellationToken::new();
    signal::stop_on_signal(shutdown.clone())?;
    // From here on SIGHUP ends nobody: one that comes during the start is a reload after it.
    let hangup = signal::listen(SignalKind::hangup())?;
    if matches!(action, Action::Migrate) {
        return migrate::<S>(&loaded.common).await;
    }
    let (sender, config) = watch::channel(Arc::new(loaded.own));
    let common = Arc::new(loaded.common);
    let started = tokio::select! {
        started = prepare::<S>(Arc::clone(&common), config, shutdown.clone()) => started?,
        () = shutdown.cancelled() => return Ok(()),
    };
    match action {
        Action::Command(name, arguments) => {
            signal::say_on_hangup(hangup);
            let done = if S::HAS_OUTBOX && outbox::is_one(name) {
                outbox::run(name, arguments, started.pool()).await
            } else {
                S::command(name, arguments, started.clone()).await
            };
            finish(&started, done).await
        }
        Action::Serve | Action::CheckConfig | Action::Migrate => {
            let reload = Reload::new::<S>(&started, sender, telemetry, loaded.sections);
            reload::on_hangup::<S>(file, &started, reload, hangup);
            tracing::info!(version = env!("CARGO_PKG_VERSION"), "starting");
            run::<S>(started).await
        }
    }
}

/// Everything that must stand before the service runs: callers, database, schema.
pub(crate) async fn prepare<S: Service>(
    common: Arc<Common>,
    config: watch::Receiver<Arc<S::Config>>,
    shutdown: CancellationToken,
) -> Result<Context<S::Config>, StartError> {
    let auth = Auth::new(&common.auth).map_err(|error| StartError::Service(error.into()))?;
    let (pool, probe) = match (S::migrator(), &common.database) {
        (Some(migrator), Some(database)) => {
            let pool = db::connect(database).await?;
            let pending = db::migrate::pending(&pool, migrator).await?;
            if let Some(first) = pending.first() {
                let first = first.file.clone();
                return Err(StartError::Pending { service: S::NAME, count: pending.len(), first });
            }
            let probe = DatabaseConfig { max_connections: 1, ..database.clone() };
            (Some(pool), Some(db::connect_lazy(&probe)?))
        }
        _ => (None, None),
    };
    Ok(Context {
        name: S::NAME,
        common,
        config,
        auth,
        pool,
        probe,
        shutdown,
        tasks: TaskTracker::new(),
        failure: Arc::new(Mutex::new(None)),
        address: Arc::new(watch::Sender::new(None)),
    })
}

/// Runs the service and, once it ends, its tasks to their end.
pub(crate) async fn run<S: Service>(ctx: Context<S::Config>) -> Result<(), StartError> {
    // Before the service begins: its loops record from their first round on, and what is recorded before is lost.
    telemetry::metrics::install();
    if let Some(pool) = ctx.pool.clone() {
        ctx.spawn("statistics", |stop| async move {
            db::keep_statistics(&pool, stop).await;
            Ok::<_, BoxError>(())
        });
    }
    let served = S::serve(ctx.clone()).await;
    finish(&ctx, served).await?;
    tracing::info!("stopped");
    Ok(())
}

/// Ends what was started beside the service or command, and tells what went wrong first.
async fn finish<C: Send + Sync + 'static>(
    ctx: &Context<C>,
    served: Result<(), BoxError>,
) -> Result<(), StartError> {
    // Whatever ended the service ends its tasks: a half-running process is worse than none.
    ctx.shutdown.cancel();
    ctx.tasks.close();
    let limit = Duration::from_millis(ctx.common.server.limits.drain_ms);
    if tokio::time::timeout(limit, ctx.tasks.wait()).await.is_err() {
        tracing::warn!(tasks = ctx.tasks.len(), "drain limit reached, leaving tasks behind");
    }
    for pool in ctx.pool.iter().chain(&ctx.probe) {
        // Bounded, because a connection in use by an abandoned task never comes back.
        let _ = tokio::time::timeout(Duration::from_secs(1), pool.close()).await;
    }
    // A failed task stops the service, which then ends cleanly: the task's failure is the truth.
    if let Some(failure) = ctx.take_failure() {
        return Err(failure);
    }
    served.map_err(StartError::Service)
}

async fn migrate<S: Service>(common: &Common) -> Result<(), StartError> {
    let (Some(migrator), Some(database)) = (S::migrator(), &common.database) else {
        return Err(StartError::NoDatabase(S::NAME));
    };
    let pool = db::connect(database).await?;
    let done = db::migrate::run(&pool, migrator).await?;
    pool.close().await;
    for step in &done.applied {
        say(&format!("applied {}", step.file))?;
    }
    if done.applied.is_empty() { say("nothing to apply") } else { Ok(()) }
}

fn say(text: &str) -> Result<(), StartError> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").map_err(|source| StartError::System { what: "write to standard output", source })
}
