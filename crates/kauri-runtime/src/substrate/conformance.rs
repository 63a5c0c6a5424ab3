//! What every substrate must do, in one suite: call it with whatever makes an empty one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{
    Append, Change, Direction, Early, KeyRange, Posted, Rows, Seen, SeenRange, Signal, Substrate, TableName, Verdict,
};
use super::{ModelSubstrate, change::RowsHash, prefix_end};
use crate::time::Chance;

const FRUIT: TableName = TableName::Borrowed("fruit");
const STOCK: TableName = TableName::Borrowed("stock");

/// One thing that a substrate must do.
type Case<S> = fn(&S) -> Check<'static>;
type Check<'a> = Result<(), Box<dyn std::error::Error + 'a>>;

/// Tries a substrate in every way the runtime relies on, `rounds` random histories against [`ModelSubstrate`] included. Each time
/// `make` must give an empty one.
///
/// # Errors
/// Says what it did that it should not.
pub fn conformance<S: Substrate>(make: impl Fn() -> S, rounds: u64) -> Result<(), String> {
    let cases: [(&str, Case<S>); 17] = [
        ("a change is applied whole", applied_whole),
        ("a snapshot never changes", snapshot_stays),
        ("reads that changed are conflicts", reads_conflict),
        ("a value put again is no conflict", same_value_again),
        ("rows that appear in a range are conflicts", phantoms_conflict),
        ("counts that changed are conflicts", counts_conflict),
        ("numbers are never used twice", numbers_grow),
        ("scans go both ways until they meet", scans_meet),
        ("ranges are cut out whole, and counted", ranges_are_cut),
        ("watchers of what changed are woken", watchers_wake),
        ("what was committed early is its maker's, then everybody's", early_is_seen),
        ("an early commit conflicts like any other", early_conflicts),
        ("a phantom is in the way of an early commit", early_phantoms_conflict),
        ("what was handed in is committed, told and seen", posted_is_seen),
        ("what was handed in conflicts like any other", posted_conflicts),
        ("a change that observed much is compared as one that observed little", much_is_compared),
        ("what is longer than it takes is refused whole, and harms nobody", long_is_refused),
    ];
    for (name, case) in cases {
        case(&make()).map_err(|error| format!("{name}: {error}"))?;
    }
    (0..rounds).try_for_each(|seed| against_model(&make(), seed).map_err(|error| format!("seed {seed}: {error}")))
}

fn check(holds: bool, claim: impl Into<String>) -> Check<'static> {
    if holds { Ok(()) } else { Err(claim.into().into()) }
}

fn put(key: &str, value: &str) -> Change {
    let mut change = Change::default();
    change.put(FRUIT, key.as_bytes(), value);
    change
}

fn apply(substrate: &dyn Substrate, change: &Change) -> Check<'static> {
    match substrate.commit(&Arc::new(change.clone()))? {
        Verdict::Committed(_) => Ok(()),
        Verdict::Conflict(conflict) => Err(format!("expected a commit, found: {conflict}").into()),
    }
}

/// The change must be refused, for this key, and leave nothing.
fn refuse(substrate: &dyn Substrate, change: &Change, key: &str) -> Check<'static> {
    refuse_in(substrate, change, (&FRUIT, key))
}

fn refuse_in(substrate: &dyn Substrate, change: &Change, (table, key): (&TableName, &str)) -> Check<'static> {
    let before = contents(&*substrate.snapshot()?)?;
    match substrate.commit(&Arc::new(change.clone()))? {
        Verdict::Committed(_) => return Err("expected a conflict, found a commit".into()),
        Verdict::Conflict(conflict) => {
            let is_it = *conflict.table == **table && &*conflict.key == key.as_bytes();
            check(is_it, format!("another key: {conflict}"))?;
        }
    }
    check(contents(&*substrate.snapshot()?)? == before, "a refused change left something")
}

