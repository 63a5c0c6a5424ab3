//! A look at a runtime's store without a runtime: no incarnation begins, nothing is recovered, nothing changes.

use kauri_wire::{InboxKey, Key, SchemaVersion, Seq, TimerKey, WorkerId};

use crate::dead_letter::DeadLetter;
use crate::error::{Error, Result};
use crate::lease::{Lease, decode_row};
use crate::read::View;
use crate::runtime::{inbox_key, inbox_range};
use crate::schema::{APP_STATE, DEAD_LETTER, INBOX, LEASES, OUTBOX, SEQUENCES, TIMERS};
use crate::substrate::{KeyRange, Rows, Substrate, TableName};

/// One version of a runtime's store, looked at from outside. Frames are shown as they are, whether they decode or not.
///
/// ```
/// # use std::sync::Arc;
/// # use kauri_runtime::testing::VirtualClock;
/// use kauri_runtime::substrate::TreeSubstrate;
/// use kauri_runtime::{Look, Runtime};
/// use kauri_tree::Store;
/// use kauri_wire::{Message, MessageId, WorkerId};
///
/// # let clock = Arc::new(VirtualClock::default());
/// let substrate = Arc::new(TreeSubstrate::new(Store::in_memory()?));
/// let runtime = Runtime::builder(substrate.clone(), clock).start()?;
/// runtime.send(&Message::command(WorkerId(7), MessageId::new("order-1")?, "12 apples"))?;
///
/// let look = Look::at(&*substrate)?;
/// assert_eq!(look.schema()?, Some(kauri_runtime::SCHEMA));
/// assert_eq!(look.incarnation()?, 1);
/// assert_eq!(look.inbox(Some(WorkerId(7)), 10)?.len(), 1);
/// # Ok::<(), kauri_runtime::Error>(())
/// ```
#[derive(Debug)]
pub struct Look<'a> {
    pub(crate) view: View<'a>,
}

/// A lease as its row has it: whose, and over which messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseRow {
    /// The worker, and which of its instances.
    pub key: InboxKey,
    /// Which instance has it, until when, and how often it was claimed.
    pub lease: Lease,
    /// The messages of the worker's inbox.
    pub messages: Vec<Seq>,
}

impl<'a> Look<'a> {
    /// A look at the newest version.
    ///
    /// # Errors
    /// If the substrate fails.
    pub fn at(substrate: &'a dyn Substrate) -> Result<Self> {
        Ok(Self { view: View::new(substrate.snapshot()?) })
    }

    fn rows(&self) -> &dyn Rows {
        self.view.as_rows()
    }

    /// The version of its tables; `None` if no runtime was ever started on it.
    ///
    /// # Errors
    /// `BadMarker` if what stands there is none, or what the substrate says.
    pub fn schema(&self) -> Result<Option<SchemaVersion>> {
        let marker = self.rows().get(&APP_STATE, SchemaVersion::KEY)?;
        marker.map(|marker| SchemaVersion::decode(&marker).map_err(Error::BadMarker)).transpose()
    }

    /// How often a runtime was started on it: the number of the last one.
    ///
    /// # Errors
    /// If the substrate fails or the row is damaged.
    pub fn incarnation(&self) -> Result<u64> {
        let damaged = || Error::damaged("sequences", "a number of eight bytes");
        let Some(row) = self.rows().get(&SEQUENCES, b"incarnation")? else { return Ok(0) };
        Ok(u64::from_le_bytes(<[u8; 8]>::try_from(&*row).map_err(|_| damaged())?))
    }

    /// How many rows a table has; none if there is no such table.
    ///
    /// # Errors
    /// If the substrate fails.
    pub fn count(&self, table: &'static str) -> Result<u64> {
        self.rows().count(&TableName::Borrowed(table), KeyRange::ALL)
    }

    /// Up to `most` messages that wait, of one worker or of all, in the order of their keys, each with its frame.
    ///
    /// # Errors
    /// If the substrate fails or a key is damaged.
    pub fn inbox(&self, worker: Option<WorkerId>, most: usize) -> Result<Vec<(InboxKey, Vec<u8>)>> {
        self.inbox_after(worker, None, most)
    }

    /// As [`inbox`](Self::inbox), of those that come after this one.
    ///
    /// # Errors
    /// As for `inbox`.
    pub fn inbox_after(
        &self,
        worker: Option<WorkerId>,
        after: Option<InboxKey>,
        most: usize,
    ) -> Result<Vec<(InboxKey, Vec<u8>)>> {
        self.of_worker(&INBOX, worker, after, most, |value| Ok(value.to_vec()))
    }

    /// Up to `most` dead letters, of one worker or of all, in the order of their keys.
    ///
    /// # Errors
    /// If the substrate fails or a row is damaged.
    pub fn dead_letters(&self, worker: Option<WorkerId>, most: usize) -> Result<Vec<(InboxKey, DeadLetter)>> {
        self.dead_letters_after(worker, None, most)
    }

