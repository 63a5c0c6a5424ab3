//! Tables whose rows expire.
//!
//! ```text
//! row:   | 0 | key |                  ->  | expiry u64le | value |
//! due:   | 1 | expiry u64be | key |   ->  nothing
//! ```
//!
//! Both kinds are in one tree, under types that nobody else can name: whoever uses the table as another is refused, and it is dropped as
//! a whole. A row and its due entry are written and removed together. So the front of the due entries is always what expires next,
//! and a sweep needs no checkpoint: it begins there each time, and what was put with an earlier expiry meanwhile is there too.

#[cfg(feature = "watch")]
mod watch;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::marker::PhantomData;

use kauri_wire::{Found, Key, WireError, WireErrorKind};

use crate::error::Result;
use crate::read::{Read, Write};
use crate::scan::Scan;
use crate::table::Table;
use crate::value::Value;

const ROW: u8 = 0;
const DUE: u8 = 1;
const EXPIRY_BYTES: usize = 8;

/// A table each row of which has a moment at which it expires. The moments are numbers that grow, of whatever unit; what time it is is
/// always told.
///
/// From the moment on at which it expires, a row is not there for [`ReadTtl`]. Its place is given back by a
/// [sweep](WriteTtl::sweep), or when it is [met](WriteTtl::get_or_expire).
///
/// ```
/// use kauri_tree::{ReadTtl, Store, TtlTable, WriteTtl};
///
/// const SESSIONS: TtlTable<str, u64> = TtlTable::new("sessions");
/// let store = Store::in_memory()?;
/// let mut txn = store.begin();
/// txn.put_until(&SESSIONS, "ann", 7, 1_000)?;
/// txn.put_until(&SESSIONS, "bob", 8, 2_000)?;
/// assert_eq!(txn.get_live(&SESSIONS, "ann", 999)?, Some(7));
/// assert_eq!(txn.get_live(&SESSIONS, "ann", 1_000)?, None);
/// assert_eq!(txn.count_live(&SESSIONS, 1_000)?, 1);
///
/// let swept = txn.sweep(&SESSIONS, 1_000, 100)?;
/// assert_eq!((swept.rows, swept.is_done), (1, true));
/// # Ok::<(), kauri_tree::Error>(())
/// ```
pub struct TtlTable<K: ?Sized, V: ?Sized> {
    rows: Table<Entry<K>, Timed<V>>,
}

impl<K: ?Sized, V: ?Sized> TtlTable<K, V> {
    /// The table of this name.
    ///
    /// ```
    /// use kauri_tree::{ReadTtl, Store, TtlTable};
    ///
    /// const CODES: TtlTable<u64, str> = TtlTable::new("codes");
    /// assert_eq!(Store::in_memory()?.snapshot().get_live(&CODES, 7, 0)?, None); // the first write makes it
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { rows: Table::new(name) }
    }

    /// The table of a name that is known only when the program runs.
    ///
    /// ```
    /// use kauri_tree::{ReadTtl, Store, TtlTable, WriteTtl};
    ///
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// let of = |shop: &str| TtlTable::<str, u64>::named(format!("{shop}/sessions"));
    /// txn.put_until(&of("north"), "ann", 7, 1_000)?;
    /// assert_eq!(txn.get_live(&of("north"), "ann", 0)?, Some(7));
    /// assert_eq!(txn.get_live(&of("south"), "ann", 0)?, None);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub const fn named(name: String) -> Self {
        Self { rows: Table::named(name) }
    }

    /// Its name.
    ///
    /// ```
    /// use kauri_tree::{Error, Read, Store, Table, TtlTable, WriteTtl};
    ///
    /// const SESSIONS: TtlTable<str, u64> = TtlTable::new("sessions");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.put_until(&SESSIONS, "ann", 7, 1_000)?;
    /// let other: Table<str, u64> = Table::named(SESSIONS.name().to_owned());
    /// assert!(matches!(txn.get(&other, "ann"), Err(Error::OtherTypes { .. }))); // nobody breaks it by accident
    /// assert!(txn.drop_table(SESSIONS.name())?);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        self.rows.name()
    }
}

impl<K: ?Sized, V: ?Sized> Clone for TtlTable<K, V> {
    fn clone(&self) -> Self {
        Self { rows: self.rows.clone() }
    }
}