fn applied_whole<S: Substrate>(substrate: &S) -> Check<'static> {
    let mut change = put("apple", "12");
    change.put(STOCK, *b"shelf", *b"3");
    apply(substrate, &change)?;
    let mut change = put("pear", "5");
    change.remove(FRUIT, *b"apple");
    change.remove(FRUIT, *b"never there");
    apply(substrate, &change)?;
    let rows = substrate.snapshot()?;
    check(rows.get(&FRUIT, b"apple")?.is_none(), "a removed row is there")?;
    check(rows.get(&FRUIT, b"pear")?.as_deref() == Some(b"5"), "a row that was put is not there")?;
    check(rows.get(&STOCK, b"shelf")?.as_deref() == Some(b"3"), "a row of another table is not there")?;
    check(rows.tables()? == ["fruit", "stock"], "expected the tables fruit and stock")
}

fn snapshot_stays<S: Substrate>(substrate: &S) -> Check<'static> {
    apply(substrate, &put("apple", "12"))?;
    let before = substrate.snapshot()?;
    apply(substrate, &put("apple", "13"))?;
    check(before.get(&FRUIT, b"apple")?.as_deref() == Some(b"12"), "a snapshot changed")?;
    check(substrate.snapshot()?.get(&FRUIT, b"apple")?.as_deref() == Some(b"13"), "a later one did not")
}

fn reads_conflict<S: Substrate>(substrate: &S) -> Check<'static> {
    let long = "x".repeat(5000);
    apply(substrate, &put("apple", "12"))?;
    apply(substrate, &put("long", &long))?;
    let base = substrate.snapshot()?.version();
    let observing = |key: &str, seen: Seen| {
        let mut change = put("written", "yes");
        change.base = base;
        change.expect(FRUIT, key.as_bytes(), seen);
        change
    };
    let good = [
        ("apple", Seen::of(Some(b"12"))),
        ("apple", Seen::Present),
        ("long", Seen::of(Some(long.as_bytes()))),
        ("pear", Seen::of(None)),
    ];
    for (key, seen) in &good {
        apply(substrate, &observing(key, seen.clone()))?;
    }
    apply(substrate, &put("apple", "13"))?;
    apply(substrate, &put("long", &"y".repeat(5000)))?;
    apply(substrate, &put("pear", ""))?;
    for (key, seen) in &good {
        match seen {
            Seen::Present => apply(substrate, &observing(key, seen.clone()))?,
            _ => refuse(substrate, &observing(key, seen.clone()), key)?,
        }
    }
    let mut gone = Change::default();
    gone.remove(FRUIT, *b"apple");
    apply(substrate, &gone)?;
    refuse(substrate, &observing("apple", Seen::Present), "apple")
}

fn same_value_again<S: Substrate>(substrate: &S) -> Check<'static> {
    apply(substrate, &put("apple", "12"))?;
    let mut change = put("written", "yes");
    change.base = substrate.snapshot()?.version();
    change.expect(FRUIT, *b"apple", Seen::of(Some(b"12")));
    apply(substrate, &put("apple", "12"))?;
    apply(substrate, &change)
}

/// What a scan of a range saw.
fn seen_range(rows: &dyn Rows, range: KeyRange<'_>, direction: Direction) -> crate::Result<SeenRange> {
    let mut hash = RowsHash::default();
    let mut scan = rows.scan(&FRUIT, range)?;
    while let Some((key, value)) = match direction {
        Direction::Forward => scan.next()?,
        Direction::Backward => scan.previous()?,
    } {
        hash.add(&key, &value);
    }
    let (from, until) = (range.from.into(), range.until.map(Into::into));
    Ok(SeenRange { table: FRUIT, from, until, rows: hash.rows(), hash: Some((direction, hash.finish())) })
}

