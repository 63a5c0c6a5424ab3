//! Keys: bytes sort like values, and give the values back.

use core::cmp::Ordering;
use core::fmt::Debug;

use kauri_wire::{InboxKey, JobId, Key, RetryKey, RunId, Seq, TimerKey, Timestamp, WorkerId};
use proptest::collection::vec;
use proptest::prelude::*;

/// The keys' bytes are in the order of the values.
fn check<K: Key + ?Sized>(left: K::Ref<'_>, right: K::Ref<'_>, expected: Ordering) -> Result<(), TestCaseError> {
    let (left, right) = (K::encode(left), K::encode(right));
    prop_assert_eq!(K::compare(&left, &right), expected, "{:?} {:?}", &left, &right);
    prop_assert_eq!(K::compare(&right, &left), expected.reverse());
    if K::BYTEWISE {
        prop_assert_eq!(left.cmp(&right), expected);
    }
    Ok(())
}

/// A key of a fixed size is in order, comes back alone and as a part, and is of that size only.
fn check_fixed<K>(left: K, right: K) -> Result<(), TestCaseError>
where
    K: for<'a> Key<Ref<'a> = K, View<'a> = K> + Copy + Ord + Debug,
{
    check::<K>(left, right, left.cmp(&right))?;
    let mut bytes = K::encode(left);
    prop_assert_eq!(K::decode(&bytes), Ok(left));
    prop_assert!(K::decode(&bytes[1..]).is_err());
    bytes.push(0);
    prop_assert_eq!(K::decode(&bytes).unwrap_err().at, bytes.len() - 1);
    Ok(())
}

/// Pairs that are often equal or near: a second value that is the first one, a neighbour of it, or another.
fn numbers<T: Arbitrary + Copy + 'static>(near: fn(T) -> T) -> impl Strategy<Value = (T, T)> {
    (any::<T>(), any::<T>(), 0..4_u8).prop_map(move |(left, right, choice)| match choice {
        0 => (left, left),
        1 => (left, near(left)),
        _ => (left, right),
    })
}

/// Bytes of few kinds, so that prefixes, zeros and end marks meet.
fn strings() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![Just(0_u8), Just(1), Just(0xfe), Just(0xff), any::<u8>()], 0..6)
}

fn texts() -> impl Strategy<Value = String> {
    "[\0\u{1}aé\u{10ffff}]{0,5}"
}

fn runs() -> impl Strategy<Value = RunId> {
    (0..4_i64, any::<[u8; 10]>(), any::<i64>(), any::<bool>())
        .prop_map(|(near, random, far, choose)| RunId::from_parts(Timestamp(if choose { near } else { far }), random))
}

fn due() -> impl Strategy<Value = i64> {
    prop_oneof![-2..3_i64, any::<i64>(), Just(i64::MIN), Just(i64::MAX)]
}

macro_rules! integers_sort {
    ($($name:ident $type:ident),*) => {
        proptest! {
            #![proptest_config(super::config())]
            $(#[test]
            fn $name((left, right) in numbers::<$type>(|number| number.wrapping_add(1))) {
                check_fixed(left, right)?;
            })*
        }
    };
}

