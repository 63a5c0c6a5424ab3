//! Atomic blocks: code that runs on a snapshot, writes into itself, and commits if what it read still holds.
//!
//! A block has a stack of frames, one for each nesting. A frame has writes and intents; reading looks through the frames from the top
//! and then into the snapshot. A nest that succeeds merges into the frame below, one that fails vanishes; what it read stays
//! observed, because its failure may have decided what came after.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use kauri_wire::{Flags, IntentRef, Message, MessageRef, SchemaVersion, Timestamp, WorkerId};

use crate::dead_letter::BESIDES_FRAME;
use crate::error::{Error, Result};
use crate::hold::{Hold, Renewed};
use crate::keys;
use crate::merge::{Merge, SeenRanges};
use crate::named_lease::{self, Acquired, Released};
use crate::read::{Read, Write};
use crate::runtime::Shared;
use crate::schema::{self, APP_STATE};
use crate::substrate::{Bytes, Change, KeyRange, Limits, Reads, Rows, Seen, SeenRange, TableName, Writes};
use crate::time::Now;

/// How much a block may hold. What a guest asks for is checked against it. Each message of a batch has all of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockLimits {
    /// Nests inside nests: 16.
    pub depth_max: usize,
    /// Messages emitted and timers armed by one block: 65,536.
    pub intents_max: usize,
    /// Bytes of a message's frame: 16 MiB.
    pub frame_bytes_max: usize,
    /// Bytes of keys and values written by one block: 256 MiB.
    pub written_bytes_max: usize,
}

impl Default for BlockLimits {
    fn default() -> Self {
        Self { depth_max: 16, intents_max: 65_536, frame_bytes_max: 16 << 20, written_bytes_max: 256 << 20 }
    }
}

/// What a block is told about the world: it cannot ask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) worker: Option<WorkerId>,
    pub(crate) now: Now,
    pub(crate) incarnation: u64,
    pub(crate) limits: BlockLimits,
    /// What the substrate takes.
    pub(crate) takes: Limits,
}

/// What a block wants to happen with its commit.
#[derive(Clone, Debug)]
pub(crate) enum Wish {
    /// Into the inbox of its worker, or into the outbox if that worker is elsewhere.
    Emit { to: WorkerId, flags: Flags, frame: Vec<u8>, deadline: Option<Timestamp> },
    /// Into the outbox, whoever it is for.
    Publish { flags: Flags, frame: Vec<u8> },
    /// Into the timers.
    Arm { due: Timestamp, flags: Flags, frame: Vec<u8>, deadline: Option<Timestamp> },
}

