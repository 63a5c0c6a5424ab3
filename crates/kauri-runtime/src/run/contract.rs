//! The version of the run contract, and which others are understood.

use std::fmt;
use std::str::FromStr;

/// A version of the run contract. A change of the major number is one that old readers misunderstand; of the minor one, something they do not know.
///
/// ```
/// use kauri_runtime::run::Contract;
///
/// let ours = Contract { major: 0, minor: 3 };
/// assert!(ours.understands("0.3.9".parse().unwrap()));
/// assert!(ours.understands("0.1.0".parse().unwrap()));
/// assert!(!ours.understands("0.4.0".parse().unwrap())); // it may say what we do not know
/// assert!(!ours.understands("1.0.0".parse().unwrap()));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contract {
    /// Both sides have the same.
    pub major: u32,
    /// The writer's is not newer than the reader's.
    pub minor: u32,
}

impl Contract {
    /// The one that this runtime follows.
    pub const OURS: Self = Self { major: 0, minor: 1 };

    /// Whether what is written with that version can be read with this one.
    #[must_use]
    pub const fn understands(self, writer: Self) -> bool {
        self.major == writer.major && writer.minor <= self.minor
    }
}

impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A text that is no version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoVersion;

impl fmt::Display for NoVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a version like 0.1.0, found something else")
    }
}

impl std::error::Error for NoVersion {}

impl FromStr for Contract {
    type Err = NoVersion;

    /// Reads `major.minor`, or `major.minor.patch` with anything after a `-` or `+`.
    fn from_str(text: &str) -> Result<Self, NoVersion> {
        let plain = text.split(['-', '+']).next().unwrap_or_default();
        let numbers: Result<Vec<u32>, NoVersion> = plain.split('.').take(4).map(number).collect();
        match numbers?[..] {
            [major, minor] | [major, minor, _] => Ok(Self { major, minor }),
            _ => Err(NoVersion),
        }
    }
}

/// Digits only: what `parse` takes besides, such as a sign, is no version.
fn number(text: &str) -> Result<u32, NoVersion> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_plain { text.parse().map_err(|_| NoVersion) } else { Err(NoVersion) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_other_texts_refused() {
        for (text, major, minor) in [("0.1.0", 0, 1), ("2.7", 2, 7), ("1.0.0-rc.1", 1, 0), ("4.5.6+linux", 4, 5)] {
            assert_eq!(text.parse(), Ok(Contract { major, minor }), "{text}");
        }
        for text in ["", "1", "1.", ".1", "1.2.3.4", "v1.2", "1.x", "+1.2", "1.-2", "99999999999.1", "1.2.x"] {
            assert_eq!(text.parse::<Contract>(), Err(NoVersion), "{text}");
        }
    }
}