fn phantoms_conflict<S: Substrate>(substrate: &S) -> Check<'static> {
    for direction in [Direction::Forward, Direction::Backward] {
        for (key, value, is_conflict) in [
            ("b", "new", true),
            ("c", "changed", true),
            ("d", "", true),
            ("e", "beyond", false),
            ("a", "before", false),
        ] {
            for key in ["a", "b", "e"] {
                let mut clear = put("c", "3");
                clear.put(FRUIT, *b"d", *b"4");
                clear.remove(FRUIT, key.as_bytes());
                apply(substrate, &clear)?;
            }
            let range = KeyRange { from: b"b", until: Some(b"e") };
            let rows = substrate.snapshot()?;
            let mut change = put("written", "yes");
            change.base = rows.version();
            change.ranges.push(seen_range(&*rows, range, direction)?);
            drop(rows);
            let mut other = put(key, value);
            if value.is_empty() {
                other.remove(FRUIT, key.as_bytes());
            }
            apply(substrate, &other)?;
            if is_conflict { refuse(substrate, &change, "b")? } else { apply(substrate, &change)? }
        }
    }
    Ok(())
}

fn counts_conflict<S: Substrate>(substrate: &S) -> Check<'static> {
    apply(substrate, &put("apple", "12"))?;
    let rows = substrate.snapshot()?.count(&FRUIT, KeyRange::ALL)?;
    let mut change = put("apple", "13");
    change.ranges.push(SeenRange { table: FRUIT, from: super::Bytes::default(), until: None, rows, hash: None });
    apply(substrate, &put("apple", "another"))?;
    apply(substrate, &change)?;
    apply(substrate, &put("pear", "5"))?;
    refuse(substrate, &change, "")
}

fn append(prefix: &[u8], value: &str) -> Append {
    let also = vec![(STOCK, value.into())];
    Append { table: FRUIT, prefix: prefix.into(), sequence: prefix.into(), value: value.into(), also }
}

fn numbers_grow<S: Substrate>(substrate: &S) -> Check<'static> {
    let numbers = |appends: Vec<Append>| match substrate.commit(&Change { appends, ..Change::default() }.into()) {
        Ok(Verdict::Committed(committed)) => Ok(committed.appended),
        other => Err(format!("expected a commit, found {other:?}")),
    };
    check(numbers(vec![append(b"x", "1"), append(b"y", "1"), append(b"x", "2")])? == [1, 1, 2], "not 1, 1, 2")?;
    let mut change = Change::default();
    for seq in 1_u64..=2 {
        change.remove(FRUIT, [&b"x"[..], &seq.to_be_bytes()].concat());
    }
    apply(substrate, &change)?;
    check(numbers(vec![append(b"x", "3")])? == [3], "a number was used twice")?;
    let rows = substrate.snapshot()?;
    let key = [&b"x"[..], &3_u64.to_be_bytes()].concat();
    check(rows.get(&FRUIT, &key)?.as_deref() == Some(b"3"), "an appended row is not there")?;
    check(rows.get(&STOCK, &key)?.as_deref() == Some(b"3"), "nor is the row beside it")
}

fn scans_meet<S: Substrate>(substrate: &S) -> Check<'static> {
    for key in ["a", "b", "c", "d", "e"] {
        apply(substrate, &put(key, key))?;
    }
    let rows = substrate.snapshot()?;
    let mut scan = rows.scan(&FRUIT, KeyRange { from: b"b", until: Some(b"e") })?;
    check(scan.next()?.is_some_and(|row| &*row.0 == b"b"), "expected b in front")?;
    check(scan.previous()?.is_some_and(|row| &*row.0 == b"d"), "expected d at the back")?;
    check(scan.next()?.is_some_and(|row| &*row.0 == b"c"), "expected c in front")?;
    check(scan.previous()?.is_none() && scan.next()?.is_none(), "the ends met")?;
    let crossed = KeyRange { from: b"d", until: Some(b"b") };
    check(
        rows.scan(&FRUIT, crossed)?.next()?.is_none() && rows.count(&FRUIT, crossed)? == 0,
        "a crossed range is empty",
    )?;
    check(rows.count(&TableName::Borrowed("no such table"), KeyRange::ALL)? == 0, "a missing table is empty")
}

