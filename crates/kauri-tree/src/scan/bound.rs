//! Where a scan begins and ends.

/// An end of a range of keys, or none.
#[derive(Clone, Debug)]
pub(super) enum Bound {
    None,
    /// A key that lies here, because most are short and need no place of their own.
    Short(u8, [u8; Self::SHORT]),
    Long(Box<[u8]>),
}

impl Bound {
    const SHORT: usize = 30;

    #[inline]
    pub(super) fn new(key: &[u8]) -> Self {
        let mut bytes = [0; Self::SHORT];
        match (bytes.get_mut(..key.len()), u8::try_from(key.len())) {
            (Some(start), Ok(length)) => {
                start.copy_from_slice(key);
                Self::Short(length, bytes)
            }
            _ => Self::Long(key.into()),
        }
    }

    #[inline]
    pub(super) fn key(&self) -> Option<&[u8]> {
        match self {
            Self::None => None,
            Self::Short(length, bytes) => Some(&bytes[..usize::from(*length)]),
            Self::Long(key) => Some(key),
        }
    }
}
