//! Several values per key.

use std::collections::BTreeSet;
use std::ops::Bound;

use kauri_tree::{Change, MultiTable, Read, ReadMulti, Write, WriteMulti, WriteTxn};

use crate::twin::{Chance, Outcome, same, words};

const PAIRS: MultiTable<[u8], [u8]> = MultiTable::new("pairs");

type Pair = (Vec<u8>, Vec<u8>);

/// What the table should hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairs(BTreeSet<Pair>);

/// Few keys, with zeros and the greatest byte among them, so that some have many values.
fn key(chance: &mut impl Chance) -> Vec<u8> {
    match chance.below(8) {
        0 => vec![0; chance.below(3)],
        1 => vec![0xff; chance.below(3)],
        number => vec![number.to_le_bytes()[0] % 3],
    }
}

fn pair(chance: &mut impl Chance) -> Pair {
    let (key, number) = (key(chance), chance.below(100));
    (key, vec![number.to_le_bytes()[0]; 1 + number % 20])
}

/// A cursor that stays with a key, leaves it, and removes pairs. Cursors of transactions and of changes do the same.
macro_rules! walk {
    ($model:ident, $cursor:ident, $key:ident, $chance:ident) => {{
        same("the first value of a key", $cursor.seek_key(&$key).map_err(words)?, $model.of(&$key).next())?;
        if $model.of(&$key).next().is_none() {
            return same("values where there is no key", $cursor.count_of_key().map_err(words)?, 0);
        }
        let mut at = 0;
        for _ in 0..$chance.below(16) {
            let values: Vec<Vec<u8>> = $model.of(&$key).map(<[u8]>::to_vec).collect();
            same("the count at a cursor", $cursor.count_of_key().map_err(words)?, values.len() as u64)?;
            let (found, to) = match $chance.below(5) {
                0 => ($cursor.first_of_key().map_err(words)?, Some(0)),
                1 => ($cursor.last_of_key().map_err(words)?, Some(values.len() - 1)),
                2 => ($cursor.next_of_key().map_err(words)?, Some(at + 1).filter(|next| *next < values.len())),
                3 => ($cursor.previous_of_key().map_err(words)?, at.checked_sub(1)),
                _ => {
                    same("whether a pair was removed", $cursor.remove().map_err(words)?, true)?;
                    $model.0.remove(&($key.clone(), values[at].clone()));
                    if at + 1 == values.len() {
                        // It is on the first pair of the next key, or behind all.
                        let next = $model.0.iter().find(|(other, _)| *other > $key);
                        let found = $cursor
                            .current()
                            .map_err(words)?
                            .map(|((key, value), ())| (key.into_owned(), value.to_vec()));
                        return same("the pair behind a key", found.as_ref(), next);
                    }
                    same("the pair behind one", $cursor.value().map_err(words)?, Some(&values[at + 1][..]))?;
                    continue;
                }
            };
            // A move that finds nothing stays where it was.
            same("a value of a key", found, to.map(|to| &values[to][..]))?;
            at = to.unwrap_or(at);
            same("the value at a cursor", $cursor.value().map_err(words)?, Some(&values[at][..]))?;
        }
        Ok(())
    }};
}

impl Pairs {
    /// The values of a key.
    fn of<'a>(&'a self, key: &'a [u8]) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        self.0.iter().filter(move |(other, _)| other == key).map(|(_, value)| &value[..])
    }

    pub(super) fn compare(&self, from: &impl Read) -> Outcome {
        same("pairs", from.len(&PAIRS).map_err(words)?, self.0.len() as u64)?;
        let mut found = from.scan(&PAIRS).map_err(words)?;
        for (key, value) in &self.0 {
            same("a pair", found.next().map_err(words)?, Some(((key[..].into(), &value[..]), ())))?;
        }
        same("a pair behind the last", found.next().map_err(words)?, None)
    }

    pub(super) fn write(&mut self, to: &mut impl Write, chance: &mut impl Chance) -> Outcome {
        let (key, value) = pair(chance);
        match chance.below(16) {
            0..9 => {
                let is_new = to.put_value(&PAIRS, &key, &value).map_err(words)?;
                same("whether a value is new", is_new, self.0.insert((key, value)))
            }
            9..13 => {
                let was_there = to.remove_value(&PAIRS, &key, &value).map_err(words)?;
                same("whether a value was there", was_there, self.0.remove(&(key, value)))
            }
            13 => {
                let removed = to.remove_values(&PAIRS, &key).map_err(words)?;
                same("the values that a key had", removed, self.of(&key).count() as u64)?;
                self.0.retain(|(other, _)| *other != key);
                Ok(())
            }
            _ => self.read(to, &key, &value, chance),
        }
    }

    /// The values of a key: how many, the one with a number, and from either end.
    fn read(&self, from: &impl Read, key: &[u8], value: &[u8], chance: &mut impl Chance) -> Outcome {
        let count = self.of(key).count();
        same("the count of values", from.count_values(&PAIRS, key).map_err(words)?, count as u64)?;
        let has = from.has_value(&PAIRS, key, value).map_err(words)?;
        same("whether a key has a value", has, self.of(key).any(|other| other == value))?;
        let number = chance.below(count + 2);
        let mut values = from.values(&PAIRS, key).map_err(words)?;
        same("a value by its number", values.nth(number as u64).map_err(words)?, self.of(key).nth(number))?;
        let mut values = from.values(&PAIRS, key).map_err(words)?;
        same("the last value", values.previous().map_err(words)?, self.of(key).next_back())
    }

    /// A sorted load with pairs that come again, or a range removed.
    pub(super) fn change(&mut self, txn: &mut WriteTxn<'_>, chance: &mut impl Chance) -> Outcome {
        if chance.below(2) == 0 {
            return self.remove_range(txn, chance);
        }
        if chance.below(3) == 0 {
            txn.drop_table(PAIRS.name()).map_err(words)?;
            self.0.clear();
        }
        let mut pairs: Vec<Pair> = (0..chance.below(40)).map(|_| pair(chance)).collect();
        pairs.sort();
        let lent = pairs.iter().map(|(key, value)| (&key[..], &value[..]));
        let loaded = txn.load_sorted_values(&PAIRS, lent).map_err(words)?;
        pairs.dedup();
        same("pairs loaded", loaded, pairs.len() as u64)?;
        self.0.extend(pairs);
        Ok(())
    }

    fn remove_range(&mut self, txn: &mut WriteTxn<'_>, chance: &mut impl Chance) -> Outcome {
        let (from, until) = (pair(chance), pair(chance));
        let before = self.0.len();
        self.0.retain(|pair| *pair < from || *pair >= until);
        let lent = (Bound::Included((&from.0[..], &from.1[..])), Bound::Excluded((&until.0[..], &until.1[..])));
        let removed = txn.remove_range(&PAIRS, lent).map_err(words)?;
        same("pairs of a range", removed, (before - self.0.len()) as u64)
    }

    pub(super) fn walk(&mut self, txn: &mut WriteTxn<'_>, chance: &mut impl Chance) -> Outcome {
        let key = key(chance);
        let mut cursor = txn.cursor_mut(&PAIRS).map_err(words)?;
        walk!(self, cursor, key, chance)
    }

    pub(super) fn walk_staged(&mut self, change: &mut Change<'_>, chance: &mut impl Chance) -> Outcome {
        let key = key(chance);
        let mut cursor = change.cursor_mut(&PAIRS).map_err(words)?;
        walk!(self, cursor, key, chance)
    }
}
