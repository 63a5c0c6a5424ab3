//! Bytes of keys and values: few of them lie in the value itself, more on the heap.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;

/// How many bytes lie in the value itself: a lease does, and the runtime's own keys.
const INLINE: usize = 38;

/// Some bytes. They cost an allocation only if they are many.
///
/// ```
/// use kauri_runtime::substrate::Bytes;
///
/// let key = Bytes::from(b"apple");
/// assert_eq!(&key[..], b"apple");
/// assert!(key < Bytes::from(vec![b'b'; 100]));
/// ```
#[derive(Clone)]
pub struct Bytes(Place);

#[derive(Clone)]
enum Place {
    Here { len: u8, bytes: [u8; INLINE] },
    Heap(Box<[u8]>),
}

impl Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Place::Here { len, bytes } => &bytes[..usize::from(*len)],
            Place::Heap(bytes) => bytes,
        }
    }
}

impl From<&[u8]> for Bytes {
    #[inline]
    fn from(from: &[u8]) -> Self {
        match u8::try_from(from.len()) {
            Ok(len) if from.len() <= INLINE => {
                let mut bytes = [0; INLINE];
                bytes[..from.len()].copy_from_slice(from);
                Self(Place::Here { len, bytes })
            }
            _ => Self(Place::Heap(from.into())),
        }
    }
}

impl<const N: usize> From<[u8; N]> for Bytes {
    #[inline]
    fn from(from: [u8; N]) -> Self {
        from[..].into()
    }
}

impl<const N: usize> From<&[u8; N]> for Bytes {
    fn from(from: &[u8; N]) -> Self {
        from[..].into()
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(from: Vec<u8>) -> Self {
        match from.len() <= INLINE {
            true => from[..].into(),
            false => Self(Place::Heap(from.into())),
        }
    }
}

impl From<&str> for Bytes {
    fn from(from: &str) -> Self {
        from.as_bytes().into()
    }
}

impl From<String> for Bytes {
    fn from(from: String) -> Self {
        from.into_bytes().into()
    }
}

impl Default for Bytes {
    fn default() -> Self {
        Self::from([])
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Bytes {}

impl PartialOrd for Bytes {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Bytes {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Borrow<[u8]> for Bytes {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_the_same_wherever_they_lie() {
        for len in [0, 1, INLINE - 1, INLINE, INLINE + 1, 300] {
            let vec: Vec<u8> = (0..=255).cycle().take(len).collect();
            let (copied, moved) = (Bytes::from(&vec[..]), Bytes::from(vec.clone()));
            assert_eq!((&copied[..], &copied), (&vec[..], &moved));
            assert!(copied <= Bytes::from([&vec[..], &[0]].concat()));
        }
    }
}
