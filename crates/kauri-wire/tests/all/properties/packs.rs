//! MessagePack, held against rmpv: an independent reader and writer.

use kauri_wire::Found;
use kauri_wire::pack::{ArrayBuf, DEPTH_MAX, Map, MapBuf, Value};
use proptest::collection::vec;
use proptest::prelude::*;
use rmpv::Value as Model;

/// Values without nesting. A number that is none (NaN) equals nothing, so there is none.
fn leaves() -> impl Strategy<Value = Model> {
    prop_oneof![
        Just(Model::Nil),
        any::<bool>().prop_map(Model::from),
        any::<u64>().prop_map(Model::from),
        any::<i64>().prop_map(Model::from),
        (any::<i64>(), 0..64_u32).prop_map(|(number, shift)| Model::from(number >> shift)),
        any::<f32>().prop_filter("a number", |number| !number.is_nan()).prop_map(Model::F32),
        any::<f64>().prop_filter("a number", |number| !number.is_nan()).prop_map(Model::F64),
        "\\PC{0,40}".prop_map(Model::from),
        vec(any::<u8>(), 0..300).prop_map(Model::Binary),
        (any::<i8>(), vec(any::<u8>(), 0..20)).prop_map(|(kind, bytes)| Model::Ext(kind, bytes)),
    ]
}

/// Values of any shape whose maps have keys from `keys`.
fn values(keys: BoxedStrategy<Model>) -> impl Strategy<Value = Model> {
    leaves().prop_recursive(4, 32, 18, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..20).prop_map(Model::Array),
            vec((keys.clone(), inner), 0..20).prop_map(Model::Map),
        ]
    })
}

fn texts() -> BoxedStrategy<Model> {
    "[a-zé]{0,33}".prop_map(Model::from).boxed()
}

/// Maps whose keys are text, as ours are written.
fn maps() -> impl Strategy<Value = Vec<(Model, Model)>> {
    vec((texts(), values(texts())), 0..5)
}

/// What we read is the model.
fn check(bytes: &[u8], model: &Model) -> Result<(), TestCaseError> {
    let read = Map::decode(bytes).map(|map| to_model(Value::Map(map)));
    prop_assert_eq!(read.as_ref(), Ok(model));
    Ok(())
}

fn to_model(value: Value<'_>) -> Model {
    match value {
        Value::Nil => Model::Nil,
        Value::Bool(bit) => bit.into(),
        Value::Uint(number) => number.into(),
        Value::Int(number) => number.into(),
        Value::F32(number) => Model::F32(number),
        Value::F64(number) => Model::F64(number),
        Value::Str(text) => text.into(),
        Value::Bin(bytes) => Model::Binary(bytes.into()),
        Value::Array(array) => Model::Array(array.iter().map(to_model).collect()),
        Value::Map(map) => Model::Map(map.iter().map(|(key, value)| (to_model(key), to_model(value))).collect()),
        Value::Ext(kind, bytes) => Model::Ext(kind, bytes.into()),
    }
}

/// Hands our form of the model to `take`; what is nested lives only so long.
fn with_value(model: &Model, take: &mut dyn FnMut(Value<'_>)) {
    match model {
        Model::Nil => take(Value::Nil),
        Model::Boolean(bit) => take((*bit).into()),
        Model::Integer(number) => match number.as_u64() {
            Some(number) => take(number.into()),
            None => take(number.as_i64().unwrap().into()),
        },
        Model::F32(number) => take(Value::F32(*number)),
        Model::F64(number) => take((*number).into()),
        Model::String(text) => take(text.as_str().unwrap().into()),
        Model::Binary(bytes) => take(bytes[..].into()),
        Model::Array(items) => {
            let mut array = ArrayBuf::new();
            for item in items {
                with_value(item, &mut |value| {
                    array.push(value);
                });
            }
            take(array.view().into());
        }
        Model::Map(entries) => take(map(entries).view().into()),
        Model::Ext(kind, bytes) => take(Value::Ext(*kind, bytes)),
    }
}

fn map(entries: &[(Model, Model)]) -> MapBuf {
    let mut map = MapBuf::new();
    for (key, value) in entries {
        with_value(value, &mut |value| {
            map.put(key.as_str().unwrap(), value);
        });
    }
    map
}

fn rmpv_bytes(model: &Model) -> Vec<u8> {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, model).unwrap();
    bytes
}

