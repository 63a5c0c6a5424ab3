//! `wire.jsonl`: message and intent frames, and what the encoder answers.

use std::collections::BTreeMap;

use kauri_wire::{
    Flags, INTENT_HEADER_BYTES, Intent, IntentRef, MESSAGE_HEADER_BYTES, Message, MessageId, MessageKind, MessageParts,
    MessageRef, Timestamp, TraceId, WireError, WireErrorKind, WorkerId,
};
use serde_json::Value as Json;

use super::{bytes, lines, signed, text, unsigned};

const CASES: &str = include_str!("../../data/wire.jsonl");

/// Runs `claim` over the cases of a class; a class without cases is a mistake in this file.
fn check(class: &str, claim: impl Fn(&Json)) {
    let cases: Vec<_> = lines(CASES).filter(|case| text(case, "class") == class).collect();
    assert!(!cases.is_empty(), "no case of class {class}");
    cases.iter().for_each(claim);
}

#[test]
fn every_class_of_case_is_known_and_has_cases() {
    let mut counts = BTreeMap::new();
    for case in lines(CASES) {
        *counts.entry(text(&case, "class").to_owned()).or_insert(0) += 1;
    }
    let known = ["accepted_quirk", "encoder", "invalid", "meta", "valid"];
    assert!(counts.keys().eq(known.iter()), "{counts:?}");
    assert_eq!((counts["meta"], counts.values().sum::<i32>()), (1, CASES.lines().count().try_into().unwrap()));
}

#[test]
fn sizes_and_status_codes_are_those_of_the_contract() {
    check("meta", |case| {
        assert_eq!(unsigned(case, "message_header"), MESSAGE_HEADER_BYTES as u64);
        assert_eq!(unsigned(case, "intent_header"), INTENT_HEADER_BYTES as u64);
        let kinds = [
            WireErrorKind::Invalid,
            WireErrorKind::TooBig,
            WireErrorKind::Format,
            WireErrorKind::Version,
            WireErrorKind::Truncated,
        ];
        let codes: BTreeMap<_, _> = kinds.iter().map(|kind| (kind.name().to_owned(), kind.code())).collect();
        let mut stated: BTreeMap<String, i32> = case["verdict_codes"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, code)| (name.clone(), code.as_i64().unwrap().try_into().unwrap()))
            .collect();
        assert_eq!(stated.remove("OK"), Some(0));
        assert_eq!(stated, codes);
    });
}

#[test]
fn valid_frames_decode_to_their_fields_and_encode_to_their_bytes() {
    check("valid", |case| {
        let frame = bytes(case, "hex");
        assert_eq!(frame.len() as u64, unsigned(case, "frame_len"), "{case}");
        match text(case, "frame") {
            "LMSG" => check_message(&frame, case),
            "LINT" => check_intent(&frame, case),
            other => panic!("a frame named {other}"),
        }
    });
}

fn check_message(frame: &[u8], case: &Json) {
    let name = &case["case"];
    let view = MessageRef::decode(frame).unwrap_or_else(|error| panic!("{name}: {error}"));
    check_message_fields(&view, case);
    assert!(view.frame() == frame, "{name}: another frame");
    let mut appended = b"before".to_vec();
    view.parts().append_to(&mut appended).unwrap();
    assert!(appended.strip_prefix(b"before") == Some(frame), "{name}: appended otherwise");
    let mut buffer = vec![0xaa; frame.len()];
    assert_eq!(view.parts().encode_into(&mut buffer), Ok(frame.len()), "{name}");
    assert!(buffer == frame, "{name}: written otherwise");
    assert!(view.to_message().encode().unwrap() == frame, "{name}: the owned message is encoded otherwise");
}