impl<K: ?Sized, V: ?Sized> fmt::Debug for TtlTable<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TtlTable({:?})", self.name())
    }
}

/// The key of a row or of a due entry, as bytes.
struct Entry<K: ?Sized>(PhantomData<K>);

impl<K: Key + ?Sized> Key for Entry<K> {
    type Ref<'a> = &'a [u8];
    type View<'a> = &'a [u8];
    const BYTEWISE: bool = K::BYTEWISE;

    fn name() -> Cow<'static, str> {
        Cow::Owned(format!("expiring {}", K::name()))
    }

    fn encode_into(key: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(key);
    }

    fn with_bytes<T>(key: &[u8], use_bytes: impl FnOnce(&[u8]) -> T) -> T {
        use_bytes(key)
    }

    fn decode(bytes: &[u8]) -> std::result::Result<&[u8], WireError> {
        Ok(bytes)
    }

    fn compare(left: &[u8], right: &[u8]) -> Ordering {
        match (left, right) {
            ([ROW, left @ ..], [ROW, right @ ..]) => K::compare(left, right),
            _ => left.cmp(right),
        }
    }
}

/// The value of a row with its expiry before it, as bytes.
struct Timed<V: ?Sized>(PhantomData<V>);

impl<V: Value + ?Sized> Value for Timed<V> {
    type Ref<'a> = &'a [u8];
    type View<'a> = Cow<'a, [u8]>;

    fn name() -> Cow<'static, str> {
        V::name()
    }

    fn with_bytes<T>(value: &[u8], use_bytes: impl FnOnce(&[u8]) -> T) -> T {
        use_bytes(value)
    }

    fn decode(bytes: Cow<'_, [u8]>) -> Result<Cow<'_, [u8]>> {
        Ok(bytes)
    }
}

fn row_key<K: Key + ?Sized>(key: K::Ref<'_>) -> Vec<u8> {
    let mut bytes = vec![ROW];
    K::encode_into(key, &mut bytes);
    bytes
}

/// The due entry of the row with this key.
fn due_key(row: &[u8], expiry: u64) -> Vec<u8> {
    [&[DUE], &expiry.to_be_bytes()[..], &row[1..]].concat()
}

/// What a due entry is about: the key of the row, and when it expires.
fn due_row(due: &[u8]) -> Option<(Vec<u8>, u64)> {
    let (expiry, key) = due.get(1..)?.split_first_chunk::<EXPIRY_BYTES>()?;
    Some(([&[ROW], key].concat(), u64::from_be_bytes(*expiry)))
}

/// Behind all due entries of this moment.
fn due_behind(moment: u64) -> Vec<u8> {
    match moment.checked_add(1) {
        Some(next) => [&[DUE], &next.to_be_bytes()[..]].concat(),
        None => vec![DUE + 1],
    }
}

/// When a row expires.
fn expiry(value: &[u8]) -> Result<u64> {
    let found = Found::Length(value.len() as u64);
    let expected = "a value behind the moment at which it expires";
    let wrong = WireError { at: 0, expected, found, kind: WireErrorKind::Format };
    Ok(u64::from_le_bytes(*value.first_chunk().ok_or(wrong)?))
}

fn without_expiry(value: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    match value {
        Cow::Borrowed(value) => Cow::Borrowed(value.get(EXPIRY_BYTES..).unwrap_or_default()),
        Cow::Owned(mut value) => {
            value.drain(..EXPIRY_BYTES.min(value.len()));
            Cow::Owned(value)
        }
    }
}

