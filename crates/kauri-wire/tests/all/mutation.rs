//! Every cut and every single wrong byte of small frames.

use core::fmt::Debug;

use kauri_wire::run::{Frames, PREFIX_BYTES, RunFrame};
use kauri_wire::{Intent, IntentRef, Message, MessageRef, WireError, WireErrorKind};

use crate::samples::{encode, intents, messages, run_frames};

type Decoder<T> = fn(&[u8]) -> Result<T, WireError>;

/// Each wrong byte is refused inside the frame, or makes another value whose one byte form is the frame with that byte.
fn check<T: PartialEq + Debug>(frame: &[u8], decode: Decoder<T>, encode: fn(&T) -> Vec<u8>) {
    let original = decode(frame).unwrap();
    assert_eq!(encode(&original), frame);
    for at in 0..frame.len() {
        for flip in 1..=u8::MAX {
            let mut mutant = frame.to_vec();
            mutant[at] ^= flip;
            match decode(&mutant) {
                Err(error) => assert!(error.at <= frame.len(), "byte {at} as {:#x}: {error}", mutant[at]),
                Ok(value) => {
                    assert_eq!(encode(&value), mutant, "byte {at}: two byte forms of one value");
                    assert_ne!(value, original, "byte {at} as {:#x} is in no field", mutant[at]);
                }
            }
        }
    }
}

/// Each cut is refused as one, at the cut.
fn check_cuts<T: Debug>(frame: &[u8], decode: Decoder<T>) {
    for cut in 0..frame.len() {
        let error = decode(&frame[..cut]).unwrap_err();
        assert_eq!((error.kind, error.at), (WireErrorKind::Truncated, cut), "{error}");
    }
}

const MESSAGE: Decoder<Message> = |frame| MessageRef::decode(frame).map(|view| view.to_message());
const INTENT: Decoder<Intent> = |frame| IntentRef::decode(frame).map(|view| view.to_intent());

#[test]
fn a_wrong_byte_in_a_message_is_refused_or_read() {
    for message in messages() {
        check(&message.encode().unwrap(), MESSAGE, |message| message.encode().unwrap());
    }
}

#[test]
fn a_wrong_byte_in_an_intent_is_refused_or_read() {
    for intent in intents() {
        check(&intent.encode().unwrap(), INTENT, |intent| intent.encode().unwrap());
    }
}

#[test]
fn a_cut_message_is_refused() {
    for message in messages() {
        check_cuts(&message.encode().unwrap(), MESSAGE);
    }
}

#[test]
fn a_cut_intent_is_refused() {
    for intent in intents() {
        check_cuts(&intent.encode().unwrap(), INTENT);
    }
}

#[test]
fn a_cut_run_frame_is_refused() {
    for frame in run_frames() {
        for cut in 1..frame.len() {
            let mut frames = Frames::new(&frame[..cut]);
            let error = frames.next().unwrap().unwrap_err();
            assert_eq!((error.kind, error.at), (WireErrorKind::Truncated, cut), "{error}");
            assert_eq!(frames.next(), None);
        }
        for cut in PREFIX_BYTES..frame.len() {
            let error = RunFrame::decode(&frame[PREFIX_BYTES..cut]).unwrap_err();
            assert_eq!(error.kind, WireErrorKind::Truncated, "{error}");
        }
    }
}

#[test]
fn a_wrong_byte_in_a_run_frame_is_refused_or_read() {
    // Other events differ from the first in their payload only: one flipped bit at a time is enough for them.
    let frames = run_frames();
    let (items, others) = frames.split_at(1);
    let (events, kinds) = others.split_at(7);
    let all: Vec<u8> = (1..=u8::MAX).collect();
    items.iter().chain(kinds).for_each(|frame| read_mutants(frame, &all));
    events.iter().for_each(|frame| read_mutants(frame, &[1, 2, 4, 8, 16, 32, 64, 128]));
}

fn read_mutants(frame: &[u8], flips: &[u8]) {
    for at in 0..frame.len() {
        for flip in flips {
            let mut mutant = frame.to_vec();
            mutant[at] ^= flip;
            read_all(&mutant);
        }
    }
}

/// Reads what can be read; what was read can be shown, and survives being written.
fn read_all(buffer: &[u8]) {
    for frame in Frames::new(buffer) {
        match frame {
            Err(error) => assert!(error.at <= buffer.len(), "{error}"),
            Ok(frame) => {
                assert_eq!(Frames::new(&encode(frame)).collect::<Vec<_>>(), [Ok(frame)]);
                if let RunFrame::Event(envelope) = frame
                    && let Err(error) = envelope.event()
                {
                    assert!((PREFIX_BYTES..=buffer.len()).contains(&error.at), "{error}");
                }
            }
        }
    }
}
