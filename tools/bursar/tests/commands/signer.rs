//! The signer's state, its unseal key, and its audit log with and without the signer.

use serde_json::{Value, json};

use crate::stack::{Stack, field};

pub(crate) fn commands(stack: &Stack) {
    let status = stack.json(&["signer", "status"]);
    assert_eq!((&status["sealed"], &status["frozen_chains"]), (&json!(false), &json!([])));
    assert_eq!(status["audit_head"].as_str().unwrap().len(), 64);
    assert!(number(&status["audit_length"]) > 0);
    assert_eq!(field(&stack.text(&["signer", "status"]), "sealed"), "false");
    unseal_key(stack);
    audit(stack);
}

fn unseal_key(stack: &Stack) {
    assert_eq!(stack.json(&["signer", "unseal"])["groups"], 1);
    assert!(
        stack.text(&["signer", "unseal", "--key-file", "data/secrets/unseal.key"]).starts_with("unsealed; 1")
    );
    let kept = stack.json(&["signer", "init"]);
    assert_eq!(kept, json!({ "file": "data/secrets/unseal.key", "created": false }));
    assert_eq!(stack.json(&["signer", "init", "new.key"]), json!({ "file": "new.key", "created": true }));
    assert!(stack.refused(&["signer", "init", "new.key"]).contains("cannot create new.key"));
    assert!(stack.refused(&["signer", "unseal", "--key-file", "new.key"]).contains("key"));
    // Away from any stack there is no key to take, and a fresh one lies where it was asked for.
    assert!(stack.refused(&["signer", "unseal", "--data", "nowhere"]).contains("--key-file"));
    let elsewhere = ["signer", "unseal", "--signer", "http://127.0.0.1:1"];
    assert!(stack.refused(&elsewhere).contains("--key-file"), "the stack's key is not sent to a stranger");
    assert!(stack.text(&["signer", "init", "--data", "nowhere"]).contains("written to unseal.key"));
}

fn audit(stack: &Stack) {
    assert!(stack.text(&["signer", "audit", "verify"]).starts_with("intact: "));
    let found = stack.json(&["signer", "audit", "verify"]);
    assert_eq!((&found["intact"], &found["problem"]), (&json!(true), &json!("")));
    let listed = stack.json(&["signer", "audit", "list", "--after", "1", "--limit", "2"]);
    let sequences: Vec<_> = listed.as_array().unwrap().iter().map(|entry| &entry["sequence"]).collect();
    assert_eq!(sequences, ["2", "3"]);
    // More than the signer gives at once.
    let all = stack.text(&["signer", "audit", "list", "--limit", "2000"]);
    assert!(all.lines().next().unwrap().starts_with("#") && all.lines().count() > 3, "{all}");

    let exported = stack.json(&["signer", "audit", "export", "audit.jsonl"]);
    let entries = number(&json!(exported["entries"].to_string()));
    assert!(entries >= number(&found["entries"]), "{exported}");
    assert!(
        stack.text(&["signer", "audit", "export", "again.jsonl"]).contains(" entries written to again.jsonl")
    );
    assert!(
        stack.refused(&["signer", "audit", "export", "audit.jsonl"]).contains("cannot create audit.jsonl")
    );

    // From here on no server is asked: there is none where --data points.
    let offline = ["signer", "audit", "verify", "--data", "nowhere", "--file"];
    let verify = |file| [offline.as_slice(), &[file]].concat();
    assert_eq!(stack.text(&verify("audit.jsonl")), format!("intact: {entries} entries\n"));
    let (sequence, hash) = (exported["head_sequence"].to_string(), exported["head_hash"].as_str().unwrap());
    let noted = ["--sequence", &sequence, "--expect", hash];
    let found = stack.json(&[verify("audit.jsonl").as_slice(), &noted].concat());
    assert_eq!((&found["intact"], &found["entries"]), (&json!(true), &json!(entries.to_string())));

    let log = std::fs::read_to_string(stack.path("audit.jsonl")).unwrap();
    std::fs::write(stack.path("edited.jsonl"), log.replacen("\"allowed\"", "\"refused\"", 1)).unwrap();
    assert!(stack.refused(&verify("edited.jsonl")).contains("was changed after it was written"));
    let cut: Vec<&str> = log.lines().take(2).collect();
    std::fs::write(stack.path("cut.jsonl"), cut.join("\n")).unwrap();
    assert!(stack.text(&verify("cut.jsonl")).starts_with("intact: 2"), "only a noted head finds a cut");
    assert!(
        stack.refused(&[verify("cut.jsonl").as_slice(), &noted].concat()).contains("the log ends at entry 2")
    );
    std::fs::write(stack.path("other.jsonl"), "{}\n").unwrap();
    assert!(stack.refused(&verify("other.jsonl")).contains("line 1 is no audit entry"));
    let refused = stack.command(&[verify("edited.jsonl").as_slice(), &["--json"]].concat()).output().unwrap();
    let printed: Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!((&printed["intact"], &printed["first_bad_sequence"]), (&json!(false), &json!("1")));
}

/// 64-bit integers are text.
fn number(value: &Value) -> u64 {
    value.as_str().unwrap().parse().unwrap()
}
