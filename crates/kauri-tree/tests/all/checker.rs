//! Whether a history of transactions is strictly serializable, told from what they read of lists that they append to.
//!
//! Every appended element is different, so a list says by itself who wrote it and in which order: its versions are its
//! prefixes. From that follow who came before whom:
//!
//! ```text
//! ww: who appended an element          -> who appended the next
//! wr: who appended the last that was read  -> who read it
//! rw: who read a list                  -> who appended the next element to it
//! rt: who had ended                    -> who began after that
//! ```
//!
//! A cycle among them is an anomaly; which edges it needs says which one. (Kingsbury and Alvaro, "Elle", 2020; names of anomalies
//! after Adya, 1999.)

use std::collections::BTreeMap;

pub(crate) type Key = u32;
pub(crate) type Element = u32;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Read(Key, Vec<Element>),
    Append(Key, Element),
}

/// A transaction as its client saw it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Txn {
    /// Moments on one clock: before it began, and after it ended.
    pub(crate) began: u64,
    pub(crate) ended: u64,
    pub(crate) committed: bool,
    pub(crate) ops: Vec<Op>,
}

/// What is wrong with a history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Anomaly {
    /// An element was read that nobody appended.
    Garbage,
    /// A transaction does not see what itself did, or sees a list change that it did not change.
    Internal,
    /// G1a: an element of a transaction that did not commit was read.
    AbortedRead,
    /// G1b: a list was read between two appends of one transaction.
    IntermediateRead,
    /// Two reads of a list of which neither is the beginning of the other.
    Incompatible,
    /// What was committed is not there at the end.
    Lost,
    /// Cycles: of writes alone; with reads; with one read of what was overwritten since; with several.
    G0,
    G1c,
    GSingle,
    G2,
    /// A cycle only because somebody had ended before another began.
    Stale,
}

/// Checks a history whose last transaction read every list after all others had ended.
pub(crate) fn check(history: &[Txn]) -> Result<(), Anomaly> {
    let writers = writers(history);
    let reads = external_reads(history)?;
    let orders = orders(history, &reads, &writers)?;
    check_final(history, &orders)?;
    check_cycles(&edges(history, &reads, &orders, &writers))
}

type Writers = BTreeMap<(Key, Element), usize>;

fn writers(history: &[Txn]) -> Writers {
    let mut writers = Writers::new();
    for (index, txn) in history.iter().enumerate() {
        for op in &txn.ops {
            if let Op::Append(key, element) = op {
                assert_eq!(writers.insert((*key, *element), index), None, "elements are different");
            }
        }
    }
    writers
}

/// What a committed transaction read of a list that others wrote.
struct ExternalRead<'a> {
    txn: usize,
    key: Key,
    list: &'a [Element],
}

fn external_reads(history: &[Txn]) -> Result<Vec<ExternalRead<'_>>, Anomaly> {
    let mut reads = Vec::new();
    for (txn, Txn { ops, .. }) in history.iter().enumerate().filter(|(_, txn)| txn.committed) {
        let mut known: BTreeMap<Key, (Option<&[Element]>, Vec<Element>)> = BTreeMap::new();
        for op in ops {
            match op {
                Op::Append(key, element) => known.entry(*key).or_default().1.push(*element),
                Op::Read(key, list) => {
                    let (before, own) = known.entry(*key).or_default();
                    let external = list.strip_suffix(own.as_slice()).ok_or(Anomaly::Internal)?;
                    if before.is_some_and(|before| before != external) {
                        return Err(Anomaly::Internal);
                    }
                    if before.replace(external).is_none() {
                        reads.push(ExternalRead { txn, key: *key, list: external });
                    }
                }
            }
        }
    }
    Ok(reads)
}

/// The elements of each list, in order.
type Orders<'a> = BTreeMap<Key, &'a [Element]>;

fn orders<'a>(history: &[Txn], reads: &[ExternalRead<'a>], writers: &Writers) -> Result<Orders<'a>, Anomaly> {
    let mut orders = Orders::new();
    for &ExternalRead { txn, key, list } in reads {
        for element in list {
            let writer = *writers.get(&(key, *element)).ok_or(Anomaly::Garbage)?;
            if !history[writer].committed {
                return Err(Anomaly::AbortedRead);
            }
        }
        if let Some(last) = list.last() {
            let writer = writers[&(key, *last)];
            if writer != txn && last_append(&history[writer], key) != Some(*last) {
                return Err(Anomaly::IntermediateRead);
            }
        }
        let longest = orders.entry(key).or_insert(list);
        if list.len() > longest.len() {
            *longest = list;
        }
    }
    let is_prefix = |read: &ExternalRead<'_>| orders[&read.key].starts_with(read.list);
    if reads.iter().all(is_prefix) { Ok(orders) } else { Err(Anomaly::Incompatible) }
}

fn last_append(txn: &Txn, key: Key) -> Option<Element> {
    let appended = |op: &Op| match op {
        Op::Append(to, element) if *to == key => Some(*element),
        _ => None,
    };
    txn.ops.iter().rev().find_map(appended)
}

