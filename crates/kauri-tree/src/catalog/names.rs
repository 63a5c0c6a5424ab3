//! Things by their names, in the order of names, found by the first bytes: those of most names differ, and are compared as one number.

/// Things of which each has a name.
#[derive(Clone, Debug)]
pub(super) struct Named<T> {
    /// Sorted by name.
    things: Vec<(Box<str>, T)>,
    /// The first bytes of each, in the same order.
    heads: Vec<u64>,
}

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self { things: Vec::new(), heads: Vec::new() }
    }
}

/// The first eight bytes, and zeros if there are fewer. Sorts as names do, as far as it goes.
#[inline]
fn head(name: &str) -> u64 {
    let bytes = name.as_bytes();
    match bytes.first_chunk() {
        Some(first) => u64::from_be_bytes(*first),
        None => bytes.iter().fold(0, |head, byte| head << 8 | u64::from(*byte)) << (8 * (8 - bytes.len()).min(7)),
    }
}

impl<T> Named<T> {
    pub(super) fn len(&self) -> usize {
        self.things.len()
    }

    /// Where it is, or where it would be.
    #[inline]
    fn find(&self, name: &str) -> Result<usize, usize> {
        let head = head(name);
        let mut at = self.heads.partition_point(|other| *other < head);
        while self.heads.get(at) == Some(&head) {
            match (*self.things[at].0).cmp(name) {
                std::cmp::Ordering::Less => at += 1,
                std::cmp::Ordering::Equal => return Ok(at),
                std::cmp::Ordering::Greater => break,
            }
        }
        Err(at)
    }

    #[inline]
    pub(super) fn get(&self, name: &str) -> Option<&T> {
        Some(&self.things[self.find(name).ok()?].1)
    }

    /// The same, with the name as it is kept here.
    pub(super) fn get_named(&self, name: &str) -> Option<(&str, &T)> {
        let (name, thing) = &self.things[self.find(name).ok()?];
        Some((name, thing))
    }

    pub(super) fn insert(&mut self, name: Box<str>, thing: T) {
        match self.find(&name) {
            Ok(at) => self.things[at].1 = thing,
            Err(at) => {
                self.heads.insert(at, head(&name));
                self.things.insert(at, (name, thing));
            }
        }
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<T> {
        let at = self.find(name).ok()?;
        self.heads.remove(at);
        Some(self.things.remove(at).1)
    }

    /// All of them, by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.things.iter().map(|(name, thing)| (&**name, thing))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn names_are_found_and_sorted_as_in_a_map() {
        let (mut named, mut map) = (Named::default(), BTreeMap::new());
        // Short ones, some with a byte 0, and many that begin alike.
        let name = |number: u64| match number % 4 {
            0 => "\0".repeat((number / 4 % 11) as usize),
            1 => format!("{}", number / 4 % 50),
            2 => format!("a name of some length {}", number / 4 % 30),
            _ => "a name of".chars().take((number / 4 % 10) as usize).collect(),
        };
        let mut random = 7_u64;
        for round in 0..4_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let name = name(random >> 40);
            match random >> 33 & 3 {
                0 => assert_eq!(named.remove(&name), map.remove(&name)),
                1 => {
                    named.insert(name.as_str().into(), round);
                    map.insert(name, round);
                }
                _ => {
                    assert_eq!(named.get(&name), map.get(&name), "{name:?}");
                    let kept = map.get_key_value(&name).map(|(name, thing)| (name.as_str(), thing));
                    assert_eq!(named.get_named(&name), kept);
                }
            }
            assert_eq!(named.len(), map.len());
        }
        assert!(map.len() > 30 && named.iter().eq(map.iter().map(|(name, thing)| (name.as_str(), thing))));
    }
}
