//! Withdrawals, jobs, wallets, the demo, and payments taken over from another system.

use serde_json::{Value, json};
use testkit::{wait_for, wait_for_value};

use crate::stack::{PATIENCE, Stack, field, lines, said};

const SOMEBODY: &str = "0x1111111111111111111111111111111111111111";
const USER: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

pub(crate) fn create_words<'a>(amount: &'a str, asset: &'a str) -> Vec<&'a str> {
    let amount = if amount.starts_with('-') { vec!["--amount=-1"] } else { vec!["--amount", amount] };
    [vec!["withdraw", "create", "--chain", "bsc", "--asset", asset, "--to", SOMEBODY], amount].concat()
}

fn id(withdrawal: &Value) -> String {
    withdrawal["id"].as_str().unwrap().to_owned()
}

/// Ask, look, and end it in each way a person can.
pub(crate) fn requests(stack: &Stack) {
    let printed = stack.text(&create_words("12.50", "USDT"));
    assert_eq!(
        (field(&printed, "status"), field(&printed, "amount")),
        ("pending".into(), "12.5 USDT on bsc".into())
    );
    let first = field(&printed, "id");
    let created = stack.json(&create_words("12.50", "USDT"));
    for (key, value) in [
        ("chain", "bsc"),
        ("asset", "USDT"),
        ("amount", "12.5"),
        ("destination", SOMEBODY),
        ("status", "WITHDRAWAL_STATUS_PENDING"),
        ("final_tx_hash", ""),
        ("final_block", "0"),
    ] {
        assert_eq!(created[key], value, "{key}");
    }
    assert_eq!(created["required_approvals"], 2);
    let second = id(&created);
    assert_eq!(stack.json(&["withdraw", "get", &second]), created);
    assert_eq!(field(&stack.text(&["withdraw", "get", &first]), "approvals"), "0 of 2");

    let rejected = stack.json(&["withdraw", "reject", &second, "--reason", "not ours"]);
    assert_eq!(
        (&rejected["status"], &rejected["failure_reason"]),
        (&json!("WITHDRAWAL_STATUS_REJECTED"), &json!("not ours"))
    );
    let cancelled = stack.text(&["withdraw", "cancel", &first, "--reason", "changed my mind"]);
    assert_eq!(field(&cancelled, "status"), "cancelled");
    assert!(stack.text(&["withdraw", "list", "--status", "cancelled"]).contains(&first));
    let listed = stack.json(&["withdraw", "list", "--status", "rejected", "--chain", "bsc"]);
    assert_eq!(listed.as_array().unwrap().iter().map(id).collect::<Vec<_>>(), [second.as_str()]);
    let third = id(&stack.json(&create_words("1", "USDT")));
    assert_eq!(field(&stack.text(&["withdraw", "reject", &third, "--reason", "no"]), "status"), "rejected");
    let fourth = id(&stack.json(&create_words("1", "USDT")));
    assert_eq!(stack.json(&["withdraw", "cancel", &fourth])["status"], "WITHDRAWAL_STATUS_CANCELLED");
    assert!(stack.refused(&["withdraw", "cancel", &second]).contains("rejected"));

    let steps = stack.json_lines(&["withdraw", "watch", &second]);
    assert_eq!(steps.last().unwrap()["transition"]["to"], "WITHDRAWAL_STATUS_REJECTED");
    assert!(stack.text(&["withdraw", "watch", &second]).lines().last().unwrap().contains("rejected"));
}

/// A job that cannot be paid waits, is retried and is given up.
pub(crate) async fn jobs(stack: &Stack) {
    // More than all wallets hold.
    let withdrawal = id(&stack.json(&create_words("9000000", "USDT")));
    let approved = stack.json(&["withdraw", "approve", &withdrawal]);
    assert_eq!(approved["approvals"][0]["approver"], "approver-1");
    let printed = stack.text(&["withdraw", "approve", &withdrawal, "--as", "approver-2"]);
    assert_eq!(field(&printed, "approvals"), "2 of 2");
    let job = wait_for_value("the job to wait for money", PATIENCE, || async {
        let output = stack.command(&["job", "show", &withdrawal, "--json"]).output().unwrap();
        let job: Value = serde_json::from_slice(&output.stdout).ok()?;
        (job["blocked_reason"] != "").then_some(job)
    })
    .await;
    let own = id(&job);
    assert_eq!((&job["withdrawal_id"], &job["amount"]), (&json!(withdrawal), &json!("9000000")));
    assert!(job["attempts"].as_array().unwrap().is_empty());
    assert_eq!(field(&stack.text(&["job", "show", &own]), "withdrawal"), withdrawal);
    // A worker that is on it just now keeps it from being retried.
    let words = ["job", "retry", &own, "--json"];
    for (words, printed) in
        [(words.as_slice(), format!("\"id\": \"{own}\"")), (&words[..3], format!("job         {own}"))]
    {
        wait_for("a retry to be taken", PATIENCE, || async {
            let output = stack.command(words).output().unwrap();
            output.status.success() && said(&output).contains(&printed)
        })
        .await;
    }
    assert!(stack.text(&["job", "list", "--chain", "bsc"]).lines().any(|line| line.starts_with(&own)));
    let listed = stack.json(&["job", "list", "--limit", "500"]);
    assert!(listed.as_array().unwrap().iter().any(|job| job["id"] == own));

    let cancelled = stack.json(&["job", "cancel", &own, "--reason", "nobody has that much"]);
    assert_eq!(cancelled["status"], "JOB_STATUS_FAILED");
    assert_eq!(field(&stack.text(&["job", "cancel", &own, "--reason", "again"]), "status"), "failed");
    wait_for("the withdrawal to fail", PATIENCE, || async {
        stack.json(&["withdraw", "get", &withdrawal])["status"] == "WITHDRAWAL_STATUS_FAILED"
    })
    .await;
    let failed = stack.json(&["job", "list", "--status", "failed"]);
    assert!(failed.as_array().unwrap().iter().any(|job| job["id"] == own));
}