fn watchers_wake<S: Substrate>(substrate: &S) -> Check<'static> {
    let signals = [(b"ap", true), (b"pe", false)].map(|(prefix, wakes)| {
        let signal = Arc::new(Signal::default());
        substrate.watch("fruit", prefix, &signal);
        (signal, wakes)
    });
    let everything = Arc::new(Signal::default());
    substrate.watch("fruit", b"", &everything);
    apply(substrate, &put("apple", "12"))?;
    for (signal, wakes) in &signals {
        check((signal.count() > 0) == *wakes, "the wrong watcher was woken")?;
    }
    let change = Change { appends: vec![append(b"pe", "5")], ..Change::default() };
    apply(substrate, &change)?;
    check(signals[1].0.count() > 0 && everything.count() >= 2, "an append woke nobody")
}

fn apply_early(substrate: &dyn Substrate, change: Change, after: &Early) -> Result<Early, Box<dyn std::error::Error>> {
    match substrate.commit_early(&Arc::new(change), after)? {
        (Verdict::Committed(_), early) => Ok(early),
        (Verdict::Conflict(conflict), _) => Err(format!("expected a commit, found: {conflict}").into()),
    }
}

/// A chain of early commits, each on what the one before wrote; those who watch are told when it is durable.
fn early_is_seen<S: Substrate>(substrate: &S) -> Check<'static> {
    apply(substrate, &put("apple", "0"))?;
    let signal = Arc::new(Signal::default());
    substrate.watch("fruit", b"apple", &signal);
    let mut early = Early::default();
    for number in 1..5_u8 {
        let rows = substrate.snapshot_with(&early)?;
        let before = rows.get(&FRUIT, b"apple")?.map(std::borrow::Cow::into_owned);
        let expected = (number - 1).to_string();
        check(before.as_deref() == Some(expected.as_bytes()), format!("expected {expected}, found {before:?}"))?;
        let mut change = put("apple", &number.to_string());
        change.base = rows.version();
        change.expect(FRUIT, *b"apple", Seen::of(before.as_deref()));
        change.appends.push(append(b"pe", "5"));
        drop(rows);
        early = apply_early(substrate, change, &early)?;
    }
    substrate.wait(&early)?;
    substrate.wait(&early)?;
    let rows = substrate.snapshot()?;
    check(rows.get(&FRUIT, b"apple")?.as_deref() == Some(b"4"), "the last one is not there")?;
    let end = prefix_end(b"pe");
    check(rows.count(&FRUIT, KeyRange { from: b"pe", until: end.as_deref() })? == 4, "some appends are not there")?;
    check(signal.count() > 0, "nobody was told")
}

/// What others committed is seen by an early commit, and the other way round.
fn early_conflicts(substrate: &impl Substrate) -> Check<'static> {
    apply(substrate, &put("apple", "0"))?;
    let reads = |value: &str, key: &str| {
        let mut change = put(key, "1");
        change.expect(FRUIT, *b"apple", Seen::of(Some(value.as_bytes())));
        change
    };
    let early = apply_early(substrate, put("apple", "1"), &Early::default())?;
    let refused = substrate.commit(&reads("0", "pear").into())?;
    check(matches!(refused, Verdict::Conflict(_)), "it had read what was changed early")?;
    apply(substrate, &put("apple", "2"))?;
    let refused = substrate.commit_early(&Arc::new(reads("1", "plum")), &early)?.0;
    check(matches!(refused, Verdict::Conflict(_)), "it had read what was changed since")?;
    let early = apply_early(substrate, reads("2", "plum"), &early)?;
    substrate.wait(&early)?;
    let rows = substrate.snapshot()?;
    check(rows.get(&FRUIT, b"plum")?.is_some() && rows.get(&FRUIT, b"pear")?.is_none(), "the wrong one was made")
}

