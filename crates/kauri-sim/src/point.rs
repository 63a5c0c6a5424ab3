//! The name of a crash: short enough to print, exact enough to replay.
//!
//! ```text
//! 7@41.none          seed 7, after 41 operations: nothing that was pending survived
//! 7@41.all           everything did
//! 7@41.butlast       all but the last pending operation
//! 7@41.last          only the last pending operation
//! 7@41.x2f           the pending effects whose bits are set in 0x2f, whole
//! 7@41+.s12t16       while operation 41 was on its way: random choice 12, torn at 16 bytes
//! 7@41.all/7@3.none  the first crash, then a second one after 3 operations of the next life
//! ```

use std::fmt;
use std::str::FromStr;

/// One crash of one life: after how many operations, and what became of the pending ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CrashPoint {
    /// The seed of every random choice.
    pub seed: u64,
    /// How many operations had returned.
    pub op: usize,
    /// Whether the next operation was on its way.
    pub flight: Flight,
    /// What became of the operations that were not durable yet.
    pub variant: Variant,
}

/// Whether the next operation had begun when the crash came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flight {
    /// No operation was on its way.
    Between,
    /// The next operation was on its way.
    During,
}

/// What became of the effects that were pending when the crash came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// All were lost.
    None,
    /// All survived.
    All,
    /// All survived but those of the last pending operation.
    AllButLast,
    /// Only those of the last pending operation survived.
    OnlyLast,
    /// The effects whose bit is set survived, whole.
    Subset(u64),
    /// Random choice number so-and-so, with writes torn into pieces of this many bytes.
    Sample {
        /// Which choice.
        number: u32,
        /// The size of the pieces.
        tear_bytes: u32,
    },
}

/// A crash, the crash of the life that followed, and so on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CrashPath(pub Vec<CrashPoint>);

/// A text that names no crash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadPoint(String);

impl fmt::Display for CrashPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let during = if self.flight == Flight::During { "+" } else { "" };
        write!(f, "{}@{}{during}.{}", self.seed, self.op, self.variant)
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::All => f.write_str("all"),
            Self::AllButLast => f.write_str("butlast"),
            Self::OnlyLast => f.write_str("last"),
            Self::Subset(bits) => write!(f, "x{bits:x}"),
            Self::Sample { number, tear_bytes } => write!(f, "s{number}t{tear_bytes}"),
        }
    }
}

impl fmt::Display for CrashPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, point) in self.0.iter().enumerate() {
            write!(f, "{}{point}", if at > 0 { "/" } else { "" })?;
        }
        Ok(())
    }
}

impl FromStr for CrashPoint {
    type Err = BadPoint;

    fn from_str(text: &str) -> Result<Self, BadPoint> {
        parse_point(text).ok_or_else(|| BadPoint(text.to_owned()))
    }
}

impl FromStr for CrashPath {
    type Err = BadPoint;

    fn from_str(text: &str) -> Result<Self, BadPoint> {
        text.split('/').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

fn parse_point(text: &str) -> Option<CrashPoint> {
    let (seed, rest) = text.split_once('@')?;
    let (op, variant) = rest.split_once('.')?;
    let (op, flight) = op.strip_suffix('+').map_or((op, Flight::Between), |op| (op, Flight::During));
    Some(CrashPoint { seed: seed.parse().ok()?, op: op.parse().ok()?, flight, variant: parse_variant(variant)? })
}

fn parse_variant(text: &str) -> Option<Variant> {
    match text {
        "none" => Some(Variant::None),
        "all" => Some(Variant::All),
        "butlast" => Some(Variant::AllButLast),
        "last" => Some(Variant::OnlyLast),
        _ if text.starts_with('x') => u64::from_str_radix(&text[1..], 16).ok().map(Variant::Subset),
        _ => {
            let (number, tear_bytes) = text.strip_prefix('s')?.split_once('t')?;
            let tear_bytes = tear_bytes.parse().ok().filter(|bytes| *bytes > 0)?;
            Some(Variant::Sample { number: number.parse().ok()?, tear_bytes })
        }
    }
}

impl fmt::Display for BadPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected a crash point such as 7@41.all or 7@41+.s12t16, found {:?}", self.0)
    }
}

impl std::error::Error for BadPoint {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_read_as_it_is_written() {
        let variants = [
            Variant::None,
            Variant::All,
            Variant::AllButLast,
            Variant::OnlyLast,
            Variant::Subset(0x2f),
            Variant::Sample { number: 12, tear_bytes: 16 },
        ];
        for variant in variants {
            for flight in [Flight::Between, Flight::During] {
                let point = CrashPoint { seed: 7, op: 41, flight, variant };
                assert_eq!(point.to_string().parse(), Ok(point));
                let path = CrashPath(vec![point, CrashPoint { op: 3, ..point }]);
                assert_eq!(path.to_string().parse(), Ok(path));
            }
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for bad in ["", "7", "7@", "7@1", "7@1.", "7@1.some", "7@1.s", "7@1.s1", "7@1.s1t0", "@1.all", "7@1.x", "7@1.é"]
        {
            let error = bad.parse::<CrashPoint>().unwrap_err();
            assert!(error.to_string().ends_with(&format!("found {bad:?}")), "{error}");
        }
        assert!("7@1.all/".parse::<CrashPath>().is_err());
    }
}