/// Reading rows that expire.
///
/// ```
/// use kauri_tree::{ReadTtl, Store, TtlTable, WriteTtl};
///
/// const SESSIONS: TtlTable<str, u64> = TtlTable::new("sessions");
///
/// /// The time is whatever the caller says: a clock's, or one that a test makes up.
/// fn is_signed_in(from: &impl ReadTtl, who: &str, now: u64) -> kauri_tree::Result<bool> {
///     Ok(from.get_live(&SESSIONS, who, now)?.is_some())
/// }
///
/// let store = Store::in_memory()?;
/// let mut txn = store.begin();
/// txn.put_until(&SESSIONS, "ann", 7, 1_000)?;
/// txn.commit()?;
/// assert!(is_signed_in(&store.snapshot(), "ann", 999)?);
/// assert!(!is_signed_in(&store.snapshot(), "ann", 1_000)?);
/// # Ok::<(), kauri_tree::Error>(())
/// ```
pub trait ReadTtl: Read {
    /// The value of a key; `None` if there is no such row, or it has expired now.
    ///
    /// ```
    /// use kauri_tree::{ReadTtl, Store, TtlTable, WriteTtl};
    ///
    /// const SESSIONS: TtlTable<str, str> = TtlTable::new("sessions");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.put_until(&SESSIONS, "ann", "admin", 1_000)?;
    /// assert_eq!(txn.get_live(&SESSIONS, "ann", 999)?.as_deref(), Some("admin"));
    /// assert_eq!(txn.get_live(&SESSIONS, "ann", 1_000)?, None); // the moment itself is too late
    /// assert_eq!(txn.get_live(&SESSIONS, "bob", 0)?, None);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the table was made for other types, or the store is damaged.
    fn get_live<K: Key + ?Sized, V: Value + ?Sized>(
        &self,
        table: &TtlTable<K, V>,
        key: K::Ref<'_>,
        now: u64,
    ) -> Result<Option<V::View<'_>>> {
        let Some(value) = self.get(&table.rows, &row_key::<K>(key))? else { return Ok(None) };
        match expiry(&value)? {
            expiry if expiry <= now => Ok(None),
            _ => Ok(Some(V::decode(without_expiry(value))?)),
        }
    }

    /// When the row with a key expires or has expired; `None` if there is no such row.
    ///
    /// ```
    /// use kauri_tree::{ReadTtl, Store, TtlTable, WriteTtl};
    ///
    /// const SESSIONS: TtlTable<str, u64> = TtlTable::new("sessions");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.put_until(&SESSIONS, "ann", 7, 1_000)?;
    /// let until = txn.expiry(&SESSIONS, "ann")?.expect("it is there"); // it need not be told the time
    /// txn.put_until(&SESSIONS, "ann", 7, until + 500)?; // half a second longer
    /// assert_eq!(txn.get_live(&SESSIONS, "ann", 1_499)?, Some(7));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the table was made for other types, or the store is damaged.
    fn expiry<K: Key + ?Sized, V: Value + ?Sized>(
        &self,
        table: &TtlTable<K, V>,
        key: K::Ref<'_>,
    ) -> Result<Option<u64>> {
        self.get(&table.rows, &row_key::<K>(key))?.map(|value| expiry(&value)).transpose()
    }

    /// When the row expires that does so first, or has done so; `None` if there are no rows. Until then there is nothing to sweep.
    ///
    /// ```
    /// use kauri_tree::{ReadTtl, Store, TtlTable, WriteTtl};
    ///
    /// const SESSIONS: TtlTable<str, u64> = TtlTable::new("sessions");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// txn.put_until(&SESSIONS, "bob", 8, 2_000)?;
    /// txn.put_until(&SESSIONS, "ann", 7, 1_000)?;
    /// assert_eq!(txn.first_expiry(&SESSIONS)?, Some(1_000));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the table was made for other types, or the store is damaged.
    fn first_expiry<K: Key + ?Sized, V: Value + ?Sized>(&self, table: &TtlTable<K, V>) -> Result<Option<u64>> {
        let mut due = self.scan(&table.rows)?.at_least(&[DUE]);
        Ok(due.next()?.and_then(|(due, _)| due_row(due)).map(|(_, expires)| expires))
    }

    /// How many rows have not expired now. It costs little more than a [`get`](Read::get), for any number.
    ///
    /// ```
    /// use kauri_tree::{ReadTtl, Store, TtlTable, WriteTtl};
    ///
    /// const SESSIONS: TtlTable<u64, str> = TtlTable::new("sessions");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// for number in 0..100 {
    ///     txn.put_until(&SESSIONS, number, "ann", number * 10)?;
    /// }
    /// assert_eq!(txn.count_live(&SESSIONS, 495)?, 50);
    /// txn.sweep(&SESSIONS, 495, 1_000)?;
    /// assert_eq!(txn.count_live(&SESSIONS, 495)?, 50); // swept or not, what has expired does not count
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the table was made for other types, or the store is damaged.
    fn count_live<K: Key + ?Sized, V: Value + ?Sized>(&self, table: &TtlTable<K, V>, now: u64) -> Result<u64> {
        self.scan(&table.rows)?.at_least(&due_behind(now)).count()
    }

    /// The rows that have not expired now, in order of their keys.
    ///
    /// ```
    /// use kauri_tree::{ReadTtl, Store, TtlTable, WriteTtl};
    ///
    /// const OFFERS: TtlTable<str, u64> = TtlTable::new("offers");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// for (fruit, cents, until) in [("apples", 90, 20), ("pears", 120, 10), ("plums", 70, 30)] {
    ///     txn.put_until(&OFFERS, fruit, cents, until)?;
    /// }
    /// let cents: kauri_tree::Result<u64> = txn.scan_live(&OFFERS, 10)?.map(|_, cents| cents).sum();
    /// assert_eq!(cents?, 160); // without the pears
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the table was made for other types.
    fn scan_live<K: Key + ?Sized, V: Value + ?Sized>(
        &self,
        table: &TtlTable<K, V>,
        now: u64,
    ) -> Result<LiveRows<'_, K, V>> {
        Ok(LiveRows { scan: self.scan(&table.rows)?.below(&[DUE]), now })
    }
}