/// Of a range of few rows, and of many, which a substrate may look at otherwise.
fn early_phantoms_conflict<S: Substrate>(substrate: &S) -> Check<'static> {
    for (prefix, rows) in [("few", 3), ("many", 200)] {
        let mut fill = Change::default();
        (0..rows).for_each(|number| fill.put(FRUIT, format!("{prefix}{number:03}").as_bytes(), *b"1"));
        let early = apply_early(substrate, fill, &Early::default())?;
        substrate.wait(&early)?;
        let end = prefix_end(prefix.as_bytes());
        let range = KeyRange { from: prefix.as_bytes(), until: end.as_deref() };
        let seen = seen_range(&*substrate.snapshot()?, range, Direction::Forward)?;
        let writes = |key: &str| {
            let mut change = put(key, "2");
            change.ranges.push(seen.clone());
            change
        };
        let early = apply_early(substrate, writes("beyond"), &early)?;
        let early = apply_early(substrate, writes(&format!("{prefix}000")), &early)?;
        let refused = substrate.commit_early(&Arc::new(writes("never")), &early)?.0;
        check(matches!(refused, Verdict::Conflict(_)), format!("{prefix}: it had seen what was changed early"))?;
        substrate.wait(&early)?;
        check(substrate.snapshot()?.get(&FRUIT, b"never")?.is_none(), format!("{prefix}: it was made all the same"))?;
    }
    Ok(())
}

/// What became of a change that was handed in.
fn settle(substrate: &dyn Substrate, change: Change) -> crate::Result<Verdict> {
    let posted = substrate.post(&Arc::new(change))?;
    substrate.settle(posted)
}

/// Several are handed in before any is waited for; those who watch are told when it is durable, and what nobody waits for is committed
/// with the others.
fn posted_is_seen<S: Substrate>(substrate: &S) -> Check<'static> {
    apply(substrate, &put("apple", "0"))?;
    let signal = Arc::new(Signal::default());
    substrate.watch("fruit", b"apple", &signal);
    let counted = |number: u8| {
        let mut change = put("apple", &number.to_string());
        change.appends.push(append(b"pe", "5"));
        Arc::new(change)
    };
    let posted = [1, 2, 3, 4].map(|number| substrate.post(&counted(number)));
    let [first, unheard, third, last] = posted;
    drop(unheard?);
    // In any order.
    for (posted, number) in [(last?, 4), (first?, 1), (third?, 3)] {
        match substrate.settle(posted)? {
            Verdict::Committed(committed) => {
                check(committed.appended == [number], format!("expected number {number}, found {committed:?}"))?;
            }
            Verdict::Conflict(conflict) => return Err(format!("expected a commit, found: {conflict}").into()),
        }
        check(signal.count() > 0, "nobody was told")?;
    }
    let rows = substrate.snapshot()?;
    check(rows.get(&FRUIT, b"apple")?.as_deref() == Some(b"4"), "the last one is not there")?;
    let end = prefix_end(b"pe");
    check(rows.count(&FRUIT, KeyRange { from: b"pe", until: end.as_deref() })? == 4, "some appends are not there")
}

/// Each is compared with what those before it left, and leaves nothing if that is not what it had observed.
fn posted_conflicts<S: Substrate>(substrate: &S) -> Check<'static> {
    apply(substrate, &put("apple", "0"))?;
    let counted = |from: u8, beside: &str| {
        let mut change = put("apple", &(from + 1).to_string());
        change.put(FRUIT, beside.as_bytes(), *b"1");
        change.appends.push(append(b"pe", "5"));
        change.expect(FRUIT, *b"apple", Seen::of(Some(from.to_string().as_bytes())));
        Arc::new(change)
    };
    // Two begin with the same, and one of them is the first.
    let posted = [(0, "plum"), (0, "fig"), (1, "lime")].map(|(from, beside)| substrate.post(&counted(from, beside)));
    for (posted, is_so) in posted.into_iter().zip([true, false, true]) {
        match substrate.settle(posted?)? {
            Verdict::Committed(_) => check(is_so, "it had read what was changed by one before it")?,
            Verdict::Conflict(conflict) => {
                check(!is_so && &*conflict.key == b"apple", format!("a conflict that is none: {conflict}"))?;
            }
        }
    }
    let rows = substrate.snapshot()?;
    let there = ["plum", "fig", "lime"].map(|fruit| rows.get(&FRUIT, fruit.as_bytes()).is_ok_and(|row| row.is_some()));
    check(there == [true, false, true], format!("expected the first and the last, found {there:?}"))?;
    check(rows.get(&FRUIT, b"apple")?.as_deref() == Some(b"2"), "it was not counted twice")?;
    let end = prefix_end(b"pe");
    check(rows.count(&FRUIT, KeyRange { from: b"pe", until: end.as_deref() })? == 2, "what met a conflict appended")
}