    /// As [`dead_letters`](Self::dead_letters), of those that come after this one.
    ///
    /// # Errors
    /// As for `dead_letters`.
    pub fn dead_letters_after(
        &self,
        worker: Option<WorkerId>,
        after: Option<InboxKey>,
        most: usize,
    ) -> Result<Vec<(InboxKey, DeadLetter)>> {
        self.of_worker(&DEAD_LETTER, worker, after, most, DeadLetter::decode)
    }

    /// One dead letter.
    ///
    /// # Errors
    /// If the substrate fails or the row is damaged.
    pub fn dead_letter(&self, key: InboxKey) -> Result<Option<DeadLetter>> {
        self.rows().get(&DEAD_LETTER, &InboxKey::encode(key))?.map(|value| DeadLetter::decode(&value)).transpose()
    }

    fn of_worker<T>(
        &self,
        table: &TableName,
        worker: Option<WorkerId>,
        after: Option<InboxKey>,
        most: usize,
        decode: impl Fn(&[u8]) -> Result<T>,
    ) -> Result<Vec<(InboxKey, T)>> {
        let (from, until) = worker.map_or((Vec::new(), None), inbox_range);
        let from = from.max(after.map_or(Vec::new(), |after| behind(&InboxKey::encode(after))));
        let range = KeyRange { from: &from, until: until.as_deref() };
        self.each(table, range, most, |key, value| Ok((inbox_key(key)?, decode(value)?)))
    }

    /// Up to `most` messages that wait to be delivered outside, oldest first, each with its frame.
    ///
    /// # Errors
    /// If the substrate fails or a key is damaged.
    pub fn outbox(&self, most: usize) -> Result<Vec<(Seq, Vec<u8>)>> {
        self.outbox_after(None, most)
    }

    /// As [`outbox`](Self::outbox), of those that come after this one.
    ///
    /// # Errors
    /// As for `outbox`.
    pub fn outbox_after(&self, after: Option<Seq>, most: usize) -> Result<Vec<(Seq, Vec<u8>)>> {
        let damaged = || Error::damaged("outbox", "a key of eight bytes");
        let from = after.map_or(Vec::new(), |after| behind(&after.0.to_be_bytes()));
        self.each(&OUTBOX, KeyRange::starting(&from), most, |key, value| {
            let seq = <[u8; 8]>::try_from(key).map_err(|_| damaged())?;
            Ok((Seq(u64::from_be_bytes(seq)), value.to_vec()))
        })
    }

    /// Up to `most` timers, earliest first, each with the frame of its message.
    ///
    /// # Errors
    /// If the substrate fails or a key is damaged.
    pub fn timers(&self, most: usize) -> Result<Vec<(TimerKey, Vec<u8>)>> {
        self.timers_after(None, most)
    }

    /// As [`timers`](Self::timers), of those that come after this one.
    ///
    /// # Errors
    /// As for `timers`.
    pub fn timers_after(&self, after: Option<TimerKey>, most: usize) -> Result<Vec<(TimerKey, Vec<u8>)>> {
        let from = after.map_or(Vec::new(), |after| behind(&TimerKey::encode(after)));
        self.each(&TIMERS, KeyRange::starting(&from), most, |key, value| {
            let key = TimerKey::decode(key).map_err(|_| Error::damaged("timers", "a moment and a number"))?;
            Ok((key, value.to_vec()))
        })
    }

    /// Up to `most` leases, in the order of their workers. Their deadlines are moments of a clock that only the runtime has.
    ///
    /// # Errors
    /// If the substrate fails or a row is damaged.
    pub fn leases(&self, most: usize) -> Result<Vec<LeaseRow>> {
        self.leases_after(None, most)
    }

    /// As [`leases`](Self::leases), of those that come after this one.
    ///
    /// # Errors
    /// As for `leases`.
    pub fn leases_after(&self, after: Option<InboxKey>, most: usize) -> Result<Vec<LeaseRow>> {
        let from = after.map_or(Vec::new(), |after| behind(&InboxKey::encode(after)));
        self.each(&LEASES, KeyRange::starting(&from), most, |key, value| {
            // The key is built as that of an inbox: the instance stands where the number of a message would.
            let key = inbox_key(key).map_err(|_| Error::damaged("leases", "the key of a worker and an instance"))?;
            let (lease, messages) = decode_row(value)?;
            Ok(LeaseRow { key, lease, messages })
        })
    }

    pub(crate) fn each<T>(
        &self,
        table: &TableName,
        range: KeyRange<'_>,
        most: usize,
        mut make: impl FnMut(&[u8], &[u8]) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut scan = self.rows().scan(table, range)?;
        let mut found = Vec::new();
        while found.len() < most {
            let Some((key, value)) = scan.next()? else { break };
            found.push(make(&key, &value)?);
        }
        Ok(found)
    }
}

/// The least key behind this one.
fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}