fn check_message_fields(view: &MessageRef<'_>, case: &Json) {
    let name = &case["case"];
    let from = case["from_worker"].as_i64().map(WorkerId);
    let trace = case["trace_id_hex"].as_str().map(crate::samples::hex);
    let presence = u8::from(from.is_some()) << 4 | u8::from(trace.is_some()) << 5;
    assert_eq!(view.kind() as u64, unsigned(case, "kind"), "{name}");
    assert_eq!(u64::from(view.flags().bits() | presence), unsigned(case, "flags"), "{name}");
    assert_eq!(view.to(), WorkerId(signed(case, "to_worker")), "{name}");
    assert_eq!(view.route().worker, WorkerId(signed(case, "route_worker")), "{name}");
    assert_eq!(view.route().timestamp, Timestamp(signed(case, "route_timestamp")), "{name}");
    assert_eq!(view.from(), from, "{name}");
    assert_eq!(view.id(), bytes(case, "message_id_hex"), "{name}");
    assert_eq!(view.trace(), trace.as_deref(), "{name}");
    assert_eq!(view.payload().len() as u64, unsigned(case, "payload_len"), "{name}");
    assert!(view.payload() == payload(case), "{name}: another payload");
}

/// The payload is given as digits, or by the formula of the long ones.
fn payload(case: &Json) -> Vec<u8> {
    match case["payload_gen"].as_str() {
        None => bytes(case, "payload_hex"),
        Some("byte[i]=(31*i+7)&255") => {
            (0..unsigned(case, "payload_len")).map(|index| ((31 * index + 7) & 255) as u8).collect()
        }
        Some(other) => panic!("an unknown formula: {other}"),
    }
}

fn check_intent(frame: &[u8], case: &Json) {
    let name = &case["case"];
    let view = IntentRef::decode(frame).unwrap_or_else(|error| panic!("{name}: {error}"));
    let due = match view {
        IntentRef::Emit { .. } => None,
        IntentRef::Arm { due, .. } => Some(due.0),
    };
    assert_eq!(due, case["due_ts"].as_i64(), "{name}");
    assert_eq!(u64::from(due.is_some()), unsigned(case, "kind"), "{name}");
    assert_eq!(u64::from(due.is_some()), unsigned(case, "flags"), "{name}");
    assert_eq!(view.message().frame().len() as u64, unsigned(case, "message_len"), "{name}");
    check_message_fields(view.message(), &case["message"]);
    let mut appended = b"before".to_vec();
    let intent = view.to_intent();
    intent.append_to(&mut appended).unwrap();
    assert!(appended.strip_prefix(b"before") == Some(frame), "{name}: appended otherwise");
    let mut buffer = vec![0xaa; frame.len()];
    assert_eq!(intent.encode_into(&mut buffer), Ok(frame.len()), "{name}");
    assert!(buffer == frame, "{name}: written otherwise");
}

/// The decoder that a case is for, without what it decodes to.
fn decode(case: &Json, frame: &[u8]) -> Result<(), WireError> {
    match text(case, "frame") {
        "LMSG" => MessageRef::decode(frame).map(drop),
        "LINT" => IntentRef::decode(frame).map(drop),
        other => panic!("a frame named {other}"),
    }
}

#[test]
fn invalid_frames_are_refused_with_the_stated_kind() {
    check("invalid", |case| {
        let frame = bytes(case, "hex");
        let error = decode(case, &frame).expect_err(text(case, "case"));
        assert_eq!(error.kind.name(), text(case, "verdict"), "{}: {error}", case["case"]);
        assert!(error.at <= frame.len(), "{}: {error}", case["case"]);
    });
}

#[test]
fn what_only_the_c_decoder_accepts_is_refused_and_listed() {
    // A new quirk must be looked at before it is listed here: kind and place of our refusal.
    let listed = [
        ("lmsg_quirk_from_worker_without_flag", "EFORMAT", 40),
        ("lmsg_quirk_from_worker_minus1_without_flag", "EFORMAT", 40),
        ("lint_quirk_nested_bad_version", "EVERSION", 32),
        ("lint_quirk_timer_nested_garbage", "ETRUNC", 29),
    ];
    check("accepted_quirk", |case| {
        let name = text(case, "case");
        let (_, kind, at) = listed.iter().find(|(listed, ..)| *listed == name).expect(name);
        let error = decode(case, &bytes(case, "hex")).expect_err(name);
        assert_eq!((error.kind.name(), error.at), (*kind, *at), "{name}: {error}");
        if let Some(nested) = case["nested_verdict"].as_str() {
            assert_eq!(error.kind.name(), nested, "{name}");
        }
    });
    assert_eq!(lines(CASES).filter(|case| text(case, "class") == "accepted_quirk").count(), listed.len());
}