impl<R: Read> ReadTtl for R {}

/// What a [sweep](WriteTtl::sweep) did.
///
/// ```
/// use kauri_tree::{Store, Swept, TtlTable, WriteTtl};
///
/// const SESSIONS: TtlTable<u64, str> = TtlTable::new("sessions");
/// # let store = Store::in_memory()?;
/// # let mut txn = store.begin();
/// for number in 0..5 {
///     txn.put_until(&SESSIONS, number, "ann", number)?;
/// }
/// assert_eq!(txn.sweep(&SESSIONS, 3, 3)?, Swept { rows: 3, is_done: false });
/// assert_eq!(txn.sweep(&SESSIONS, 3, 3)?, Swept { rows: 1, is_done: true }); // the last one lives until 4
/// # Ok::<(), kauri_tree::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Swept {
    /// How many rows it removed.
    pub rows: u64,
    /// Nothing else has expired by now.
    pub is_done: bool,
}

/// Writing rows that expire.
///
/// ```
/// use kauri_tree::{Store, TtlTable, WriteTtl};
///
/// const TRIES: TtlTable<str, u32> = TtlTable::new("tries");
///
/// /// At most three tries in a minute; transactions and changes both can be asked.
/// fn may_try(txn: &mut impl WriteTtl, who: &str, now: u64) -> kauri_tree::Result<bool> {
///     let tries = txn.get_or_expire(&TRIES, who, now)?.unwrap_or(0);
///     let until = txn.expiry(&TRIES, who)?.unwrap_or(now + 60_000);
///     txn.put_until(&TRIES, who, tries + 1, until)?;
///     Ok(tries < 3)
/// }
///
/// let store = Store::in_memory()?;
/// let mut txn = store.begin();
/// for now in [0, 10, 20] {
///     assert!(may_try(&mut txn, "ann", now)?);
/// }
/// assert!(!may_try(&mut txn, "ann", 30)?);
/// assert!(may_try(&mut txn, "ann", 60_000)?);
/// # Ok::<(), kauri_tree::Error>(())
/// ```
pub trait WriteTtl: Write + ReadTtl {
    /// Writes a row that is there until a moment; what was there before is replaced, with its expiry. A table that is missing is made.
    ///
    /// ```
    /// use kauri_tree::{ReadTtl, Store, TtlTable, WriteTtl};
    ///
    /// const SESSIONS: TtlTable<str, u64> = TtlTable::new("sessions");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.put_until(&SESSIONS, "ann", 7, 1_000)?;
    /// txn.put_until(&SESSIONS, "ann", 8, 500)?; // instead of the other, and not as long
    /// assert_eq!(txn.get_live(&SESSIONS, "ann", 0)?, Some(8));
    /// assert_eq!(txn.get_live(&SESSIONS, "ann", 500)?, None);
    /// txn.put_until(&SESSIONS, "bob", 9, u64::MAX)?; // for ever
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the key, with nine bytes more, or the value is too long; the table was made for other types; or the store is full or
    /// damaged.
    fn put_until<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &TtlTable<K, V>,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        expires: u64,
    ) -> Result<()> {
        let row = row_key::<K>(key);
        let before = self.expiry(table, key)?;
        if before != Some(expires) {
            // First, since it has the longest key: what is refused is refused before anything is written.
            self.put(&table.rows, &due_key(&row, expires), &[])?;
        }
        V::with_bytes(value, |value| self.put(&table.rows, &row, &[&expires.to_le_bytes(), value].concat()))?;
        if let Some(before) = before.filter(|before| *before != expires && !planted!(KeepOldExpiry)) {
            self.remove(&table.rows, &due_key(&row, before))?;
        }
        Ok(())
    }

    /// Removes a row, expired or not, and tells whether there was one.
    ///
    /// ```
    /// use kauri_tree::{ReadTtl, Store, TtlTable, WriteTtl};
    ///
    /// const SESSIONS: TtlTable<str, u64> = TtlTable::new("sessions");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.put_until(&SESSIONS, "ann", 7, 1_000)?;
    /// assert!(txn.remove_expiring(&SESSIONS, "ann")?); // she signs out
    /// assert!(!txn.remove_expiring(&SESSIONS, "ann")?);
    /// assert_eq!(txn.first_expiry(&SESSIONS)?, None); // nothing is left to be swept
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the table was made for other types, or the store is full or damaged.
    fn remove_expiring<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &TtlTable<K, V>,
        key: K::Ref<'_>,
    ) -> Result<bool> {
        let Some(expires) = self.expiry(table, key)? else { return Ok(false) };
        let row = row_key::<K>(key);
        self.remove(&table.rows, &due_key(&row, expires))?;
        self.remove(&table.rows, &row)
    }

    /// The value of a key; if the row has expired now, it is removed.
    ///
    /// ```
    /// use kauri_tree::{ReadTtl, Store, TtlTable, WriteTtl};
    ///
    /// const SESSIONS: TtlTable<str, u64> = TtlTable::new("sessions");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// txn.put_until(&SESSIONS, "ann", 7, 1_000)?;
    /// assert_eq!(txn.get_or_expire(&SESSIONS, "ann", 10)?, Some(7));
    /// assert_eq!(txn.get_or_expire(&SESSIONS, "ann", 1_010)?, None);
    /// assert_eq!(txn.expiry(&SESSIONS, "ann")?, None); // there is nothing left of it
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`remove_expiring`](Self::remove_expiring).
    fn get_or_expire<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &TtlTable<K, V>,
        key: K::Ref<'_>,
        now: u64,
    ) -> Result<Option<V::View<'_>>> {
        if self.expiry(table, key)?.is_some_and(|expires| expires <= now) {
            self.remove_expiring(table, key)?;
            return Ok(None);
        }
        self.get_live(table, key, now)
    }

    /// Removes rows that have expired now, those that did so first first, and at most so many. If it is not done, the next sweep goes on;
    /// one that comes later misses nothing, whatever was put meanwhile.
    ///
    /// ```
    /// use kauri_tree::{Store, TtlTable, WriteTtl};
    ///
    /// const SESSIONS: TtlTable<u32, str> = TtlTable::new("sessions");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// for number in 0..250 {
    ///     txn.put_until(&SESSIONS, number, "ann", u64::from(number))?;
    /// }
    /// txn.commit()?;
    /// loop {
    ///     let mut txn = store.begin();
    ///     let swept = txn.sweep(&SESSIONS, 1_000, 100)?; // so nobody waits long for the turn
    ///     txn.commit()?;
    ///     if swept.is_done {
    ///         break;
    ///     }
    /// }
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`remove_expiring`](Self::remove_expiring).
    fn sweep<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &TtlTable<K, V>,
        now: u64,
        rows_max: usize,
    ) -> Result<Swept> {
        let (mut due, mut is_done) = (Vec::new(), true);
        let mut expired = self.scan(&table.rows)?.at_least(&[DUE]).below(&due_behind(now));
        while let Some((entry, _)) = expired.next()? {
            if due.len() == rows_max {
                is_done = false;
                break;
            }
            due.push(entry.to_vec());
        }
        drop(expired);
        let mut rows = 0;
        for entry in due {
            self.remove(&table.rows, &entry)?;
            let Some((row, expires)) = due_row(&entry) else { continue };
            // A put that failed half-way may have left an entry that is about no row, or about one that expires later.
            let found = self.get(&table.rows, &row)?.map(|value| expiry(&value)).transpose()?;
            if found == Some(expires) && !planted!(SweepEntryOnly) {
                rows += u64::from(self.remove(&table.rows, &row)?);
            }
        }
        Ok(Swept { rows, is_done })
    }
}