fn check_final(history: &[Txn], orders: &Orders<'_>) -> Result<(), Anomaly> {
    for op in history.iter().filter(|txn| txn.committed).flat_map(|txn| &txn.ops) {
        if let Op::Append(key, element) = op
            && !orders.get(key).is_some_and(|list| list.contains(element))
        {
            return Err(Anomaly::Lost);
        }
    }
    Ok(())
}

/// For each transaction, which come after it: a bit for each.
type After = Vec<u64>;

struct Edges {
    ww: After,
    wr: After,
    rw: After,
    rt: After,
}

fn edges(history: &[Txn], reads: &[ExternalRead<'_>], orders: &Orders<'_>, writers: &Writers) -> Edges {
    assert!(history.len() <= 64, "a bit for each transaction");
    let none = vec![0; history.len()];
    let mut edges = Edges { ww: none.clone(), wr: none.clone(), rw: none.clone(), rt: none };
    let add = |after: &mut After, from: usize, to: usize| {
        if from != to {
            after[from] |= 1 << to;
        }
    };
    for (key, list) in orders {
        for pair in list.windows(2) {
            add(&mut edges.ww, writers[&(*key, pair[0])], writers[&(*key, pair[1])]);
        }
    }
    for ExternalRead { txn, key, list } in reads {
        if let Some(last) = list.last() {
            add(&mut edges.wr, writers[&(*key, *last)], *txn);
        }
        if let Some(next) = orders[key].get(list.len()) {
            add(&mut edges.rw, *txn, writers[&(*key, *next)]);
        }
    }
    for (from, before) in history.iter().enumerate().filter(|(_, txn)| txn.committed) {
        for (to, after) in history.iter().enumerate().filter(|(_, txn)| txn.committed) {
            if before.ended < after.began {
                add(&mut edges.rt, from, to);
            }
        }
    }
    edges
}

fn check_cycles(edges: &Edges) -> Result<(), Anomaly> {
    let dependencies = union(&edges.ww, &edges.wr);
    let all = union(&dependencies, &edges.rw);
    // Most histories have no cycle at all: one look tells.
    if !has_cycle(&union(&all, &edges.rt)) {
        return Ok(());
    }
    if has_cycle(&edges.ww) {
        return Err(Anomaly::G0);
    }
    if has_cycle(&dependencies) {
        return Err(Anomaly::G1c);
    }
    // One read of what was overwritten, and a way back without another.
    let reachable = closure(&dependencies);
    let is_single =
        |from: usize| (0..reachable.len()).any(|to| edges.rw[from] >> to & 1 == 1 && reachable[to] >> from & 1 == 1);
    if (0..reachable.len()).any(is_single) {
        return Err(Anomaly::GSingle);
    }
    Err(if has_cycle(&all) { Anomaly::G2 } else { Anomaly::Stale })
}

fn union(left: &After, right: &After) -> After {
    left.iter().zip(right).map(|(left, right)| left | right).collect()
}

/// Which come after each, by however many edges.
fn closure(after: &After) -> After {
    let mut reachable = after.clone();
    for through in 0..after.len() {
        for from in 0..after.len() {
            if reachable[from] >> through & 1 == 1 {
                reachable[from] |= reachable[through];
            }
        }
    }
    reachable
}

fn has_cycle(after: &After) -> bool {
    closure(after).iter().enumerate().any(|(index, reachable)| reachable >> index & 1 == 1)
}

/// Histories that are wrong by hand: each must be refused, and by its name.
mod tests {
    use super::*;
    use Op::{Append, Read};

    /// Transactions at the same time, and the read of everything at the end.
    fn history(txns: &[(bool, &[Op])], end: &[(Key, &[Element])]) -> Vec<Txn> {
        let txn = |&(committed, ops): &(bool, &[Op])| Txn { began: 0, ended: 9, committed, ops: ops.to_vec() };
        let mut history: Vec<Txn> = txns.iter().map(txn).collect();
        let ops = end.iter().map(|(key, list)| Read(*key, list.to_vec())).collect();
        history.push(Txn { began: 10, ended: 11, committed: true, ops });
        history
    }

    fn read(key: Key, list: &[Element]) -> Op {
        Read(key, list.to_vec())
    }

    fn refused(txns: &[(bool, &[Op])], end: &[(Key, &[Element])], anomaly: Anomaly) {
        assert_eq!(check(&history(txns, end)), Err(anomaly));
    }

    #[test]
    fn serial_and_serializable_histories_are_right() {
        let serial = history(
            &[(true, &[read(1, &[]), Append(1, 1)]), (true, &[read(1, &[1]), Append(2, 2)])],
            &[(1, &[1]), (2, &[2])],
        );
        assert_eq!(check(&serial), Ok(()));
        let blind = history(
            &[(true, &[Append(1, 1), Append(2, 2)]), (true, &[Append(1, 3), Append(2, 4)])],
            &[(1, &[1, 3]), (2, &[2, 4])],
        );
        assert_eq!(check(&blind), Ok(()));
        let aborted = history(&[(false, &[read(1, &[7]), Append(1, 1)]), (true, &[read(1, &[])])], &[(1, &[])]);
        assert_eq!(check(&aborted), Ok(()));
    }

    #[test]
    fn dirty_write_is_refused() {
        let txns: [(bool, &[Op]); 2] = [(true, &[Append(1, 1), Append(2, 2)]), (true, &[Append(1, 3), Append(2, 4)])];
        refused(&txns, &[(1, &[1, 3]), (2, &[4, 2])], Anomaly::G0);
        let torn: [(bool, &[Op]); 2] = [(true, &[Append(1, 1), Append(1, 2)]), (true, &[Append(1, 3)])];
        refused(&torn, &[(1, &[1, 3, 2])], Anomaly::G0);
    }

    #[test]
    fn aborted_read_is_refused() {
        refused(&[(false, &[Append(1, 1)]), (true, &[read(1, &[1])])], &[(1, &[])], Anomaly::AbortedRead);
        refused(&[(false, &[Append(1, 1)])], &[(1, &[1])], Anomaly::AbortedRead);
    }

    #[test]
    fn intermediate_read_is_refused() {
        let txns: [(bool, &[Op]); 2] = [(true, &[Append(1, 1), Append(1, 2)]), (true, &[read(1, &[1])])];
        refused(&txns, &[(1, &[1, 2])], Anomaly::IntermediateRead);
    }

    #[test]
    fn circular_information_is_refused() {
        let txns: [(bool, &[Op]); 2] = [(true, &[Append(1, 1), read(2, &[2])]), (true, &[Append(2, 2), read(1, &[1])])];
        refused(&txns, &[(1, &[1]), (2, &[2])], Anomaly::G1c);
    }

    #[test]
    fn lost_update_is_refused() {
        let txns: [(bool, &[Op]); 2] = [(true, &[read(1, &[]), Append(1, 1)]), (true, &[read(1, &[]), Append(1, 2)])];
        refused(&txns, &[(1, &[1, 2])], Anomaly::GSingle);
        // And if one overwrites the other.
        refused(&txns, &[(1, &[2])], Anomaly::Lost);
    }

    #[test]
    fn read_skew_is_refused() {
        let txns: [(bool, &[Op]); 2] = [(true, &[read(1, &[]), read(2, &[2])]), (true, &[Append(1, 1), Append(2, 2)])];
        refused(&txns, &[(1, &[1]), (2, &[2])], Anomaly::GSingle);
    }

    #[test]
    fn write_skew_is_refused() {
        let txns: [(bool, &[Op]); 2] =
            [(true, &[read(1, &[]), read(2, &[]), Append(1, 1)]), (true, &[read(1, &[]), read(2, &[]), Append(2, 2)])];
        refused(&txns, &[(1, &[1]), (2, &[2])], Anomaly::G2);
    }

    #[test]
    fn phantom_is_refused() {
        // Three lists are a range: both looked at all of it, found nothing, and put something where the other had looked.
        let nothing = [read(1, &[]), read(2, &[]), read(3, &[])];
        let [first, second] = [(2, 1), (3, 2)].map(|(key, element)| [&nothing[..], &[Append(key, element)]].concat());
        refused(&[(true, &first), (true, &second)], &[(1, &[]), (2, &[1]), (3, &[2])], Anomaly::G2);
    }

    #[test]
    fn long_fork_is_refused() {
        let txns: [(bool, &[Op]); 4] = [
            (true, &[Append(1, 1)]),
            (true, &[Append(2, 2)]),
            (true, &[read(1, &[1]), read(2, &[])]),
            (true, &[read(1, &[]), read(2, &[2])]),
        ];
        refused(&txns, &[(1, &[1]), (2, &[2])], Anomaly::G2);
    }

    #[test]
    fn stale_read_is_refused() {
        let mut stale = history(&[(true, &[Append(1, 1)]), (true, &[read(1, &[])])], &[(1, &[1])]);
        assert_eq!(check(&stale), Ok(()));
        (stale[0].ended, stale[1].began) = (3, 4);
        assert_eq!(check(&stale), Err(Anomaly::Stale));
    }

    #[test]
    fn lists_that_nobody_wrote_so_are_refused() {
        refused(&[(true, &[read(1, &[5])])], &[(1, &[])], Anomaly::Garbage);
        refused(&[(true, &[Append(1, 1)])], &[(1, &[])], Anomaly::Lost);
        refused(&[(true, &[Append(1, 1), read(1, &[])])], &[(1, &[1])], Anomaly::Internal);
        let twice: [(bool, &[Op]); 2] = [(true, &[read(1, &[]), read(1, &[1])]), (true, &[Append(1, 1)])];
        refused(&twice, &[(1, &[1])], Anomaly::Internal);
        let forked: [(bool, &[Op]); 3] = [(true, &[Append(1, 1)]), (true, &[Append(1, 2)]), (true, &[read(1, &[2])])];
        refused(&forked, &[(1, &[1, 2])], Anomaly::Incompatible);
    }
}
