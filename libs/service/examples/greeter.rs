//! The smallest service with a database of its own. Tests run it as a process.

use std::process::ExitCode;

use service::{BoxError, Context, Service, config::Reader};

struct Greeter;

#[derive(Debug)]
struct Config {
    greeting: String,
}

static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("./tests/migrations");

impl Service for Greeter {
    const NAME: &'static str = "greeter";
    const LIVE: &'static [&'static str] = &["greeter"];
    type Config = Config;

    fn read(reader: &Reader) -> Option<Config> {
        let greeting = reader.section("greeter").req::<String>("greeting");
        // Read once, at the start.
        let _ = reader.section("stage").secret_opt("curtain");
        Some(Config { greeting: greeting? })
    }

    fn migrator() -> Option<&'static sqlx::migrate::Migrator> {
        Some(&MIGRATOR)
    }

    async fn serve(ctx: Context<Config>) -> Result<(), BoxError> {
        metrics::counter!("greeter_starts_total").increment(1);
        if ctx.config().greeting == "fail" {
            return Err("the greeting is gone".into());
        }
        let mut changes = ctx.config_changes();
        ctx.spawn("watch the greeting", async move |stop| {
            let watch = async {
                while changes.changed().await.is_ok() {
                    let greeting = changes.borrow().greeting.clone();
                    tracing::info!(greeting, "greeting changed");
                    match greeting.as_str() {
                        "die" => return Err("told to die"),
                        "leave" => return Ok(()),
                        _ => {}
                    }
                }
                Ok(())
            };
            stop.run_until_cancelled(watch).await.unwrap_or(Ok(()))
        });
        ctx.serve(ctx.server()).await
    }

    fn commands() -> Vec<service::clap::Command> {
        vec![
            service::clap::Command::new("wave").about("Wait beside a task that fails"),
            service::clap::Command::new("bow").about("Greet nobody").arg(service::listen_arg()),
        ]
    }

    async fn command(
        name: &str,
        arguments: &service::clap::ArgMatches,
        ctx: Context<Config>,
    ) -> Result<(), BoxError> {
        if name == "bow" {
            ctx.probes(arguments, |server| server);
            metrics::counter!("greeter_bows_total").increment(1);
        } else {
            ctx.spawn("hand", async |_| Err::<(), _>("it is tired"));
        }
        ctx.shutdown().cancelled().await;
        Ok(())
    }
}

fn main() -> ExitCode {
    service::main::<Greeter>()
}
