use std::path::PathBuf;

use crate::{answer, kauri, refusal};

const ORDER: &str = concat!(
    "4c4d5347000000004c0000000000000007000000000000000000000000000000",
    "0000000000000000000000000000000007000000ffffffff09000000",
    "6f726465722d313132206170706c6573",
);
const ORDER_JSON: &str = r#"{"to_worker":7,"message_id":"order-1","payload":"12 apples"}"#;

fn data(name: &str) -> String {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "kauri-wire", "tests", "data", name].iter().collect();
    path.to_str().expect("text").to_owned()
}

fn encode(json: &str) -> String {
    answer(&["frame", "encode", json], b"").trim_end().to_owned()
}

/// A file of cases that is gone when the test is.
struct Cases(PathBuf);

impl Cases {
    fn new(name: &str, lines: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&path, lines).expect("the folder for temporary files can be written");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("text")
    }
}

impl Drop for Cases {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn every_public_case_agrees() {
    assert_eq!(
        answer(&["frame", "check", &data("wire.jsonl")], b""),
        "210 agreed, 4 quirks refused, 14 skipped, 0 mismatched\n"
    );
    assert_eq!(
        answer(&["frame", "check", &data("runner_records.jsonl"), "--json"], b""),
        "{\"agreed\":49,\"quirks_refused\":0,\"skipped\":16,\"mismatches\":[]}\n"
    );
}

#[test]
fn check_names_each_mismatch_and_exits_with_1() {
    let lines = format!(
        concat!(
            r#"{{"case":"right","class":"valid","frame":"LMSG","to_worker":7,"message_id":"order-1","payload":"12 apples","hex":"{0}"}}"#,
            "\n\n",
            r#"{{"case":"field","class":"valid","frame":"LMSG","to_worker":8,"hex":"{0}"}}"#,
            "\n",
            r#"{{"case":"fine","class":"invalid","frame":"LMSG","verdict":"EFORMAT","hex":"{0}"}}"#,
            "\n",
            r#"{{"case":"kind","class":"invalid","frame":"LMSG","verdict":"EFORMAT","hex":"4c"}}"#,
            "\n",
            r#"{{"case":"quirk","class":"accepted_quirk","frame":"LMSG","hex":"{0}"}}"#,
            "\n",
            r#"{{"record":"outbox_key","era":"both","seq":1,"hex":"0000000000000002"}}"#,
            "\n",
        ),
        ORDER
    );
    let cases = Cases::new("mismatches.jsonl", &lines);
    let output = kauri(&["frame", "check", cases.path()], b"");
    let text = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(1));
    let expected = [
        ":3: field: to_worker: expected 8, decoded 7",
        ":4: fine: expected EFORMAT, decoded without a fault",
        ":5: kind: expected EFORMAT, refused as ETRUNC",
        ":6: quirk: expected a refusal, decoded without a fault",
        ":7: outbox_key: encoding: expected 0000000000000002, found 0000000000000001",
    ];
    let lines: Vec<_> = text.lines().collect();
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.ends_with(expected), "{line}");
    }
    assert_eq!(lines.last(), Some(&"1 agreed, 0 quirks refused, 0 skipped, 5 mismatched"));
}

#[test]
fn check_refuses_files_that_are_not_cases() {
    let broken = Cases::new("broken.jsonl", "{\"class\":\"meta\"}\nnonsense\n");
    assert!(refusal(&["frame", "check", broken.path()], b"").contains(":2: not JSON"));
    assert!(refusal(&["frame", "check", "no-such-file.jsonl"], b"").contains("no-such-file.jsonl: No such file"));
    let empty = Cases::new("empty.jsonl", "");
    let output = kauri(&["frame", "check", empty.path()], b"");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn encode_and_decode_are_inverse() {
    assert_eq!(encode(ORDER_JSON), ORDER);
    let shown = answer(&["frame", "decode", ORDER], b"");
    assert_eq!(encode(&shown), ORDER);
    let intent = format!(r#"{{"due_ts":-5,"message":{ORDER_JSON}}}"#);
    let frame = encode(&intent);
    assert!(frame.starts_with("4c494e54"));
    assert_eq!(encode(&answer(&["frame", "decode", &frame], b"")), frame);
}

#[test]
fn decode_reads_standard_input_in_hexadecimal_and_raw() {
    let shown = answer(&["frame", "decode", ORDER], b"");
    assert_eq!(answer(&["frame", "decode", "-"], format!("{}\n{}\n", &ORDER[..8], &ORDER[8..]).as_bytes()), shown);
    let raw: Vec<_> =
        (0..ORDER.len()).step_by(2).map(|at| u8::from_str_radix(&ORDER[at..at + 2], 16).expect("hex")).collect();
    assert_eq!(answer(&["frame", "decode", "-"], &raw), shown);
}

#[test]
fn decode_shows_run_frames() {
    let bytes = std::fs::read(data("run_ipc/e2e_fixture.bin")).expect("the file is in the repository");
    let shown = answer(&["frame", "decode", "-"], &bytes);
    assert_eq!(shown.matches("\"type\":").count(), 6, "{shown}");
    assert!(shown.contains("\"price\": 99.99") && shown.contains("\"data_hex\": \"00010203"), "{shown}");
}

#[test]
fn input_that_is_no_frame_is_refused_in_one_line() {
    let cases: [(&[&str], &str); 14] = [
        (&["decode", "xyz"], "not hexadecimal"),
        (&["decode", "4c4"], "not hexadecimal"),
        (&["decode", ""], "not a frame"),
        (&["decode", "ffffffff80"], "found \"ffffffff\""),
        (&["decode", "4c4d5347"], "expected a 60-byte LMSG header, found 4 bytes"),
        (&["decode", "4c494e5400"], "expected a 28-byte LINT header, found 5 bytes"),
        (&["decode", "0000000581"], "not a run frame"),
        (&["encode", "{"], "not JSON"),
        (&["encode", "[]"], "expected a JSON object"),
        (&["encode", "{}"], "`message_id`"),
        (&["encode", r#"{"message_id":"","to_worker":1}"#], "at least one byte"),
        (&["encode", r#"{"message_id":"a","to_worker":1.5}"#], "`to_worker`: expected a 64-bit integer, found 1.5"),
        (&["encode", r#"{"message_id":"a","to_worker":1,"kind":3}"#], "`kind`: expected 0, 1 or 2"),
        (&["encode", r#"{"message_id":"a","to_worker":1,"flags":16}"#], "expected 0x00 for the sender and trace given"),
    ];
    for (args, hint) in cases {
        let line = refusal(&[&["frame"], args].concat(), b"");
        assert!(line.contains(hint), "{args:?}: {line}");
    }
}
