//! `kauri frame`: frames for people and scripts.

mod check;
pub(super) mod json;
mod run_json;

use std::io::{Read, Write};
use std::path::PathBuf;

use kauri::wire::run::Frames;
use kauri::wire::{INTENT_MAGIC, IntentRef, MESSAGE_MAGIC, MessageRef};
use serde_json::Value;

use super::Trouble;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Show a frame as JSON: an LMSG or LINT frame, or length-prefixed run frames
    ///
    /// Example: kauri frame decode 4c4d53470000...
    Decode {
        /// The frame in hexadecimal; `-` reads it from standard input, in hexadecimal or as it is
        #[arg(value_name = "HEX|-")]
        hex: String,
    },
    /// Make an LMSG or LINT frame from JSON and print it in hexadecimal
    ///
    /// Example: kauri frame encode '{"kind":"command","to_worker":7,"message_id":"order-1","payload":"12 apples"}'
    Encode {
        /// The message or intent, in the form that `decode` prints; `-` reads it from standard input
        #[arg(value_name = "JSON|-")]
        json: String,
    },
    /// Check a file of conformance cases, one JSON object a line: each case is decoded, compared and encoded again
    ///
    /// Prints a line for each mismatch and a count at the end. Exit code 1 if there is a mismatch.
    Check {
        /// The file, for example crates/kauri-wire/tests/data/wire.jsonl
        file: PathBuf,
        /// Print the result as one JSON object
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(args: Args, out: &mut impl Write) -> Result<(), Trouble> {
    match args.command {
        Command::Decode { hex } => decode(&hex, out),
        Command::Encode { json } => encode(&json, out),
        Command::Check { file, json } => check::run(&file, json, out),
    }
}

fn decode(argument: &str, out: &mut impl Write) -> Result<(), Trouble> {
    let bytes = match argument {
        "-" => from_hex_or_raw(stdin()?)?,
        hex => from_hex(hex)?,
    };
    writeln!(out, "{:#}", describe(&bytes)?)?;
    Ok(())
}

fn encode(argument: &str, out: &mut impl Write) -> Result<(), Trouble> {
    let text = match argument {
        "-" => String::from_utf8(stdin()?).map_err(|error| Trouble::Wrong(format!("standard input: {error}")))?,
        text => text.to_owned(),
    };
    let value = serde_json::from_str(&text).map_err(|error| Trouble::Wrong(format!("not JSON: {error}")))?;
    let frame = json::encode(&value).map_err(Trouble::Wrong)?;
    writeln!(out, "{}", hex::encode(frame))?;
    Ok(())
}

/// What a frame says. Its first bytes tell which it is.
fn describe(bytes: &[u8]) -> Result<Value, Trouble> {
    let wrong = |name: &str, error| Trouble::Wrong(format!("not {name} frame: {error}"));
    if bytes.starts_with(&MESSAGE_MAGIC) {
        MessageRef::decode(bytes).map(|message| json::message(&message)).map_err(|error| wrong("an LMSG", error))
    } else if bytes.starts_with(&INTENT_MAGIC) {
        IntentRef::decode(bytes).map(|intent| json::intent(&intent)).map_err(|error| wrong("a LINT", error))
    } else if looks_like_run_frames(bytes) {
        let frames: Result<Vec<_>, _> =
            Frames::new(bytes).map(|frame| frame.map(|frame| run_json::frame(&frame))).collect();
        frames.map(Value::from).map_err(|error| wrong("a run", error))
    } else {
        let start = hex::encode(&bytes[..bytes.len().min(4)]);
        let expected = "expected LMSG, LINT or a length of 16 MiB at most and a MessagePack map";
        Err(Trouble::Wrong(format!("not a frame: at byte 0: {expected}, found \"{start}\"")))
    }
}

/// A length prefix that a frame can have, and the marker of a map behind it.
fn looks_like_run_frames(bytes: &[u8]) -> bool {
    matches!(bytes, [0, _, _, _, 0x80..=0x8f | 0xde | 0xdf, ..])
}

fn stdin() -> Result<Vec<u8>, Trouble> {
    let mut bytes = Vec::new();
    match std::io::stdin().lock().read_to_end(&mut bytes) {
        Ok(_) => Ok(bytes),
        Err(error) => Err(Trouble::Wrong(format!("cannot read standard input: {error}"))),
    }
}

/// Hexadecimal digits, with white space between them if one likes.
fn from_hex(text: &str) -> Result<Vec<u8>, Trouble> {
    let digits: String = text.split_whitespace().collect();
    hex::decode(digits).map_err(|error| Trouble::Wrong(format!("not hexadecimal: {error}")))
}

fn from_hex_or_raw(bytes: Vec<u8>) -> Result<Vec<u8>, Trouble> {
    let digit = |byte: &u8| byte.is_ascii_hexdigit() || byte.is_ascii_whitespace();
    match str::from_utf8(&bytes) {
        Ok(text) if bytes.iter().all(digit) => from_hex(text),
        _ => Ok(bytes),
    }
}
