//! MessagePack maps: what is accepted can be walked, and is the same after it was written.
#![no_main]

use kauri_fuzz::allocation;
use kauri_wire::pack::{ArrayBuf, DEPTH_MAX, Map, MapBuf, Value};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match allocation::without(|| Map::decode(bytes)) {
        Ok(map) => check(map, bytes),
        Err(error) => assert!(error.at <= bytes.len(), "{error}"),
    }
});

fn check(map: Map<'_>, bytes: &[u8]) {
    let again = map.encode();
    assert!(again.len() <= bytes.len(), "the shortest form is no longer than the one that came");
    assert_eq!(Map::decode(&again), Ok(map));
    assert!((1..=DEPTH_MAX).contains(&Value::Map(map).depth()));
    allocation::without(|| map.iter().for_each(|(key, value)| touch(key, value)));
    // Written anew, value by value: the writer's shortest forms are read as the same values.
    if map.iter().all(|(key, _)| matches!(key, Value::Str(_))) {
        let mut copy = MapBuf::new();
        for (key, value) in map.iter() {
            let Value::Str(key) = key else { unreachable!("all keys are text") };
            copy.put(key, value);
        }
        let written = copy.view().encode();
        let read = Map::decode(&written).expect("our map");
        assert!(read == copy.view() && Value::Map(read).depth() == Value::Map(map).depth());
        for ((_, before), (_, after)) in map.iter().zip(read.iter()) {
            assert!(before == after || is_nan(&before) && is_nan(&after), "{before:?} became {after:?}");
        }
    }
    let mut list = ArrayBuf::new();
    for (key, value) in map.iter() {
        list.push(key).push(value);
    }
    assert_eq!(list.view().len(), 2 * map.len());
}

fn touch(key: Value<'_>, value: Value<'_>) {
    for value in [key, value] {
        let _maybe = (value.as_uint(), value.as_timestamp(), value.type_name());
        match value {
            Value::Array(array) => assert_eq!(array.iter().count(), array.len() as usize),
            Value::Map(map) => assert_eq!(map.iter().count(), map.len() as usize),
            _ => {}
        }
    }
}

fn is_nan(value: &Value<'_>) -> bool {
    match value {
        Value::F32(number) => number.is_nan(),
        Value::F64(number) => number.is_nan(),
        _ => false,
    }
}