/// Many rows, of which the last has changed or not; however it is committed.
fn much_is_compared<S: Substrate>(substrate: &S) -> Check<'static> {
    let mut fill = Change::default();
    (0..400).for_each(|number| fill.put(STOCK, format!("{number:03}").as_bytes(), *b"1"));
    apply(substrate, &fill)?;
    let observing = |rows: usize, key: &str, last: &str| {
        let mut change = put(key, "1");
        for number in 0..rows {
            let value = if number + 1 == rows { last } else { "1" };
            change.expect(STOCK, format!("{number:03}").as_bytes(), Seen::of(Some(value.as_bytes())));
        }
        change
    };
    for rows in [1, 20, 256, 257, 400] {
        let last = format!("{:03}", rows - 1);
        apply(substrate, &observing(rows, "so", "1"))?;
        refuse_in(substrate, &observing(rows, "never", "2"), (&STOCK, &last))?;
        check(matches!(settle(substrate, observing(rows, "so", "1"))?, Verdict::Committed(_)), "it is so")?;
        let refused = settle(substrate, observing(rows, "never", "2"))?;
        check(matches!(refused, Verdict::Conflict(_)), format!("{rows} rows: the last is not so"))?;
    }
    check(substrate.snapshot()?.get(&FRUIT, b"never")?.is_none(), "it was made all the same")
}

type Contents = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

fn contents(rows: &dyn Rows) -> crate::Result<Contents> {
    let mut all = Contents::new();
    for name in rows.tables()? {
        let mut scan = rows.scan(&TableName::Owned(name.clone()), KeyRange::ALL)?;
        let table = all.entry(name).or_default();
        while let Some((key, value)) = scan.next()? {
            table.insert(key.into_owned(), value.into_owned());
        }
    }
    Ok(all)
}

/// The longest that is tried: a substrate that takes more takes anything.
const TRIED_BYTES_MAX: usize = 1 << 20;

fn long_is_refused<S: Substrate>(substrate: &S) -> Check<'static> {
    let limits = substrate.limits();
    check(limits.key_bytes_max >= super::Limits::KEY_BYTES_MIN, "keys are too short for a runtime")?;
    let longest = |most: usize| most.min(TRIED_BYTES_MAX);
    let (key, name) = (longest(limits.key_bytes_max), longest(limits.name_bytes_max));
    let row = |key: usize, value: usize, name: usize| {
        let mut change = put("besides", "");
        change.put("n".repeat(name), vec![b'k'; key], vec![b'v'; value]);
        change
    };
    let append = |prefix: usize, sequence: usize| {
        let (prefix, sequence) = (vec![b'p'; prefix].into(), vec![b's'; sequence].into());
        let appends = vec![Append { table: STOCK, prefix, sequence, value: (*b"v").into(), also: Vec::new() }];
        Change { appends, ..put("besides", "") }
    };
    for change in [row(key, 1, 1), row(1, 1, name), row(key, 100, name), append(key - 8, 1), append(1, key)] {
        apply(substrate, &change)?;
    }
    let before = contents(&*substrate.snapshot()?)?;
    let mut long = Vec::new();
    if limits.key_bytes_max <= TRIED_BYTES_MAX {
        long.extend([row(key + 1, 1, 1), row(10 * key, 1, 2), append(key - 7, 1), append(1, key + 1)]);
    }
    if limits.name_bytes_max <= TRIED_BYTES_MAX {
        long.push(row(1, 1, name + 1));
    }
    if limits.value_bytes_max <= TRIED_BYTES_MAX {
        apply(substrate, &row(1, limits.value_bytes_max, 1))?;
        long.push(row(1, limits.value_bytes_max + 1, 1));
    }
    let before = if limits.value_bytes_max <= TRIED_BYTES_MAX { contents(&*substrate.snapshot()?)? } else { before };
    for mut change in long {
        change.put(FRUIT, *b"besides", *b"changed");
        let change = Arc::new(change);
        check(substrate.commit(&change).is_err(), "something too long was committed")?;
        let early = substrate.commit_early(&change, &Early::default());
        check(early.is_err(), "something too long was committed early")?;
        let posted = substrate.post(&change).and_then(|posted| substrate.settle(posted));
        check(posted.is_err(), "something too long was handed in and committed")?;
        check(contents(&*substrate.snapshot()?)? == before, "what was refused left something")?;
    }
    // Reading is no harm.
    check(substrate.snapshot()?.get(&FRUIT, &vec![0; key + 1])?.is_none(), "a row that cannot be")?;
    let mut change = put("besides", "still writable");
    change.expect(FRUIT, vec![0; key + 1], Seen::Absent);
    apply(substrate, &change)
}

