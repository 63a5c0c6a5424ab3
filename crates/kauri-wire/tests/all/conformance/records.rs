//! `runner_records.jsonl`: keys and the schema marker. Values of rows are not this crate's.

use std::collections::BTreeMap;

use kauri_wire::{InboxKey, Key, RetryKey, SchemaVersion, Seq, TimerKey, Timestamp, WorkerId};
use serde_json::Value as Json;

use super::{bytes, lines, signed, text, unsigned};

const RECORDS: &str = include_str!("../../data/runner_records.jsonl");

/// The records that the first release of the runner wrote.
fn records() -> impl Iterator<Item = Json> {
    lines(RECORDS).filter(|record| match text(record, "era") {
        "seed" | "both" => true,
        "head" => false,
        other => panic!("an unknown era: {other}"),
    })
}

/// Encodes and decodes a key of a fixed size.
fn check<K>(key: K, record: &Json)
where
    K: for<'a> Key<Ref<'a> = K, View<'a> = K> + Copy + PartialEq + core::fmt::Debug,
{
    let stated = bytes(record, "hex");
    assert_eq!(K::encode(key), stated, "{record}");
    assert_eq!(K::decode(&stated), Ok(key), "{record}");
}

#[test]
fn keys_and_marker_are_the_bytes_of_the_runner() {
    let mut counts = BTreeMap::new();
    for record in records() {
        let kind = text(&record, "record");
        match kind {
            "inbox_key" => check(inbox(&record), &record),
            "outbox_key" => check(Seq(unsigned(&record, "seq")), &record),
            "timer_key" => check(timer(&record), &record),
            "schema_marker" => check_marker(&record),
            "retry_counter" => check_retry_key(&record),
            "lease_value" | "dedupe_value" => {}
            other => panic!("a record that nobody has mapped: {other}"),
        }
        *counts.entry(kind.to_owned()).or_insert(0) += 1;
    }
    let known =
        ["dedupe_value", "inbox_key", "lease_value", "outbox_key", "retry_counter", "schema_marker", "timer_key"];
    assert!(counts.keys().eq(known.iter()), "{counts:?}");
    let values_that_are_not_ours = counts["dedupe_value"] + counts["lease_value"];
    assert_eq!(values_that_are_not_ours, 4);
}

fn inbox(record: &Json) -> InboxKey {
    InboxKey { worker: WorkerId::from_key_bits(unsigned(record, "worker")), seq: Seq(unsigned(record, "seq")) }
}

fn timer(record: &Json) -> TimerKey {
    TimerKey { due: Timestamp(signed(record, "due_ts")), seq: Seq(unsigned(record, "seq")) }
}

fn check_marker(record: &Json) {
    let part = |field| unsigned(record, field).try_into().unwrap();
    let version = SchemaVersion { major: part("major"), minor: part("minor") };
    assert_eq!(SchemaVersion::KEY, text(record, "key").as_bytes());
    assert_eq!(version.encode()[..], bytes(record, "hex"), "{record}");
    assert_eq!(SchemaVersion::decode(&bytes(record, "hex")), Ok(version), "{record}");
}

fn check_retry_key(record: &Json) {
    let (id, key) = (text(record, "message_id").as_bytes(), bytes(record, "key_hex"));
    assert_eq!(RetryKey::encode(id), key, "{record}");
    assert_eq!(RetryKey::decode(&key), Ok(id), "{record}");
}

#[test]
fn timer_keys_are_ordered_as_the_runners_index_orders_them() {
    let timers: Vec<_> = records().filter(|record| text(record, "record") == "timer_key").collect();
    let words = |record: &Json| -> Vec<u64> {
        record["index_words"].as_array().unwrap().iter().map(|word| word.as_u64().unwrap()).collect()
    };
    for left in &timers {
        for right in &timers {
            let by_index = words(left).cmp(&words(right));
            assert_eq!(TimerKey::compare(&bytes(left, "hex"), &bytes(right, "hex")), by_index, "{left} {right}");
            assert_eq!(timer(left).cmp(&timer(right)), by_index, "{left} {right}");
        }
    }
}
