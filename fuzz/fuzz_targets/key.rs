//! Keys, ids and the schema marker: the first byte chooses the type, the rest is the key.
#![no_main]

use core::fmt::Debug;

use kauri_fuzz::allocation;
use kauri_wire::{InboxKey, JobId, Key, RetryKey, RunId, SchemaVersion, Seq, TimerKey, Timestamp, WireError, WorkerId};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    match choice % 24 {
        0 => fixed::<u8>(bytes),
        1 => fixed::<u16>(bytes),
        2 => fixed::<u32>(bytes),
        3 => fixed::<u64>(bytes),
        4 => fixed::<u128>(bytes),
        5 => fixed::<i8>(bytes),
        6 => fixed::<i16>(bytes),
        7 => fixed::<i32>(bytes),
        8 => fixed::<i64>(bytes),
        9 => fixed::<i128>(bytes),
        10 => fixed::<bool>(bytes),
        11 => fixed::<WorkerId>(bytes),
        12 => fixed::<Seq>(bytes),
        13 => fixed::<Timestamp>(bytes),
        14 => fixed::<InboxKey>(bytes),
        15 => fixed::<TimerKey>(bytes),
        16 => run(bytes),
        17 => borrowed(bytes),
        18 => marker(bytes),
        19 => pair(bytes),
        20 => triple(bytes),
        21 => job_row(bytes),
        22 => six(bytes),
        _ => ordered(bytes),
    }
});

/// What is accepted is written as the same bytes; what is refused is refused inside them.
fn same(bytes: &[u8], written: Result<Vec<u8>, WireError>) {
    match written {
        Ok(written) => assert_eq!(written, bytes),
        Err(error) => assert!(error.at <= bytes.len(), "{error}"),
    }
}

fn fixed<K>(bytes: &[u8])
where
    K: for<'a> Key<Ref<'a> = K, View<'a> = K> + Copy + Ord + Debug,
{
    same(bytes, allocation::without(|| K::decode(bytes)).map(K::encode));
    let (left, right) = bytes.split_at(bytes.len() / 2);
    if let (Ok(one), Ok(other)) = (K::decode(left), K::decode(right)) {
        assert_eq!(K::compare(left, right), one.cmp(&other));
    }
}

fn run(bytes: &[u8]) {
    fixed::<RunId>(bytes);
    if let Ok(run) = RunId::decode(bytes) {
        assert_eq!(allocation::without(|| RunId::from_bytes(*run.as_bytes())), Ok(run));
        assert_eq!(run.to_string().parse(), Ok(run));
    }
    if let Ok(text) = core::str::from_utf8(bytes)
        && let Ok(run) = allocation::without(|| text.parse::<RunId>())
    {
        assert_eq!(run.to_string(), text.to_ascii_lowercase());
    }
}

fn borrowed(bytes: &[u8]) {
    same(bytes, allocation::without(|| <[u8]>::decode(bytes)).map(<[u8]>::encode));
    same(bytes, allocation::without(|| str::decode(bytes)).map(str::encode));
    same(bytes, allocation::without(|| RetryKey::decode(bytes)).map(RetryKey::encode));
    same(bytes, allocation::without(|| JobId::decode(bytes)).map(encode_job));
    if let Ok(text) = core::str::from_utf8(bytes) {
        let job = JobId::new(text);
        assert_eq!(job.is_ok(), JobId::decode(bytes).is_ok());
        assert!(job.is_err() || !matches!(text, "." | "..") && !text.contains('/'));
    }
}

fn encode_job(text: &str) -> Vec<u8> {
    JobId::encode(&JobId::new(text).expect("it was read as one"))
}

fn marker(bytes: &[u8]) {
    same(bytes, allocation::without(|| SchemaVersion::decode(bytes)).map(|version| version.encode().to_vec()));
}

/// Text with a zero in it is owned, in a buffer of its own length; other text is borrowed.
fn room(bytes: &[u8]) -> usize {
    if bytes.contains(&0xff) { bytes.len() } else { 0 }
}

fn pair(bytes: &[u8]) {
    let decoded = allocation::within(room(bytes), || <(String, u64)>::decode(bytes));
    same(bytes, decoded.map(|(text, number)| <(String, u64)>::encode((&text, number))));
}

fn triple(bytes: &[u8]) {
    type Triple = (Vec<u8>, String, Vec<u8>);
    let decoded = allocation::within(room(bytes), || Triple::decode(bytes));
    same(bytes, decoded.map(|(first, text, last)| Triple::encode((&first, &text, &last))));
}

fn job_row(bytes: &[u8]) {
    type Row = (JobId, RunId, Timestamp, bool);
    let decoded = allocation::within(room(bytes), || Row::decode(bytes));
    same(
        bytes,
        decoded.map(|(job, run, at, bit)| Row::encode((&JobId::new(job).expect("it was read as one"), run, at, bit))),
    );
}

fn six(bytes: &[u8]) {
    type Six = (u8, i16, Vec<u8>, WorkerId, String, Seq);
    let decoded = allocation::within(room(bytes), || Six::decode(bytes));
    same(bytes, decoded.map(|(a, b, c, d, e, f)| Six::encode((a, b, &c, d, &e, f))));
}

/// Two pairs cut out of the bytes are in the order of their keys, and come back.
fn ordered(bytes: &[u8]) {
    type Pair = (Vec<u8>, Vec<u8>);
    let (left, right) = bytes.split_at(bytes.len() / 2);
    let left = left.split_at(left.len() / 2);
    let right = right.split_at(right.len() / 2);
    let (left_key, right_key) = (Pair::encode(left), Pair::encode(right));
    assert_eq!(left_key.cmp(&right_key), left.cmp(&right));
    let (first, last) = Pair::decode(&left_key).expect("our key");
    assert_eq!((&*first, &*last), left);
}