integers_sort!(
    u8_keys_sort_and_return u8, u16_keys_sort_and_return u16, u32_keys_sort_and_return u32,
    u64_keys_sort_and_return u64, u128_keys_sort_and_return u128, i8_keys_sort_and_return i8,
    i16_keys_sort_and_return i16, i32_keys_sort_and_return i32, i64_keys_sort_and_return i64,
    i128_keys_sort_and_return i128
);

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn ids_sort_and_return((left, right) in numbers::<i64>(|id| id.wrapping_add(1)), seqs: (u64, u64), bits: (bool, bool)) {
        check_fixed(bits.0, bits.1)?;
        check_fixed(WorkerId(left), WorkerId(right))?;
        check_fixed(Timestamp(left), Timestamp(right))?;
        check_fixed(Seq(seqs.0), Seq(seqs.1))?;
        let inbox = |worker, seq| InboxKey { worker: WorkerId(worker), seq: Seq(seq) };
        check_fixed(inbox(left, seqs.0), inbox(right, seqs.1))?;
    }

    #[test]
    fn timers_sort_by_due_time_then_seq(left in (due(), 0..3_u64), right in (due(), 0..3_u64)) {
        let timer = |(due, seq)| TimerKey { due: Timestamp(due), seq: Seq(seq) };
        check_fixed(timer(left), timer(right))?;
        prop_assert_eq!(timer(left).cmp(&timer(right)), left.cmp(&right));
    }

    #[test]
    fn runs_sort_by_time_and_return_from_text_and_bytes(left in runs(), right in runs()) {
        check_fixed(left, right)?;
        let text = left.to_string();
        prop_assert_eq!(text.parse(), Ok(left));
        prop_assert_eq!(text.cmp(&right.to_string()), left.cmp(&right));
        prop_assert_eq!(RunId::from_bytes(*left.as_bytes()), Ok(left));
        if left.created() != right.created() {
            prop_assert_eq!(left.cmp(&right), left.created().cmp(&right.created()));
        }
    }

    #[test]
    fn sixteen_bytes_are_a_run_or_refused(bytes: [u8; 16]) {
        let is_run = bytes[6] >> 4 == 7 && bytes[8] >> 6 == 2;
        prop_assert_eq!(RunId::from_bytes(bytes).is_ok(), is_run);
    }

    #[test]
    fn any_text_is_a_run_in_its_form_or_refused(text in "[0-9a-f{}:urn-]{30,46}|\\PC{0,40}") {
        if let Ok(run) = text.parse::<RunId>() {
            prop_assert_eq!(run.to_string(), text.to_ascii_lowercase());
        }
    }

    #[test]
    fn strings_alone_sort_and_return(left in strings(), right in strings(), words in (texts(), texts())) {
        check::<Vec<u8>>(&left, &right, left.cmp(&right))?;
        check::<[u8]>(&left, &right, left.cmp(&right))?;
        check::<String>(&words.0, &words.1, words.0.cmp(&words.1))?;
        prop_assert_eq!(Vec::<u8>::decode(&left), Ok(&left[..]));
        prop_assert_eq!(str::decode(words.0.as_bytes()), Ok(&*words.0));
        let id = [b"m", &left[..]].concat();
        check::<RetryKey>(&id, &right, id.cmp(&right))?;
        let key = RetryKey::encode(&id);
        prop_assert_eq!(RetryKey::decode(&key), Ok(&id[..]));
    }

    #[test]
    fn pairs_sort_and_return(left in (texts(), any::<u64>()), right in (texts(), any::<u64>())) {
        check::<(String, u64)>((&left.0, left.1), (&right.0, right.1), left.cmp(&right))?;
        let key = <(String, u64)>::encode((&left.0, left.1));
        let (text, number) = <(String, u64)>::decode(&key).unwrap();
        prop_assert_eq!((text.into_owned(), number), left);
    }

    #[test]
    fn adjoining_strings_sort_and_return(left in (strings(), texts(), strings()), right in (strings(), texts(), strings())) {
        type Strings = (Vec<u8>, String, Vec<u8>);
        check::<Strings>((&left.0, &left.1, &left.2), (&right.0, &right.1, &right.2), left.cmp(&right))?;
        let key = Strings::encode((&left.0, &left.1, &left.2));
        let (first, text, last) = Strings::decode(&key).unwrap();
        prop_assert_eq!((first.into_owned(), text.into_owned(), last.into_owned()), left);
    }

    #[test]
    fn sixfold_keys_sort_and_return(
        left in (0..2_u8, -1..2_i8, texts(), strings(), any::<bool>(), any::<i128>()),
        right in (0..2_u8, -1..2_i8, texts(), strings(), any::<bool>(), any::<i128>()),
    ) {
        type Six = (u8, i8, String, Vec<u8>, bool, i128);
        let order = left.cmp(&right);
        check::<Six>(
            (left.0, left.1, &left.2, &left.3, left.4, left.5),
            (right.0, right.1, &right.2, &right.3, right.4, right.5),
            order,
        )?;
        let key = Six::encode((left.0, left.1, &left.2, &left.3, left.4, left.5));
        let (a, b, c, d, e, f) = Six::decode(&key).unwrap();
        prop_assert_eq!((a, b, c.into_owned(), d.into_owned(), e, f), left);
    }

    #[test]
    fn ids_in_tuples_sort_and_return(
        left in ("[a-c]{1,3}", runs(), any::<i64>()),
        right in ("[a-c]{1,3}", runs(), any::<i64>()),
    ) {
        type Row = (JobId, RunId, WorkerId);
        let jobs = [&left, &right].map(|row| JobId::new(row.0.as_str()).unwrap());
        let rows = [(&jobs[0], left.1, WorkerId(left.2)), (&jobs[1], right.1, WorkerId(right.2))];
        check::<Row>(rows[0], rows[1], rows[0].cmp(&rows[1]))?;
        let key = Row::encode(rows[0]);
        let (job, run, worker) = Row::decode(&key).unwrap();
        prop_assert_eq!((&*job, run, worker), (jobs[0].as_str(), left.1, WorkerId(left.2)));
    }

    #[test]
    fn any_bytes_are_a_tuple_in_one_form_or_refused(bytes in strings()) {
        match <(String, Vec<u8>)>::decode(&bytes) {
            Ok((text, rest)) => prop_assert_eq!(<(String, Vec<u8>)>::encode((&text, &rest)), &bytes[..]),
            Err(error) => prop_assert!(error.at <= bytes.len()),
        }
        match <(bool, Vec<u8>, u8)>::decode(&bytes) {
            Ok((bit, rest, last)) => prop_assert_eq!(<(bool, Vec<u8>, u8)>::encode((bit, &rest, last)), &bytes[..]),
            Err(error) => prop_assert!(error.at <= bytes.len()),
        }
    }
}