impl Wish {
    pub(crate) fn flags(&self) -> Flags {
        match self {
            Self::Emit { flags, .. } | Self::Publish { flags, .. } | Self::Arm { flags, .. } => *flags,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Frame {
    pub(crate) writes: Writes,
    pub(crate) wishes: Vec<Wish>,
    written_bytes: usize,
}

/// Code that runs on a snapshot: see [`Runtime::atomic`](crate::Runtime::atomic) and [`Handler`](crate::Handler).
///
/// It reads and writes like a transaction (see [`Read`] and [`Write`]), and nobody sees what it wrote before it commits. It may be
/// run again when something it read has changed meanwhile, so it must do nothing else: what is to happen outside, it
/// [emits](Self::emit).
pub struct Atomic<'a> {
    rows: &'a dyn Rows,
    /// The root frame, and one for each nest.
    frames: Vec<Frame>,
    reads: RefCell<Reads>,
    ranges: SeenRanges,
    setting: Setting,
    /// The lease on the message that is handled.
    hold: Option<(&'a Shared, &'a Hold)>,
}

impl<'a> Atomic<'a> {
    pub(crate) fn new(rows: &'a dyn Rows, setting: Setting) -> Self {
        let (reads, ranges) = (RefCell::default(), RefCell::default());
        Self { rows, frames: vec![Frame::default()], reads, ranges, setting, hold: None }
    }

    /// The same block, for messages that are leased.
    pub(crate) fn holding(self, shared: &'a Shared, hold: &'a Hold) -> Self {
        Self { hold: Some((shared, hold)), ..self }
    }

    /// The present, as it was when the block began.
    #[must_use]
    pub fn now(&self) -> Now {
        self.setting.now
    }

    /// The worker whose message is handled; none in a block that no message began.
    #[must_use]
    pub fn worker(&self) -> Option<WorkerId> {
        self.setting.worker
    }

    /// Runs a block inside this one. If it succeeds, what it wrote and wants becomes this one's; if it fails, it is as if it had
    /// never been. Nothing is committed before the outermost block is.
    ///
    /// # Errors
    /// What the block answers; or `Limit` if blocks are nested too deeply.
    pub fn nest<T, E: From<Error>>(&mut self, block: impl FnOnce(&mut Self) -> Result<T, E>) -> Result<T, E> {
        let (most, depth) = (self.setting.limits.depth_max, self.frames.len());
        if depth > most {
            return Err(limit("nested blocks", most, depth).into());
        }
        self.enter();
        match block(self) {
            Ok(value) => {
                self.merge_to(depth);
                Ok(value)
            }
            Err(error) => {
                self.vanish_to(depth);
                Err(error)
            }
        }
    }

    /// How many frames there are.
    pub(crate) fn depth(&self) -> usize {
        self.frames.len()
    }

    pub(crate) fn enter(&mut self) {
        self.frames.push(Frame::default());
    }

    /// Drops all frames above so many.
    pub(crate) fn vanish_to(&mut self, depth: usize) {
        self.frames.truncate(depth);
    }

    /// Merges all frames above so many into those below.
    pub(crate) fn merge_to(&mut self, depth: usize) {
        assert!(depth > 0, "the root frame stays");
        while self.frames.len() > depth {
            let child = self.frames.pop().expect("there are more than enough");
            let parent = self.top();
            for (table, writes) in child.writes {
                match parent.writes.entry(table) {
                    std::collections::btree_map::Entry::Vacant(vacant) => drop(vacant.insert(writes)),
                    std::collections::btree_map::Entry::Occupied(mut there) => there.get_mut().extend(writes),
                }
            }
            parent.wishes.extend(child.wishes);
            parent.written_bytes += child.written_bytes;
        }
    }

    pub(crate) fn top(&mut self) -> &mut Frame {
        self.frames.last_mut().expect("the root frame is never popped")
    }

    /// Sends a message when the block commits: to the inbox of its worker, or to the outbox if the worker is elsewhere.
    ///
    /// # Errors
    /// If it or its id is too long, or there are too many.
    pub fn emit(&mut self, message: &Message) -> Result<()> {
        self.emit_until(message, None)
    }

    /// As [`emit`](Self::emit); if it has not been begun when the deadline comes, it is buried and not handled.
    ///
    /// # Errors
    /// As for `emit`.
    pub fn emit_until(&mut self, message: &Message, deadline: Option<Timestamp>) -> Result<()> {
        keys::check_message_id(&self.setting.takes, message.id.as_bytes())?;
        self.pass_on(message, deadline)
    }

    /// As [`emit_until`](Self::emit_until), whatever its id: of messages that nobody here named, and that nobody could name otherwise.
    pub(crate) fn pass_on(&mut self, message: &Message, deadline: Option<Timestamp>) -> Result<()> {
        let frame = self.encode(message)?;
        self.wish(Wish::Emit { to: message.to, flags: message.flags, frame, deadline })
    }

    /// Puts a message into the outbox when the block commits, whoever it is for.
    ///
    /// # Errors
    /// As for `emit`.
    pub fn publish(&mut self, message: &Message) -> Result<()> {
        let frame = self.encode(message)?;
        self.wish(Wish::Publish { flags: message.flags, frame })
    }

    /// Sends a message when the block has committed and this moment has come. A moment before the epoch has come already.
    ///
    /// # Errors
    /// As for `emit`.
    pub fn arm(&mut self, due: Timestamp, message: &Message) -> Result<()> {
        keys::check_message_id(&self.setting.takes, message.id.as_bytes())?;
        let frame = self.encode(message)?;
        self.wish(Wish::Arm { due, flags: message.flags, frame, deadline: None })
    }

    /// As [`emit`](Self::emit) or [`arm`](Self::arm), by an intent's frame. It is checked here, not after the commit.
    ///
    /// # Errors
    /// If it is no intent, or as for `emit`.
    pub fn intend(&mut self, frame: &[u8]) -> Result<()> {
        match IntentRef::decode(frame)? {
            IntentRef::Emit { message } => self.wish_frame(message, None),
            IntentRef::Arm { due, message } => self.wish_frame(message, Some(due)),
        }
    }

    fn wish_frame(&mut self, message: MessageRef<'_>, due: Option<Timestamp>) -> Result<()> {
        keys::check_message_id(&self.setting.takes, message.id())?;
        let (to, flags, frame) = (message.to(), message.flags(), message.frame().to_vec());
        self.check_frame(frame.len())?;
        self.wish(match due {
            None => Wish::Emit { to, flags, frame, deadline: None },
            Some(due) => Wish::Arm { due, flags, frame, deadline: None },
        })
    }

    fn encode(&self, message: &Message) -> Result<Vec<u8>> {
        self.check_frame(message.encoded_len())?;
        Ok(message.encode()?)
    }

    fn check_frame(&self, found: usize) -> Result<()> {
        // It must be possible to bury it.
        let room = self.setting.takes.value_bytes_max.saturating_sub(BESIDES_FRAME);
        let most = self.setting.limits.frame_bytes_max.min(room);
        if found > most { Err(limit("bytes of a frame", most, found)) } else { Ok(()) }
    }

    pub(crate) fn wish(&mut self, wish: Wish) -> Result<()> {
        let most = self.setting.limits.intents_max;
        let found = self.own_frames().iter().map(|frame| frame.wishes.len()).sum::<usize>() + 1;
        if found > most {
            return Err(limit("intents of a block", most, found));
        }
        self.top().wishes.push(wish);
        Ok(())
    }

    /// Acquires a lease on a name for this worker, when the block commits: see [`Acquired`]. A worker that has it already renews it.
    ///
    /// # Errors
    /// If the name is longer than a key, the substrate fails or the lease's row is damaged.
    pub fn acquire(&mut self, name: &[u8], term: Duration) -> Result<Acquired> {
        named_lease::acquire(self, name, term)
    }

    /// Gives back a lease on a name, when the block commits.
    ///
    /// # Errors
    /// As for `acquire`.
    pub fn release(&mut self, name: &[u8]) -> Result<Released> {
        named_lease::release(self, name)
    }

    /// Keeps the message that is handled for another term of its lease: for handlers that take longer than
    /// [`Policy::lease`](crate::Policy::lease), where nobody does it for them ([`Policy::renewing`](crate::Policy::renewing)). It takes
    /// effect at once, whatever becomes of the block, and tells whether the message is still this worker's.
    ///
    /// A handler that is too slow and whose lease nobody renews loses its message to another instance, and its commit is refused:
    /// nothing is done twice, but the work was in vain.
    ///
    /// # Errors
    /// If the substrate fails.
    pub fn renew(&mut self) -> Result<Renewed> {
        self.hold.map_or(Ok(Renewed::Unneeded), |(shared, hold)| hold.renew(shared))
    }

    pub(crate) fn setting(&self) -> &Setting {
        &self.setting
    }

    /// Stages a row of any table, the runtime's own included.
    pub(crate) fn stage(&mut self, table: &TableName, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.stage_bytes(table, key.into(), value.map(Bytes::from))
    }

    /// The same, of bytes that are the block's from now on.
    pub(crate) fn stage_bytes(&mut self, table: &TableName, key: Bytes, value: Option<Bytes>) -> Result<()> {
        self.setting.takes.check_row(table, &key, value.as_deref())?;
        let most = self.setting.limits.written_bytes_max;
        let bytes = key.len() + value.as_ref().map_or(0, |value| value.len());
        let found = self.own_frames().iter().map(|frame| frame.written_bytes).sum::<usize>() + bytes;
        if found > most {
            return Err(limit("bytes written by a block", most, found));
        }
        let top = self.top();
        top.written_bytes += bytes;
        let writes = &mut top.writes;
        match writes.get_mut(table) {
            Some(rows) => rows.insert(key, value),
            None => writes.entry(table.clone()).or_default().insert(key, value),
        };
        Ok(())
    }

    /// The frames that the limits are for: where a batch of messages is handled, each has its own, above what those before it left.
    fn own_frames(&self) -> &[Frame] {
        &self.frames[usize::from(self.hold.is_some() && self.frames.len() > 1)..]
    }

    /// Whether all messages of a batch together have come to what one of them may hold.
    pub(crate) fn is_full(&self) -> bool {
        let root = &self.frames[0];
        root.written_bytes >= self.setting.limits.written_bytes_max
            || root.wishes.len() >= self.setting.limits.intents_max
    }

    /// What the block observed and wrote, and what it wants.
    pub(crate) fn into_change(mut self) -> (Change, Vec<Wish>) {
        assert_eq!(self.frames.len(), 1, "every nest has merged or vanished");
        let root = self.frames.pop().expect("the root frame");
        let (reads, ranges) = (self.reads.into_inner(), self.ranges.into_inner());
        let change = Change { base: self.rows.version(), reads, ranges, writes: root.writes, ..Change::default() };
        (change, root.wishes)
    }

    fn staged(&self, table: &TableName, key: &[u8]) -> Option<Option<&[u8]>> {
        let found = self.frames.iter().rev().find_map(|frame| frame.writes.get(table)?.get(key));
        found.map(Option::as_deref)
    }

    /// The value of a key whose row never changes while what was observed holds: so it is not observed itself.
    pub(crate) fn peek(&self, table: &TableName, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        match self.staged(table, key) {
            Some(own) => Ok(own.map(Cow::Borrowed)),
            None => self.rows.get(table, key),
        }
    }

    fn observe(&self, table: &TableName, key: &[u8], value: Option<&[u8]>) {
        let mut reads = self.reads.borrow_mut();
        match reads.get_mut(table) {
            Some(rows) if rows.contains_key(key) => {}
            Some(rows) => drop(rows.insert(key.into(), Seen::of(value))),
            None => drop(reads.entry(table.clone()).or_default().insert(key.into(), Seen::of(value))),
        }
    }

    /// What the block wrote in a range, the newest where a key was written twice.
    fn own_rows(&self, table: &TableName, range: KeyRange<'_>) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
        let until = range.until.map_or(Bound::Unbounded, Bound::Excluded);
        if range.until.is_some_and(|until| range.from >= until) {
            return BTreeMap::new();
        }
        let tables = self.frames.iter().filter_map(|frame| frame.writes.get(table));
        tables
            .flat_map(|rows| rows.range::<[u8], _>((Bound::Included(range.from), until)))
            .map(|(key, value)| (key.to_vec(), value.as_deref().map(<[u8]>::to_vec)))
            .collect()
    }
}

fn limit(of: &'static str, most: usize, found: usize) -> Error {
    Error::Limit { of, most: most as u64, found: found as u64 }
}

impl Read for Atomic<'_> {
    fn row(&self, table: &TableName, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        if let Some(own) = self.staged(table, key) {
            return Ok(own.map(Cow::Borrowed));
        }
        let found = self.rows.get(table, key)?;
        self.observe(table, key, found.as_deref());
        Ok(found)
    }

    fn rows(&self, table: &TableName, range: KeyRange<'_>) -> Result<Merge<'_>> {
        let own = self.own_rows(table, range);
        Ok(Merge::seeing(self.rows.scan(table, range)?, own, &self.ranges, table.clone(), range))
    }

    fn count(&self, table: &TableName, range: KeyRange<'_>) -> Result<u64> {
        let rows = self.rows.count(table, range)?;
        let (from, until) = (range.from.into(), range.until.map(Into::into));
        self.ranges.borrow_mut().push(SeenRange { table: table.clone(), from, until, rows, hash: None });
        let mut count = rows;
        for (key, value) in self.own_rows(table, range) {
            // The count was observed; which of its rows the block wrote over must be, too.
            let before = self.rows.get(table, &key)?;
            self.observe(table, &key, before.as_deref());
            count = count - u64::from(before.is_some()) + u64::from(value.is_some());
        }
        Ok(count)
    }
}

impl Write for Atomic<'_> {
    fn put_row(&mut self, table: &TableName, key: &[u8], value: &[u8]) -> Result<()> {
        check_open(table, key)?;
        self.stage(table, key, Some(value))
    }

    fn remove_row(&mut self, table: &TableName, key: &[u8]) -> Result<()> {
        check_open(table, key)?;
        self.stage(table, key, None)
    }
}

/// Whether blocks may write here.
fn check_open(table: &TableName, key: &[u8]) -> Result<()> {
    if schema::is_reserved(table) || (*table == APP_STATE && key == SchemaVersion::KEY) {
        return Err(Error::Reserved { table: table[..].into() });
    }
    Ok(())
}

impl std::fmt::Debug for Atomic<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Atomic")
            .field("setting", &self.setting)
            .field("depth", &self.frames.len())
            .finish_non_exhaustive()
    }
}