pub(crate) fn wallets(stack: &Stack) {
    let wallets = stack.json(&["wallet", "list", "--chain", "bsc"]);
    let wallets = wallets.as_array().unwrap();
    assert_eq!(wallets.len(), 2);
    for wallet in wallets {
        assert_eq!((&wallet["chain"], &wallet["role"]), (&json!("bsc"), &json!("WALLET_ROLE_HOT_WALLET")));
        assert_eq!(wallet["status"], "WALLET_STATUS_ACTIVE");
        let held: Vec<_> = wallet["holdings"].as_array().unwrap().iter().map(|held| &held["asset"]).collect();
        assert_eq!(held, ["BNB", "USDT"]);
        assert!(
            wallet["holdings"][1]["balance"].is_string() && wallet["holdings"][1]["reserved"].is_string()
        );
    }
    let printed = stack.text(&["wallet", "list"]);
    assert_eq!(printed.lines().filter(|line| line.contains("hot_wallet")).count(), 8, "{printed}");
}

/// Four payments, as text and as data.
pub(crate) fn paid(printed: &str, data: &str) {
    for asset in ["0.25 BNB on bsc", "12.5 USDT on bsc", "25 TRX on tron", "12.5 USDT on tron"] {
        assert!(printed.contains(&format!("Paying {asset}")), "{printed}");
    }
    assert_eq!(printed.matches("completed (").count(), 4, "{printed}");
    let data: Value = serde_json::from_str(data).unwrap();
    let found: Vec<_> = data
        .as_array()
        .unwrap()
        .iter()
        .map(|paid| {
            let keys: Vec<_> = paid.as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(keys, ["id", "chain", "asset", "amount", "to", "status", "tx_hash", "block"]);
            assert!(paid["block"].as_u64().unwrap() > 0 && paid["tx_hash"].as_str().unwrap().len() >= 64);
            ["chain", "asset", "amount", "status"].map(|key| paid[key].as_str().unwrap())
        })
        .collect();
    assert_eq!(
        found,
        [
            ["bsc", "BNB", "0.25", "completed"],
            ["bsc", "USDT", "12.5", "completed"],
            ["tron", "TRX", "25", "completed"],
            ["tron", "USDT", "12.5", "completed"],
        ]
    );
}