impl<W: Write> WriteTtl for W {}

/// The rows of a [`TtlTable`] that have not expired, in order of their keys.
///
/// ```
/// use kauri_tree::{ReadTtl, Store, TtlTable, WriteTtl};
///
/// const SESSIONS: TtlTable<str, u64> = TtlTable::new("sessions");
/// let store = Store::in_memory()?;
/// let mut txn = store.begin();
/// for (who, expires) in [("ann", 100), ("bob", 20), ("cat", 300)] {
///     txn.put_until(&SESSIONS, who, 1, expires)?;
/// }
/// let live: Result<Vec<String>, _> = txn.scan_live(&SESSIONS, 50)?.map(|who, _| who.to_owned()).collect();
/// assert_eq!(live?, ["ann", "cat"]);
/// assert_eq!(txn.scan_live(&SESSIONS, 50)?.from("b").until("c").map(|_, _| ()).count(), 0);
/// # Ok::<(), kauri_tree::Error>(())
/// ```
pub struct LiveRows<'a, K: ?Sized, V: ?Sized> {
    scan: Scan<'a, Entry<K>, Timed<V>>,
    now: u64,
}

impl<K: Key + ?Sized, V: Value + ?Sized> LiveRows<'_, K, V> {
    /// Only rows whose key is not less than this.
    ///
    /// ```
    /// use kauri_tree::{ReadTtl, Store, TtlTable, WriteTtl};
    ///
    /// const SEATS: TtlTable<u32, str> = TtlTable::new("seats"); // held until a moment
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// for (seat, until) in [(11, 50), (12, 50), (20, 10), (21, 50)] {
    ///     txn.put_until(&SEATS, seat, "ann", until)?;
    /// }
    /// let held: Result<Vec<u32>, _> = txn.scan_live(&SEATS, 30)?.from(12).map(|seat, _| seat).collect();
    /// assert_eq!(held?, [12, 21]);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub fn from(self, key: K::Ref<'_>) -> Self {
        Self { scan: self.scan.at_least(&row_key::<K>(key)), ..self }
    }

    /// Only rows whose key is less than this.
    ///
    /// ```
    /// use kauri_tree::{ReadTtl, Store, TtlTable, WriteTtl};
    ///
    /// const SEATS: TtlTable<u32, str> = TtlTable::new("seats");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// for seat in [11, 12, 20] {
    ///     txn.put_until(&SEATS, seat, "ann", 50)?;
    /// }
    /// assert_eq!(txn.scan_live(&SEATS, 30)?.until(20).map(|_, _| ()).count(), 2); // without the 20 itself
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub fn until(self, key: K::Ref<'_>) -> Self {
        Self { scan: self.scan.below(&row_key::<K>(key)), ..self }
    }

    /// An iterator over what `make` makes of each row; it ends after an error of the store.
    ///
    /// ```
    /// use kauri_tree::{ReadTtl, Store, TtlTable, WriteTtl};
    ///
    /// const OFFERS: TtlTable<str, u64> = TtlTable::new("offers");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.put_until(&OFFERS, "apples", 90, 20)?;
    /// txn.put_until(&OFFERS, "pears", 120, 10)?;
    /// let signs: Result<Vec<String>, _> = txn.scan_live(&OFFERS, 15)?.map(|fruit, cents| format!("{fruit} {cents}")).collect();
    /// assert_eq!(signs?, ["apples 90"]);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    pub fn map<T>(self, mut make: impl FnMut(K::View<'_>, V::View<'_>) -> T) -> impl Iterator<Item = Result<T>> {
        let Self { scan, now } = self;
        let make = move |key: &[u8], value: Cow<'_, [u8]>| -> Result<Option<T>> {
            if expiry(&value)? <= now {
                return Ok(None);
            }
            let key = key.get(1..).unwrap_or_default();
            Ok(Some(make(K::decode(key)?, V::decode(without_expiry(value))?)))
        };
        scan.map(make).filter_map(|made| made.flatten().transpose())
    }
}

impl<K: ?Sized, V: ?Sized> fmt::Debug for LiveRows<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveRows").field("scan", &self.scan).field("now", &self.now).finish()
    }
}