/// Random changes, some of them stale, on the substrate and on the model: both must say the same and hold the same.
fn against_model(substrate: &dyn Substrate, seed: u64) -> Check<'static> {
    let (model, mut chance) = (ModelSubstrate::new(), Chance::new(seed));
    let (mut waiting, mut early): (Vec<(Change, bool)>, Early) = (Vec::new(), Early::default());
    let mut posted: Vec<(Posted, Expected<'_>)> = Vec::new();
    for _ in 0..60 {
        if chance.next_u64().is_multiple_of(3) {
            // What is handed in is committed before what is committed later, but for early commits.
            settle_all(substrate, &mut posted)?;
        }
        let is_early = chance.next_u64().is_multiple_of(2);
        let rows = if is_early { substrate.snapshot_with(&early)? } else { substrate.snapshot()? };
        let mut next = (random_change(&*rows, &mut chance)?, is_early);
        drop(rows);
        if chance.next_u64().is_multiple_of(3) {
            // It waits, and an older one comes late.
            waiting.push(next);
            if waiting.len() < 3 {
                continue;
            }
            next = waiting.swap_remove(usize::try_from(chance.next_u64() % 3)?);
        }
        let (change, is_early) = (Arc::new(next.0), next.1);
        if !is_early && chance.next_u64().is_multiple_of(2) {
            // Whoever hands it in may see less than those who handed in before.
            posted.push((substrate.post(&change)?, Expected::of(&model, &change)?));
            continue;
        }
        settle_all(substrate, &mut posted)?;
        let expected = Expected::of(&model, &change)?;
        let ours = if is_early && chance.next_u64().is_multiple_of(2) {
            let (verdict, made) = substrate.commit_early(&change, &early)?;
            if let Verdict::Committed(_) = verdict {
                early = made;
            }
            verdict
        } else {
            if is_early {
                // It was made of what only the maker sees until then.
                substrate.wait(&early)?;
            }
            let mut verdict = substrate.commit(&change)?;
            if let Verdict::Conflict(_) = verdict {
                // Perhaps with a version that is older than what the maker of early commits sees.
                substrate.wait(&early)?;
                verdict = substrate.commit(&change)?;
            }
            verdict
        };
        expected.check(&ours)?;
    }
    settle_all(substrate, &mut posted)?;
    substrate.wait(&early)?;
    check(contents(&*substrate.snapshot()?)? == contents(&*model.snapshot()?)?, "other rows than the model's")
}

