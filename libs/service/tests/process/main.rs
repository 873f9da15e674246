//! A service as operators meet it: a process with arguments, signals, exit codes and one message when it cannot start.

#![allow(clippy::unwrap_used, reason = "in tests, helpers included, an error is a failed test")]

mod greeter;

use std::time::Duration;

use nix::sys::signal::Signal;
use testkit::{FaultProxy, postgres, wait_for};

use crate::greeter::{Greeter, config};

const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn it_migrates_serves_reloads_and_stops_cleanly() {
    let database = postgres().await;
    let greeter = Greeter::new(&config(database.url(), "hello"));
    let refused = greeter.run(&["serve"]).await;
    assert_eq!(refused.code, 1);
    assert_eq!(
        refused.last_line(),
        "greeter: the database lacks 1 migration(s), the first is 0001_greeting.sql: run `greeter migrate`"
    );
    let migrated = greeter.run(&["migrate"]).await;
    assert_eq!(
        (migrated.code, migrated.stdout.as_str()),
        (0, "applied 0001_greeting.sql\n"),
        "{}",
        migrated.stderr
    );
    assert_eq!(greeter.run(&["migrate"]).await.stdout, "nothing to apply\n");

    let curtain = greeter.beside("curtain", "red");
    let staged = |greeting: &str| {
        format!("{}\n[stage]\ncurtain_file = '{}'\n", config(database.url(), greeting), curtain.display())
    };
    greeter.write(&staged("hello"));
    let mut process = greeter.spawn();
    let address = process.address().await;
    wait_for("ready", SOON, || process.ready(&address)).await;
    let metrics = process.metrics(&address).await;
    assert!(metrics.contains("greeter_starts_total 1"), "counted before it listens, and lost: {metrics}");

    greeter.write(&staged("good day"));
    process.signal(Signal::SIGHUP);
    process.logged("greeting changed").await;
    assert!(process.log().contains(r#""greeting":"good day""#), "{}", process.log());
    assert!(!process.log().contains("after a restart"), "{}", process.log());
    // A secret that is rotated in its file is a change too.
    greeter.beside("curtain", "blue");
    process.signal(Signal::SIGHUP);
    process.logged(r#""section":"stage""#).await;
    greeter.write("[server]\nlisten = 7\n");
    process.signal(Signal::SIGHUP);
    process.logged("configuration refused, the old one stays").await;
    assert!(process.ready(&address).await, "a bad file stopped the service");

    process.signal(Signal::SIGTERM);
    assert_eq!(process.exit().await, 0, "{}", process.log());
}

#[tokio::test]
async fn a_database_that_goes_away_means_not_ready_and_it_recovers_by_itself() {
    let database = postgres().await;
    let proxy = FaultProxy::tcp(database.address()).await;
    let url = database.url_at(&proxy.address());
    let greeter = Greeter::new(&config(&url, "hello"));
    assert_eq!(greeter.run(&["migrate"]).await.code, 0);
    let mut process = greeter.spawn();
    let address = process.address().await;
    wait_for("ready", SOON, || process.ready(&address)).await;
    proxy.refuse().await;
    proxy.cut().await;
    wait_for("not ready", SOON, || async { !process.ready(&address).await }).await;
    proxy.pass().await;
    wait_for("ready again", SOON, || process.ready(&address)).await;
    process.signal(Signal::SIGINT);
    assert_eq!(process.exit().await, 0, "{}", process.log());
}

#[tokio::test]
async fn a_failing_task_ends_the_process_with_its_reason() {
    assert_eq!(last_words("die").await, "told to die");
}

#[tokio::test]
async fn a_task_that_ends_early_ends_the_process_too() {
    assert_eq!(last_words("leave").await, "it ended although nothing had asked it to");
}

#[tokio::test]
async fn a_failing_task_of_a_subcommand_is_the_subcommands_failure() {
    let database = postgres().await;
    let greeter = Greeter::new(&config(database.url(), "hello"));
    assert_eq!(greeter.run(&["migrate"]).await.code, 0);
    let ended = greeter.run(&["wave"]).await;
    let told = "greeter: the task `hand` failed: it is tired";
    assert_eq!((ended.code, ended.last_line().as_str()), (1, told));
}

#[tokio::test]
async fn a_command_shows_what_it_counts_and_does_not_wait_for_its_address() {
    let database = postgres().await;
    let greeter = Greeter::new(&config(database.url(), "hello"));
    assert_eq!(greeter.run(&["migrate"]).await.code, 0);
    let predecessor = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = predecessor.local_addr().unwrap().to_string();
    let mut process = greeter.spawn_to(&["bow", "--listen", &address]);
    process.logged("another process listens here").await;
    drop(predecessor);
    wait_for("ready", SOON, || process.ready(&address)).await;
    let metrics = process.metrics(&address).await;
    assert!(metrics.contains("greeter_bows_total 1"), "{metrics}");
    process.signal(Signal::SIGTERM);
    assert_eq!(process.exit().await, 0, "{}", process.log());
}

/// Why a service says its task failed after a reload of this greeting.
async fn last_words(greeting: &str) -> String {
    let database = postgres().await;
    let greeter = Greeter::new(&config(database.url(), "hello"));
    assert_eq!(greeter.run(&["migrate"]).await.code, 0);
    let mut process = greeter.spawn();
    let address = process.address().await;
    wait_for("ready", SOON, || process.ready(&address)).await;
    greeter.write(&config(database.url(), greeting));
    process.signal(Signal::SIGHUP);
    assert_eq!(process.exit().await, 1);
    let log = process.log();
    let (_, reason) = log.rsplit_once("greeter: the task `watch the greeting` failed: ").expect(&log);
    reason.trim_end().to_owned()
}

#[tokio::test]
async fn what_cannot_start_says_why_in_one_line() {
    let database = postgres().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap();
    let text = config(database.url(), "hello").replace("127.0.0.1:0", &listen.to_string());
    let greeter = Greeter::new(&text);
    assert_eq!(greeter.run(&["migrate"]).await.code, 0);
    let refused = greeter.run(&["serve"]).await;
    assert_eq!(refused.code, 1);
    assert_eq!(
        refused.last_line(),
        format!("greeter: cannot listen on {listen}: address already in use (server.listen)")
    );

    greeter.write(&config(database.url(), "fail"));
    let failed = greeter.run(&["serve"]).await;
    assert_eq!((failed.code, failed.last_line()), (1, "greeter: the greeting is gone".to_owned()));

    greeter.write(&config("postgres://someone:hunter2@127.0.0.1:1/ledger", "hello"));
    for action in ["serve", "migrate"] {
        let refused = greeter.run(&[action]).await;
        assert_eq!(refused.code, 1);
        let line = refused.last_line();
        assert!(line.starts_with("greeter: cannot connect to PostgreSQL at 127.0.0.1:1"), "{line}");
        assert!(line.contains("ledger") && !refused.stderr.contains("hunter2"), "{}", refused.stderr);
    }
}

#[tokio::test]
async fn a_wrong_configuration_is_exit_code_2_with_every_mistake() {
    let greeter = Greeter::new("[server]\nlisten = 7\nlimit = 1\n");
    for arguments in
        [&["serve"][..], &["check-config"], &["--check-config"], &["serve", "--check-config"], &["migrate"]]
    {
        let refused = greeter.run(arguments).await;
        assert_eq!(refused.code, 2, "{arguments:?}");
        for key in ["database.url", "greeter.greeting", "server.listen", "server.limit"] {
            assert!(refused.stderr.contains(key), "{key} is not in {}", refused.stderr);
        }
    }
    let missing = Greeter::new("").run_plain(&["serve", "--config", "no-such.toml"]).await;
    assert_eq!(missing.code, 2);
    assert!(missing.stderr.contains("no-such.toml"), "{}", missing.stderr);
}

#[tokio::test]
async fn a_good_configuration_is_said_to_be_one_without_touching_anything() {
    let greeter = Greeter::new(&config("postgres://nobody@127.0.0.1:1/nothing", "hello"));
    for arguments in [&["check-config"][..], &["--check-config"]] {
        let checked = greeter.run(arguments).await;
        assert_eq!((checked.code, checked.stdout.as_str()), (0, "configuration ok\n"), "{}", checked.stderr);
    }
    assert!(greeter.run_plain(&["--version"]).await.stdout.starts_with("greeter "));
    assert_eq!(greeter.run_plain(&["nonsense"]).await.code, 2);
}
