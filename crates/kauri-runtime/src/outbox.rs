//! The outbox: messages that a commit released, waiting to be delivered outside.
//!
//! A row is delivered and then removed, so a crash in between delivers it again: at least once, with the row's sequence number as the
//! key by which a receiver knows it. A row that its sink does not accept stays, and so does everything behind it: order is kept.

use std::io::Write;

use kauri_wire::{Key, MessageRef, Seq};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::json::{self, Object};
use crate::keys;
use crate::metrics::Counter;
use crate::observe::Observation;
use crate::read::Read;
use crate::runtime::Runtime;
use crate::schema::{DEDUPE, OUTBOX};
use crate::substrate::{Change, KeyRange};

/// What became of a message that was offered to a sink.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Offer {
    /// It is the receiver's now.
    Accepted,
    /// Not now: offer it again later.
    Later(String),
}

/// Where messages of the outbox go.
///
/// Any `FnMut(Seq, &[u8]) -> Offer` is one.
pub trait Sink {
    /// Offers a message frame. The same `seq` may be offered again after a crash.
    fn offer(&mut self, seq: Seq, frame: &[u8]) -> Offer;

    /// Makes durable what was accepted, before it is removed here.
    ///
    /// # Errors
    /// If that failed: then it will be offered again.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl<F: FnMut(Seq, &[u8]) -> Offer> Sink for F {
    fn offer(&mut self, seq: Seq, frame: &[u8]) -> Offer {
        self(seq, frame)
    }
}

/// A sink that writes a line of JSON for each message: its sequence number, its fields, and payload and ids as text where they are
/// UTF-8, as hexadecimal digits where not.
#[derive(Debug)]
pub struct JsonLines<W> {
    out: W,
}

impl<W: Write> JsonLines<W> {
    /// Lines into this.
    pub const fn new(out: W) -> Self {
        Self { out }
    }

    /// What was written to.
    pub fn into_inner(self) -> W {
        self.out
    }
}

impl<W: Write> Sink for JsonLines<W> {
    fn offer(&mut self, seq: Seq, frame: &[u8]) -> Offer {
        let mut line = Object::from_iter([("seq".to_owned(), seq.0.into())]);
        json::put_message(&mut line, frame);
        match writeln!(self.out, "{}", Value::from(line)) {
            Ok(()) => Offer::Accepted,
            Err(error) => Offer::Later(error.to_string()),
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(self.out.flush()?)
    }
}

/// A sink that is another runtime's inbox. Each message arrives there once: the receiver remembers how far it has come with this
/// source, in the commit that takes the message.
#[derive(Debug)]
pub struct InboxSink {
    to: Runtime,
    source: Vec<u8>,
}

impl InboxSink {
    /// Into the inboxes of this runtime, from a source of this name. A name stands for one outbox, for ever.
    #[must_use]
    pub fn new(to: Runtime, source: &str) -> Self {
        let (name, is_folded) = keys::folded(&to.shared.takes, 5, source.as_bytes());
        let source = [if is_folded { b"from#" } else { b"from:" }, &name[..]].concat();
        Self { to, source }
    }

    fn receive(&self, seq: Seq, frame: &[u8]) -> Result<()> {
        let message = MessageRef::decode(frame)?.to_message();
        self.to.atomic(|block| {
            let last = block.row(&DEDUPE, &self.source)?.map(|bytes| <[u8; 8]>::try_from(&bytes[..]));
            let last = match last {
                None => 0,
                Some(Ok(bytes)) => u64::from_le_bytes(bytes),
                Some(Err(_)) => return Err(Error::damaged("dedupe", "a number of eight bytes")),
            };
            if seq.0 > last {
                block.stage(&DEDUPE, &self.source, Some(&seq.0.to_le_bytes()))?;
                // What nobody accepts, everything behind it would wait for.
                block.pass_on(&message, None)?;
            }
            Ok(())
        })
    }
}

impl Sink for InboxSink {
    fn offer(&mut self, seq: Seq, frame: &[u8]) -> Offer {
        match self.receive(seq, frame) {
            Ok(()) => Offer::Accepted,
            Err(error) => Offer::Later(error.to_string()),
        }
    }
}

impl Runtime {
    /// Offers up to `most` messages of the outbox to a sink, oldest first, until one is not accepted; removes those that were.
    /// Answers how many that is. One drains at a time; whoever comes second gets 0.
    ///
    /// # Errors
    /// If the substrate or the sink's flush fails.
    pub fn drain_outbox(&self, sink: &mut impl Sink, most: usize) -> Result<usize> {
        let Ok(_turn) = self.shared.outbox.try_lock() else { return Ok(0) };
        let accepted = {
            let rows = self.shared.substrate.snapshot()?;
            let mut scan = rows.scan(&OUTBOX, KeyRange::ALL)?;
            let mut accepted = Vec::new();
            while accepted.len() < most {
                let Some((key, frame)) = scan.next()? else { break };
                let seq =
                    Seq::decode(&key).map_err(|_| Error::damaged("outbox", "a sequence number of eight bytes"))?;
                if sink.offer(seq, &frame) != Offer::Accepted {
                    break;
                }
                accepted.push(seq);
            }
            accepted
        };
        if accepted.is_empty() {
            return Ok(0);
        }
        sink.flush()?;
        self.shared.commit_until(|_| {
            let mut change = Change::default();
            for seq in &accepted {
                change.remove(OUTBOX, Seq::encode(*seq));
            }
            Ok(Some((change, ())))
        })?;
        self.shared.metrics.add(Counter::Delivered, accepted.len() as u64);
        for seq in &accepted {
            self.shared.observe(&Observation::Delivered { seq: *seq });
        }
        Ok(accepted.len())
    }
}