/// Waits for all that were handed in, in any order: each came to what it should.
fn settle_all(substrate: &dyn Substrate, posted: &mut Vec<(Posted, Expected<'_>)>) -> Check<'static> {
    for (posted, expected) in posted.drain(..).rev() {
        expected.check(&substrate.settle(posted)?)?;
    }
    Ok(())
}

/// What the model made of a change, and what it was then.
struct Expected<'a> {
    change: Arc<Change>,
    rows: Box<dyn Rows + 'a>,
    verdict: Verdict,
}

impl<'a> Expected<'a> {
    fn of(model: &'a ModelSubstrate, change: &Arc<Change>) -> crate::Result<Self> {
        let (rows, verdict) = (model.snapshot()?, model.commit(change)?);
        Ok(Self { change: Arc::clone(change), rows, verdict })
    }

    /// Of several things that are in the way, any may be named, and no other.
    fn check(&self, ours: &Verdict) -> Check<'static> {
        let is_so = match (ours, &self.verdict) {
            (Verdict::Conflict(conflict), Verdict::Conflict(_)) => {
                let mut named = Change::clone(&self.change);
                named.reads.retain(|table, _| **table == *conflict.table);
                named.reads.values_mut().for_each(|reads| reads.retain(|key, _| key[..] == *conflict.key));
                named.ranges.retain(|range| *range.table == *conflict.table && range.from[..] == *conflict.key);
                named.find_conflict(&*self.rows)?.is_some()
            }
            (ours, theirs) => ours == theirs,
        };
        check(is_so, format!("expected {:?}, found {ours:?}", self.verdict))
    }
}

/// All rows of the ranges go, and no other; what is written in the same change is written after; nothing goes if there is a conflict.
fn ranges_are_cut(substrate: &impl Substrate) -> Check<'static> {
    let fill =
        |change: &mut Change| (10..90).for_each(|number| change.put(FRUIT, format!("{number}").into_bytes(), "1"));
    let mut filling = put("a", "1");
    fill(&mut filling);
    apply(substrate, &filling)?;
    let mut change = Change::default();
    change.cut(FRUIT, KeyRange { from: b"20", until: Some(b"60") });
    change.cut(FRUIT, KeyRange { from: b"80", until: Some(b"9") });
    change.cut(STOCK, KeyRange::ALL);
    change.put(FRUIT, *b"33", *b"new");
    change.remove(FRUIT, *b"a");
    change.expect(FRUIT, *b"b", Seen::Present);
    refuse(substrate, &change, "b")?;
    change.reads.clear();
    change.expect(FRUIT, *b"20", Seen::Present);
    match substrate.commit(&change.into())? {
        Verdict::Committed(committed) => check(committed.removed == 50, format!("{} rows cut", committed.removed))?,
        Verdict::Conflict(conflict) => return Err(format!("expected a commit, found: {conflict}").into()),
    }
    let rows = substrate.snapshot()?;
    let count = |from: &[u8], until| rows.count(&FRUIT, KeyRange { from, until });
    check(count(b"20", Some(b"60"))? == 1 && count(b"80", None)? == 0, "what was cut is there")?;
    check(count(b"10", Some(b"20"))? == 10 && count(b"60", Some(b"80"))? == 20, "what was not cut is gone")
}

/// A change that observes some rows, and writes some of those and others.
fn random_change(rows: &dyn Rows, chance: &mut Chance) -> crate::Result<Change> {
    let mut change = Change { base: rows.version(), ..Change::default() };
    let any = |chance: &mut Chance| format!("{}", chance.next_u64() % 12).into_bytes();
    let mut observed = any(chance);
    for _ in 0..chance.next_u64() % 4 {
        observed = any(chance);
        let seen = match Seen::of(rows.get(&FRUIT, &observed)?.as_deref()) {
            Seen::Value(_) | Seen::Hashed { .. } if chance.next_u64().is_multiple_of(3) => Seen::Present,
            seen => seen,
        };
        change.expect(FRUIT, observed.clone(), seen);
    }
    if chance.next_u64().is_multiple_of(3) {
        let (from, until) = (any(chance), any(chance));
        change.ranges.push(seen_range(rows, KeyRange { from: &from, until: Some(&until) }, Direction::Forward)?);
    }
    for _ in 0..chance.next_u64() % 4 {
        let key = if chance.next_u64().is_multiple_of(2) { observed.clone() } else { any(chance) };
        match chance.next_u64() % 5 {
            0 | 1 => change.remove(FRUIT, key),
            2 => change.appends.push(append(&key, "appended")),
            3 => change.put(FRUIT, key, format!("{}{}", chance.next_u64() % 3, "x".repeat(100))),
            _ => change.put(FRUIT, key, format!("{}", chance.next_u64() % 3)),
        }
    }
    Ok(change)
}