/// What our API says to an encoder case.
enum Answer {
    /// So many bytes were written.
    Written(usize),
    /// Refused, with so many bytes needed, or 0 where no number would do.
    Refused(WireError, usize),
    /// Refused so in another test.
    AskedElsewhere(WireErrorKind),
    /// The types cannot say it. The nearest thing that can be said is refused: by a constructor, or by the decoder where
    /// only foreign bytes can say it.
    Inexpressible(WireError),
}

#[test]
fn encoder_cases_get_their_verdict_and_size() {
    check("encoder", |case| {
        let name = text(case, "case");
        let (verdict, written) = match answer(name) {
            Answer::Written(bytes) => ("OK", bytes),
            Answer::Refused(error, needed) => (error.kind.name(), needed),
            Answer::AskedElsewhere(kind) => (kind.name(), 0),
            Answer::Inexpressible(error) => {
                assert!(matches!(error.kind, WireErrorKind::Invalid | WireErrorKind::Format), "{name}: {error}");
                ("EINVAL", 0)
            }
        };
        assert_eq!((verdict, written as u64), (text(case, "verdict"), unsigned(case, "written")), "{name}");
    });
}

fn answer(name: &str) -> Answer {
    let message = Message::command(WorkerId(0), MessageId::new("abcd").unwrap(), "hi");
    let traced = message.clone().traced(TraceId::new(""));
    let intent = Intent::Emit { message: message.clone() };
    let mut buffer = [0; 94];
    match name {
        "enc_lmsg_ok" => Answer::Written(message.encode_into(&mut buffer).unwrap()),
        "enc_lmsg_trace_empty_with_flag" => Answer::Written(traced.encode_into(&mut buffer).unwrap()),
        "enc_lint_ok" => Answer::Written(intent.encode_into(&mut buffer).unwrap()),
        "enc_lmsg_dst_short" => {
            let needed = message.encoded_len();
            Answer::Refused(message.encode_into(&mut buffer[..needed - 1]).unwrap_err(), needed)
        }
        // Takes gigabytes of zero pages that nobody touches, and the counting allocator of this binary would touch them:
        // asked in the crate's own tests, as `a_message_over_4_gib_is_refused`.
        "enc_lmsg_oversize" => Answer::AskedElsewhere(WireErrorKind::Invalid),
        // Kinds are an enum; a number becomes one by this conversion only.
        "enc_lmsg_kind3" => Answer::Inexpressible(MessageKind::try_from(3).unwrap_err()),
        "enc_lmsg_flags40" => Answer::Inexpressible(Flags::from_bits(0x40).unwrap_err()),
        // A slice is never null. The part that may not be missing is the id.
        "enc_lmsg_payload_null" => {
            Answer::Inexpressible(MessageParts::new(MessageKind::Command, WorkerId(0), b"", b"").unwrap_err())
        }
        // The flag follows from the field; nobody can set or clear it alone.
        "enc_lmsg_trace_without_flag" | "enc_lmsg_trace_ptr_without_flag" => {
            Answer::Inexpressible(Flags::from_bits(0x20).unwrap_err())
        }
        // An intent is one of two cases that own a message: kind, flags and length follow from it.
        "enc_lint_kind2" => Answer::Inexpressible(patched(&intent, 12, 2)),
        "enc_lint_flags2" => Answer::Inexpressible(patched(&intent, 13, 2)),
        "enc_lint_msg_len0" => Answer::Inexpressible(patched(&intent, 24, 0)),
        other => panic!("an encoder case that nobody has mapped: {other}"),
    }
}

/// The fault of the intent's frame once one byte is another.
fn patched(intent: &Intent, at: usize, byte: u8) -> WireError {
    let mut frame = intent.encode().unwrap();
    frame[at] = byte;
    IntentRef::decode(&frame).unwrap_err()
}
