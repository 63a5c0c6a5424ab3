//! What a caller wants written: fixed SQL, and values for its places.

/// A value of the database.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// Nothing.
    Null,
    /// A whole number.
    Integer(i64),
    /// Another number.
    Real(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

macro_rules! values {
    ($($from:ty => $variant:ident;)*) => {$(
        impl From<$from> for Value {
            fn from(value: $from) -> Self {
                Self::$variant(value.into())
            }
        }
    )*};
}

values! {
    i64 => Integer;
    i32 => Integer;
    u32 => Integer;
    bool => Integer;
    f64 => Real;
    &str => Text;
    String => Text;
    Vec<u8> => Blob;
    &[u8] => Blob;
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// One statement. Its SQL is a constant of the program: no SQL is built from data, because there is no way to pass it.
#[derive(Clone, PartialEq, Debug)]
#[must_use]
pub struct Op {
    pub(crate) sql: &'static str,
    pub(crate) args: Vec<Value>,
    pub(crate) rows: Option<usize>,
}

impl Op {
    /// A statement with values for its places `?1`, `?2`, ...
    pub fn new(sql: &'static str, args: impl IntoIterator<Item = Value>) -> Self {
        Self { sql, args: args.into_iter().collect(), rows: None }
    }

    /// The same, which must change exactly so many rows. If it does not, nothing of its submission is applied.
    pub fn changing(self, rows: usize) -> Self {
        Self { rows: Some(rows), ..self }
    }
}
