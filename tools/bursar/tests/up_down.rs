//! The launcher with the real services and servers: what it starts, what survives, and that nothing is left behind.
//!
//! The services' programs lie beside `bursar` (`cargo build --workspace --bins`, as `make test` does) or in `BURSAR_BIN_DIR`.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panic as the tests do")]

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use devstack::{Health, Identity};
use serde_json::Value;
use sqlx::{Connection, Executor, PgConnection};
use tempfile::TempDir;
use testkit::wait_for;

const SERVICES: [&str; 6] =
    ["intent", "execution", "confirmation", "signer-gateway", "indexer", "worker-control"];
const DEPENDENCIES: [&str; 5] = ["postgres", "mongodb", "redis", "bsc", "tron"];
const GONE: Duration = Duration::from_secs(60);
const READY: Duration = Duration::from_secs(120);

/// A data directory that the user postgres can enter; whatever still runs on it goes when the test does.
struct Stack {
    scratch: TempDir,
}

impl Stack {
    fn new() -> Stack {
        let scratch = testkit::scratch_dir();
        std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        Stack { scratch }
    }

    fn data(&self) -> PathBuf {
        self.scratch.path().join("data")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
        command.args(words).arg("--data").arg(self.data()).stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    fn must(&self, words: &[&str]) {
        let output = self.run(words);
        assert!(output.status.success(), "bursar {words:?}: {}", said(&output));
    }

    fn file(&self) -> Value {
        self.file_if_there().unwrap()
    }

    /// A launcher that starts anew removes the file of the one before.
    fn file_if_there(&self) -> Option<Value> {
        serde_json::from_str(&std::fs::read_to_string(self.data().join("stack.json")).ok()?).ok()
    }

    fn ready(&self) -> bool {
        self.data().join("stack.json").exists()
    }

    fn in_foreground(&self, words: &[&str]) -> Child {
        let mut command = self.command(&[&["up"], words].concat());
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Command lines of processes that name this directory or stand in it.
    fn processes(&self) -> Vec<String> {
        let marker = self.scratch.path().display().to_string();
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            if Identity::of(pid).is_none() {
                continue;
            }
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            let stands = std::fs::read_link(entry.path().join("cwd")).unwrap_or_default();
            if line.contains(&marker) || stands.starts_with(&marker) {
                found.push(line);
            }
        }
        found
    }

    async fn all_gone(&self) {
        wait_for("every process of the stack to be gone", GONE, || async { self.processes().is_empty() })
            .await;
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // A failed test must not leave a stack behind; a passed one has nothing left.
        self.run(&["down"]);
    }
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

fn pid(file: &Value, part: &str) -> u32 {
    u32::try_from(file["parts"][part]["pid"].as_u64().unwrap()).unwrap()
}

async fn all_serve(file: &Value) {
    for service in SERVICES {
        let url = text(&file["parts"][service]["url"]);
        assert_eq!(devstack::health(&url).await, Health::Serving, "{service}");
    }
}

fn kill(pid: u32) {
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_detached_stack_serves_keeps_its_data_and_leaves_nothing() {
    let stack = Stack::new();
    stack.must(&["up", "--detach", "--no-seed"]);
    let file = stack.file();
    is_the_contract(&stack, &file);
    all_serve(&file).await;
    stack.must(&["status"]);

    let again = stack.run(&["up", "--no-seed"]);
    assert!(!again.status.success() && said(&again).contains("already running"), "{}", said(&again));
    stack.must(&["up", "--detach", "--no-seed"]);
    assert_eq!(stack.file(), file, "a second start changes nothing");

    let database = text(&file["databases"]["intent"]);
    let mut connection = PgConnection::connect(&database).await.unwrap();
    connection.execute("CREATE TABLE kept AS SELECT 7 AS n").await.unwrap();
    drop(connection);
    is_apart(&file).await;

    stack.must(&["down"]);
    assert_eq!(stack.processes(), Vec::<String>::new());
    assert!(!stack.ready(), "a stack that does not run has no stack.json");
    stack.must(&["down"]);
    assert!(!stack.run(&["status"]).status.success());

    // Two of its ports are taken meanwhile; the others are used again.
    let taken = ["intent", "redis"].map(|part| port(&file, part));
    let holders = taken.map(|port| TcpListener::bind(("127.0.0.1", port)).unwrap());
    stack.must(&["up", "--detach", "--no-seed"]);
    let second = stack.file();
    all_serve(&second).await;
    assert_eq!(second["api_keys"], file["api_keys"]);
    assert_eq!(second["databases"]["execution"], file["databases"]["execution"]);
    assert_ne!(port(&second, "intent"), taken[0]);
    assert_ne!(port(&second, "redis"), taken[1]);
    assert_eq!(port(&second, "mongodb"), port(&file, "mongodb"));
    let mut connection = PgConnection::connect(&database).await.unwrap();
    let n: i32 = sqlx::query_scalar("SELECT n FROM kept").fetch_one(&mut connection).await.unwrap();
    assert_eq!(n, 7);
    drop((connection, holders));
    stack.must(&["down", "--purge"]);
    assert_eq!(stack.processes(), Vec::<String>::new());
    assert!(!stack.data().exists());
}

/// The shape that other people's scripts rely on.
fn is_the_contract(stack: &Stack, file: &Value) {
    let mode = std::fs::metadata(stack.data().join("stack.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    for service in SERVICES {
        let part = &file["parts"][service];
        assert_eq!(part["kind"], "service");
        assert!(text(&part["url"]).starts_with("http://127.0.0.1:"));
        assert!(Path::new(&text(&part["log"])).is_file());
        assert!(Path::new(&text(&part["command"][0])).is_file());
        assert_eq!(part["command"][1], "serve");
        assert!(part["env"].is_object());
    }
    // 3001 unless somebody on this machine has it, such as the stack of another test.
    let json = text(&file["parts"]["worker-control"]["http"]);
    let address = json.strip_prefix("http://").unwrap();
    assert!(address.starts_with("127.0.0.1:") && TcpStream::connect(address).is_ok(), "{json}");
    for part in DEPENDENCIES {
        assert_eq!(
            file["parts"][part]["kind"],
            if ["bsc", "tron"].contains(&part) { "chain" } else { "dependency" }
        );
    }
    for name in ["intent", "execution", "confirmation", "signer", "worker_control"] {
        assert!(text(&file["databases"][name]).starts_with("postgres://"), "{name}");
    }
    assert!(text(&file["databases"]["indexer"]).starts_with("mongodb://"));
    for name in ["requester", "approver-1", "approver-2", "operator", "auditor"] {
        assert!(text(&file["api_keys"][name]).starts_with("bk_"), "{name}");
    }
}

/// No service can enter the database of another.
async fn is_apart(file: &Value) {
    let intent = text(&file["databases"]["intent"]);
    let trespass = format!("{}/signer", intent.rsplit_once('/').unwrap().0);
    let error = PgConnection::connect(&trespass).await.unwrap_err().to_string();
    assert!(error.contains("permission denied"), "{error}");
}

fn port(file: &Value, part: &str) -> u16 {
    let url = text(&file["parts"][part]["url"]);
    let address = url.rsplit_once("127.0.0.1:").unwrap().1;
    address.split('/').next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_service_is_started_again_and_a_stray_copy_is_found() {
    let stack = Stack::new();
    stack.must(&["up", "--detach", "--no-seed"]);
    let file = stack.file();
    kill(pid(&file, "indexer"));
    let status = stack.run(&["status", "--json"]);
    assert!(!status.status.success());
    let printed: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(
        (&printed["parts"]["indexer"]["health"], &printed["parts"]["intent"]["health"]),
        (&Value::from("down"), &Value::from("serving"))
    );
    stack.must(&["up", "--restart", "indexer"]);
    assert_ne!(pid(&stack.file(), "indexer"), pid(&file, "indexer"));
    all_serve(&stack.file()).await;

    // A script kills a service and starts it again itself, from the recorded command.
    let part = &stack.file()["parts"]["indexer"];
    kill(pid(&stack.file(), "indexer"));
    let words: Vec<String> = part["command"].as_array().unwrap().iter().map(text).collect();
    let mut stray = Command::new(&words[0])
        .args(&words[1..])
        .current_dir(stack.data())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the stray copy to serve", READY, || async {
        devstack::health(&text(&part["url"])).await == Health::Serving
    })
    .await;
    stack.must(&["status"]);
    stack.must(&["down"]);
    wait_for("the stray copy to end", GONE, || {
        let ended = stray.try_wait().unwrap().is_some();
        async move { ended }
    })
    .await;
    stack.all_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreground_stack_dies_with_its_launcher_and_starts_again_from_the_wreck() {
    let stack = Stack::new();
    let mut launcher = stack.in_foreground(&["--demo"]);
    wait_for("the stack to be ready", READY, || async { stack.ready() }).await;
    let before = stack.file();
    // While the first payments are under way.
    stack.must(&["up", "--restart", "indexer"]);
    assert_ne!(pid(&stack.file(), "indexer"), pid(&before, "indexer"));
    launcher.kill().unwrap();
    launcher.wait().unwrap();
    stack.all_gone().await;

    let mut launcher = stack.in_foreground(&["--no-seed"]);
    wait_for("the stack to be ready again", READY, || async {
        stack.file_if_there().is_some_and(|file| pid(&file, "intent") != pid(&before, "intent"))
    })
    .await;
    all_serve(&stack.file()).await;
    stack.must(&["down"]);
    assert!(launcher.wait().unwrap().success(), "a launcher that was asked to stop ends well");
    stack.all_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_while_starting_leaves_nothing() {
    let stack = Stack::new();
    let mut launcher = stack.in_foreground(&["--no-seed"]);
    let log = stack.data().join("logs/mongodb.log");
    wait_for("the first parts to be started", READY, || async { log.exists() }).await;
    assert!(Command::new("kill").args(["-INT", &launcher.id().to_string()]).status().unwrap().success());
    launcher.wait().unwrap();
    stack.all_gone().await;
    assert!(!stack.ready());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_does_not_start_says_why_and_takes_the_rest_down() {
    let stack = Stack::new();
    let programs = stack.scratch.path().join("bin");
    std::fs::create_dir(&programs).unwrap();
    for program in SERVICES.into_iter().chain(["tron-devnet"]) {
        symlink(beside(program), programs.join(program)).unwrap();
    }
    let broken = programs.join("indexer");
    std::fs::remove_file(&broken).unwrap();
    std::fs::write(&broken, "#!/bin/sh\necho 'mongo.url: nobody answers there' >&2\nexit 1\n").unwrap();
    std::fs::set_permissions(&broken, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output =
        stack.command(&["up", "--detach", "--no-seed"]).env("BURSAR_BIN_DIR", &programs).output().unwrap();
    let said = said(&output);
    assert!(!output.status.success(), "{said}");
    for part in ["indexer did not start", "exit status 1", "mongo.url: nobody answers there"] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    stack.all_gone().await;
    assert!(!stack.ready());
}

fn beside(service: &str) -> PathBuf {
    let own = Path::new(env!("CARGO_BIN_EXE_bursar")).parent().unwrap().to_owned();
    std::env::var_os("BURSAR_BIN_DIR").map_or(own, PathBuf::from).join(service)
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_programs_are_all_named_with_the_way_to_get_them() {
    let stack = Stack::new();
    let empty = testkit::scratch_dir();
    let mut command = stack.command(&["up", "--detach", "--no-seed"]);
    let output = command.env("PATH", empty.path()).env("BURSAR_TOOLS", empty.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    for program in ["mongod", "redis-server", "anvil"] {
        assert!(said.contains(&format!("{program} was not found")), "{program} is not in {said}");
    }
    assert!(said.contains("scripts/install-tools run"), "{said}");

    let output = stack.command(&["up", "--detach"]).env("BURSAR_BIN_DIR", empty.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = self::said(&output);
    assert!(SERVICES.iter().all(|service| said.contains(service)), "{said}");
    assert!(said.contains("cargo build --workspace --bins"), "{said}");
    assert_eq!(stack.processes(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_somebody_else_is_left_alone() {
    let stack = Stack::new();
    std::fs::create_dir(stack.data()).unwrap();
    std::fs::write(stack.data().join("precious"), "").unwrap();
    let refused = stack.run(&["up", "--detach", "--no-seed"]);
    assert!(!refused.status.success() && said(&refused).contains("holds other files"), "{}", said(&refused));
    stack.must(&["down", "--purge"]);
    let left: Vec<_> = std::fs::read_dir(stack.data()).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, ["precious"]);
}
