//! Rows that expire.

use std::collections::BTreeMap;

use kauri_tree::{Read, ReadTtl, Swept, TtlTable, Write, WriteTtl};

use super::rows::{key, value};
use crate::twin::{Chance, Outcome, same, words};

const TIMED: TtlTable<[u8], [u8]> = TtlTable::new("timed");
/// What the key of a row that expires is shorter by.
const KEY_BYTES_MAX: usize = super::PAGE_BYTES / 4 - 8 - 9;

/// What the table should hold: values, and when they expire.
#[derive(Clone, Debug, Default)]
pub(super) struct Timed(BTreeMap<Vec<u8>, (Vec<u8>, u64)>);

/// Moments near each other, and the last there is.
fn moment(chance: &mut impl Chance) -> u64 {
    match chance.below(20) {
        0 => u64::MAX,
        moment => moment as u64,
    }
}

impl Timed {
    pub(super) fn compare(&self, from: &impl Read) -> Outcome {
        let first = self.0.values().map(|(_, expires)| *expires).min();
        same("the first expiry", from.first_expiry(&TIMED).map_err(words)?, first)?;
        for now in [0, 7, 19, u64::MAX] {
            let live: Vec<_> = self.0.iter().filter(|(_, (_, expires))| *expires > now).collect();
            same("live rows", from.count_live(&TIMED, now).map_err(words)?, live.len() as u64)?;
            let found = from.scan_live(&TIMED, now).map_err(words)?;
            let found = found.map(|key, value| (key.to_vec(), value.into_owned()));
            let found: Vec<_> = found.collect::<Result<_, _>>().map_err(words)?;
            let is_same =
                found.iter().map(|(key, value)| (key, value)).eq(live.iter().map(|(key, row)| (*key, &row.0)));
            same("whether the live rows are right", is_same, true)?;
        }
        Ok(())
    }

    pub(super) fn write(&mut self, to: &mut impl Write, chance: &mut impl Chance) -> Outcome {
        let mut key = key(chance);
        key.truncate(KEY_BYTES_MAX);
        let now = moment(chance);
        match chance.below(8) {
            0..4 => {
                let value = value(chance);
                to.put_until(&TIMED, &key, &value, now).map_err(words)?;
                self.0.insert(key, (value, now));
                Ok(())
            }
            4 => {
                let was_there = to.remove_expiring(&TIMED, &key).map_err(words)?;
                same("whether a row was there", was_there, self.0.remove(&key).is_some())
            }
            5..7 => {
                same(
                    "an expiry",
                    to.expiry(&TIMED, &key).map_err(words)?,
                    self.0.get(&key).map(|(_, expires)| *expires),
                )?;
                let live = self.0.get(&key).filter(|(_, expires)| *expires > now).map(|(value, _)| &value[..]);
                same("a live value", to.get_or_expire(&TIMED, &key, now).map_err(words)?.as_deref(), live)?;
                self.0.retain(|other, (_, expires)| *other != key || *expires > now);
                Ok(())
            }
            _ => self.sweep(to, now, chance.below(6)),
        }
    }

    fn sweep(&mut self, to: &mut impl Write, now: u64, rows_max: usize) -> Outcome {
        let expired = self.0.iter().filter(|(_, (_, expires))| *expires <= now);
        let mut expired: Vec<_> = expired.map(|(key, (_, expires))| (*expires, key.clone())).collect();
        expired.sort();
        let is_done = expired.len() <= rows_max;
        expired.truncate(rows_max);
        let swept = to.sweep(&TIMED, now, rows_max).map_err(words)?;
        same("what was swept", swept, Swept { rows: expired.len() as u64, is_done })?;
        expired.iter().for_each(|(_, key)| drop(self.0.remove(key)));
        Ok(())
    }
}