/// The model of bytes that are one value and no more.
fn rmpv_model(mut bytes: &[u8]) -> Option<Model> {
    let model = rmpv::decode::read_value(&mut bytes).ok()?;
    bytes.is_empty().then_some(model)
}

/// Whether the model keeps to what we add to the format: text is UTF-8, nesting is bounded.
fn is_strict(model: &Model, levels: usize) -> bool {
    match model {
        Model::String(text) => text.is_str(),
        Model::Array(items) => levels > 0 && items.iter().all(|item| is_strict(item, levels - 1)),
        Model::Map(entries) => {
            levels > 0 && entries.iter().all(|(key, value)| is_strict(key, levels - 1) && is_strict(value, levels - 1))
        }
        _ => true,
    }
}

/// Bytes that are often MessagePack: markers with small lengths, and a few of everything.
fn likely_bytes() -> impl Strategy<Value = Vec<u8>> {
    let small = prop_oneof![Just(0x80_u8), Just(0x81), Just(0x82), Just(0x91), Just(0x92), Just(0xa1), 0..4_u8];
    let byte = prop_oneof![4 => small, 2 => 0xc0..0xe0_u8, 1 => any::<u8>()];
    (0x80..0x84_u8, vec(byte, 0..16)).prop_map(|(marker, mut bytes)| {
        bytes.insert(0, marker);
        bytes
    })
}

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn what_we_write_is_read_by_us_and_by_rmpv(entries in maps()) {
        let bytes = map(&entries).view().encode();
        let model = Model::Map(entries);
        check(&bytes, &model)?;
        prop_assert_eq!(rmpv_model(&bytes), Some(model));
    }

    #[test]
    fn what_rmpv_writes_is_what_we_write(entries in maps()) {
        let ours = map(&entries).view().encode();
        prop_assert_eq!(rmpv_bytes(&Model::Map(entries)), ours);
    }

    #[test]
    fn maps_with_keys_of_any_type_are_read(entries in vec((values(leaves().boxed()), values(leaves().boxed())), 0..3)) {
        let model = Model::Map(entries);
        check(&rmpv_bytes(&model), &model)?;
    }

    #[test]
    fn we_read_what_rmpv_reads(bytes in likely_bytes()) {
        let expected = rmpv_model(&bytes).filter(|model| is_strict(model, DEPTH_MAX));
        let read = Map::decode(&bytes);
        if read.is_err_and(|error| error.found == Found::Type("the unused marker 0xc1")) {
            return Ok(()); // The format never uses it; rmpv reads it as nil.
        }
        let read = read.ok();
        prop_assert_eq!(read.is_some(), expected.is_some(), "{:?} {:?}", read, expected);
        if let Some(map) = read {
            let model = to_model(Value::Map(map));
            // A number that is none equals nothing, not even itself: compare what they are shown as.
            prop_assert_eq!(format!("{model:?}"), format!("{:?}", expected.unwrap()));
            let again = map.encode();
            prop_assert_eq!(Map::decode(&again), Ok(map));
        }
    }

    #[test]
    fn any_bytes_are_a_map_or_refused(bytes in vec(any::<u8>(), 0..100)) {
        if let Err(error) = Map::decode(&bytes) {
            prop_assert!(error.at <= bytes.len(), "{}", error);
        }
    }

    #[test]
    fn nesting_is_refused_from_the_sixty_fifth_level_on(levels in 1..100_usize, is_map: bool) {
        let opening: &[u8] = if is_map { &[0x81, 0xa0] } else { &[0x91] };
        let mut bytes = vec![0x81, 0xa0];
        bytes.extend(opening.repeat(levels - 1));
        bytes.push(0xc0);
        prop_assert_eq!(Map::decode(&bytes).is_ok(), levels <= DEPTH_MAX);
        if let Err(error) = Map::decode(&bytes) {
            prop_assert_eq!(error.at, 2 + (DEPTH_MAX - 1) * opening.len());
        }
    }
}
