use proptest::prelude::*;

use super::*;

fn log(length: usize) -> Vec<AuditEntry> {
    let mut head = Head::GENESIS;
    (0..length)
        .map(|i| {
            let at =
                DateTime::from_timestamp_micros(1_800_000_000_000_000 + i64::try_from(i).expect("small"))
                    .expect("time");
            head.append(
                at,
                Draft {
                    caller: "execution".to_owned(),
                    action: "sign",
                    decision: if i % 3 == 0 { Decision::Refused } else { Decision::Allowed },
                    reason: format!("reason.{i}"),
                    detail: format!("{{\"n\":{i}}}"),
                },
            )
        })
        .collect()
}

#[test]
fn an_untouched_log_holds_and_survives_export() {
    let entries = log(20);
    let head = verify(&entries, None).expect("holds");
    assert_eq!(head.sequence, 20);
    let lines: Vec<String> =
        entries.iter().map(|entry| serde_json::to_string(entry).expect("json")).collect();
    let back: Vec<AuditEntry> = lines.iter().map(|line| serde_json::from_str(line).expect("entry")).collect();
    assert_eq!(verify(&back, Some(head)), Ok(head));
}

#[test]
fn the_hash_is_fixed_for_ever() {
    // A change of the canonical bytes would make every log ever written look forged.
    assert_eq!(
        log(1)[0].hash.to_string(),
        hex::encode(Sha256::digest(
            [
                [0u8; 32].as_slice(),
                b"bursar/audit/v1",
                b"\0\0\0\x011",
                b"\0\0\0\x101800000000000000",
                b"\0\0\0\x09execution",
                b"\0\0\0\x04sign",
                b"\0\0\0\x07refused",
                b"\0\0\0\x08reason.0",
                b"\0\0\0\x07{\"n\":0}",
            ]
            .concat()
        ))
    );
}

#[test]
fn a_rewritten_or_shortened_log_is_found_by_a_noted_head() {
    let entries = log(10);
    let noted = Head { sequence: 10, hash: entries[9].hash };
    assert_eq!(verify(&entries[..8], Some(noted)), Err(Break::Tail { expected: 10, found: 8 }));
    let mut head = Head::GENESIS;
    let forged: Vec<AuditEntry> = log(10)
        .into_iter()
        .map(|entry| {
            let draft = Draft {
                caller: entry.caller,
                action: "sign",
                decision: Decision::Allowed,
                reason: entry.reason,
                detail: entry.detail,
            };
            head.append(entry.at, draft)
        })
        .collect();
    assert!(verify(&forged, None).is_ok(), "a rewritten log is consistent in itself");
    assert_eq!(verify(&forged, Some(noted)), Err(Break::Anchor { sequence: 10 }));
}

proptest! {
    #[test]
    fn every_edit_is_found_where_it_was_made(at in 0usize..12, field in 0usize..7) {
        let mut entries = log(12);
        let entry = &mut entries[at];
        match field {
            0 => entry.caller.push('x'),
            1 => entry.action.push('x'),
            2 => entry.decision = if entry.decision == "allowed" { "refused" } else { "allowed" }.to_owned(),
            3 => entry.reason.push('x'),
            4 => entry.detail.push(' '),
            5 => entry.at += chrono::TimeDelta::microseconds(1),
            _ => entry.hash.0[0] ^= 1,
        }
        let found = verify(&entries, None).unwrap_err();
        prop_assert_eq!(found.sequence(), u64::try_from(at).expect("small") + 1);
    }

    #[test]
    fn every_removal_and_every_swap_is_found(a in 0usize..12, b in 0usize..12) {
        let mut removed = log(12);
        removed.remove(a);
        // Cutting the very end leaves a shorter chain that holds; a noted head finds that.
        prop_assert_eq!(verify(&removed, None).is_ok(), a == 11);
        let mut swapped = log(12);
        swapped.swap(a, b);
        prop_assert_eq!(verify(&swapped, None).is_ok(), a == b);
    }

    #[test]
    fn moving_bytes_between_fields_changes_the_hash(split in 1usize..8) {
        let mut entry = log(1).remove(0);
        let before = entry.computed_hash();
        let moved = entry.reason.split_off(split.min(entry.reason.len() - 1));
        entry.detail = moved + &entry.detail;
        prop_assert_ne!(entry.computed_hash(), before);
    }
}