/// Rows as an old database exports them, one of them a payment that lies on the chain; gives its id.
pub(crate) async fn import(stack: &Stack) -> String {
    let from = stack.json(&["wallet", "list", "--chain", "bsc"])[1]["address"].as_str().unwrap().to_owned();
    // Half a BNB.
    let sent = json!({ "from": from, "to": SOMEBODY, "value": "0x6f05b59d3b20000" });
    let hash = call(stack, "eth_sendTransaction", json!([sent])).await;
    let hash = hash.as_str().unwrap();
    let row = |id: &str, rest: &str| {
        format!(
            r#"{{"id":"{id}","user_id":"{USER}","to_address":"{SOMEBODY}","asset_id":"BNB","chain_id":"bsc",
            "created_at":"2026-01-31 12:00:00.5+00","updated_at":"2026-01-31 12:00:01+00","memo":null,{rest}}}"#
        )
        .replace('\n', " ")
    };
    let [sent, done, unsent] = [1, 2, 3].map(|n| format!("9a1b2c3d-0000-4000-8000-00000000000{n}"));
    // The amount is a number with the zeros of NUMERIC(28,18); a double would do no harm here, a rounded text would.
    let paid = format!(
        r#""amount":0.500000000000000000,"amount_raw":"500000000000000000","tx_hash":"{hash}","status":"queued""#
    );
    let rows = [
        row(&sent, &format!(r#"{paid},"from_address":"{from}""#)),
        row(&done, r#""amount":"1","status":"completed""#),
        row(&unsent, r#""amount":"1","status":"approved","tx_hash":null"#),
    ];
    let printed = import_rows(stack, "rows.jsonl", &rows);
    let found: Vec<_> = printed.iter().map(|row| (row["line"].clone(), row["result"].clone())).collect();
    assert_eq!(
        found,
        [(json!(1), json!("watching")), (json!(2), json!("left out")), (json!(3), json!("left out"))]
    );
    assert_eq!((&printed[0]["id"], &printed[0]["detail"]), (&json!(sent), &json!(hash)));
    let again = stack.text(&["import", "rows.jsonl"]);
    assert!(again.starts_with(&format!("watching  {sent}  {hash}\nleft out  {done}  finished\n")), "{again}");

    bad_rows(stack, &|rest| row("9a1b2c3d-0000-4000-8000-000000000004", rest), &paid, &from);
    six_decimals(stack);
    let help = stack.text(&["import", "--help"]);
    let columns = "id user_id chain asset amount to_address from_address tx_hash status created_at";
    for column in columns.split(' ') {
        let is_explained = |line: &str| line.trim_start().starts_with(&format!("{column} "));
        assert!(help.lines().any(is_explained), "{column}: {help}");
    }
    sent
}

/// A mistake in any row keeps all of them out, and names the row and the column.
fn bad_rows(stack: &Stack, row: &dyn Fn(&str) -> String, paid: &str, from: &str) {
    let good = row(&format!(r#"{paid},"from_address":"{from}""#));
    for (bad, why) in [
        (row(paid), "from_address is missing"),
        (good.replace("0.50", "0.60"), "amount 0.6 and amount_raw 500000000000000000 differ"),
        (good.replace("0.500000000000000000", "5e-1"), "amount has 'e'"),
        (good.replace("to_address", "destination"), "to_address is missing"),
    ] {
        std::fs::write(stack.path("bad.jsonl"), format!("{good}\n{bad}\n")).unwrap();
        let printed = stack.refused(&["import", "bad.jsonl"]);
        assert!(printed.contains("line 2 (withdrawal 9a1b2c3d-") && printed.contains(why), "{printed}");
    }
    assert!(stack.refused(&["withdraw", "get", "9a1b2c3d-0000-4000-8000-000000000004"]).contains("NotFound"));
}

/// Zeros after the sixth digit are padding; anything else there is refused, not rounded.
fn six_decimals(stack: &Stack) {
    let wallets = stack.json(&["wallet", "list", "--chain", "tron"]);
    let [from, to] = [0, 1].map(|n| wallets[n]["address"].as_str().unwrap().to_owned());
    let row = |n: u8, amount: &str| {
        let (id, hash) = (format!("9a1b2c3d-0000-4000-8000-00000000001{n}"), format!("{n}").repeat(64));
        json!({
            "id": id, "user_id": USER, "chain": "tron", "asset": "USDT", "amount": amount, "to_address": to,
            "tx_hash": hash, "status": "queued", "created_at": "2026-01-31T12:00:00Z",
        })
        .to_string()
    };
    let sender = format!("tron={from}");
    std::fs::write(stack.path("padded.jsonl"), row(1, "100.000000000000000000")).unwrap();
    let printed = stack.json(&["import", "padded.jsonl", "--from", &sender]);
    assert_eq!(printed["result"], "watching", "{printed}");
    assert_eq!(stack.json(&["withdraw", "get", printed["id"].as_str().unwrap()])["amount"], "100");
    std::fs::write(stack.path("precise.jsonl"), row(2, "100.000000100000000000")).unwrap();
    let printed = stack.refused(&["import", "precise.jsonl", "--from", &sender]);
    assert!(printed.contains("1 of 1 rows refused"), "{printed}");
    let output = stack.command(&["import", "precise.jsonl", "--from", &sender, "--json"]).output().unwrap();
    let row: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(row["detail"].as_str().unwrap().contains("7 digits after the decimal point"), "{row}");
}

fn import_rows(stack: &Stack, name: &str, rows: &[String]) -> Vec<Value> {
    std::fs::write(stack.path(name), format!("{}\n", rows.join("\n"))).unwrap();
    stack.json_lines(&["import", name])
}

/// The imported payment was watched to its end.
pub(crate) fn taken_over(stack: &Stack, id: &str, watched: &str, watched_json: &str) {
    assert!(watched.lines().last().unwrap().contains("completed"), "{watched}");
    let steps = lines(watched_json);
    assert_eq!(steps.last().unwrap()["transition"]["to"], "WITHDRAWAL_STATUS_COMPLETED");
    let withdrawal = stack.json(&["withdraw", "get", id]);
    assert_eq!((&withdrawal["amount"], &withdrawal["user_id"]), (&json!("0.5"), &json!(USER)));
    assert_eq!(withdrawal["created_at"], "2026-01-31T12:00:00.500Z");
    assert!(withdrawal["final_tx_hash"].as_str().unwrap().starts_with("0x"));
}

async fn call(stack: &Stack, method: &str, params: Value) -> Value {
    testkit::JsonRpc::new(stack.url("bsc")).unwrap().call(method, params).await.unwrap()
}
